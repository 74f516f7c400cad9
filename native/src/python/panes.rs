//! Counts of records by pane and key: see `kernels::panes`.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use super::buffers::{Held, bytes_of, to_bytes};
use crate::kernels::panes::Panes;

/// See `penstock_native.pyi`.
#[pyclass]
pub struct PaneCounts(Panes);

#[pymethods]
impl PaneCounts {
    #[new]
    fn new() -> Self {
        PaneCounts(Panes::default())
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    #[getter]
    fn pending(&self) -> usize {
        self.0.pending()
    }

    fn add(&mut self, keys: &Bound<'_, PyList>, counts: Held<i64>, times: Held<i64>, stored: bool) -> PyResult<bool> {
        let listed: Vec<_> = keys.iter().collect();
        Ok(self.0.add(&bytes_of(&listed)?, counts.slice(), times.slice(), stored)?)
    }

    fn first(&self, start: i64) -> Option<i64> {
        self.0.first(start)
    }

    /// `(keys, their int64 ends, int64 counts, int64 times)`.
    fn window<'py>(&mut self, py: Python<'py>, low: i64, high: i64) -> PyResult<Bound<'py, PyTuple>> {
        let panes = &mut self.0;
        let found = py.detach(|| panes.window(low, high));
        let numbers = [&found.ends, &found.counts, &found.latest].map(|part| to_bytes(py, part));
        let [ends, counts, latest] = numbers;
        PyTuple::new(py, [PyBytes::new(py, &found.names), ends, counts, latest])
    }

    fn drop_below(&mut self, start: i64) {
        self.0.drop_below(start);
    }

    /// `(store keys, [(count, time)])`.
    fn changes<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let found = self.0.changes();
        let keys = PyList::new(py, found.keys.iter().map(|key| PyBytes::new(py, key)))?;
        (keys, found.counts).into_pyobject(py)
    }
}
