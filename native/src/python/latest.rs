//! The latest text of each key: see `kernels::latest`.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use super::buffers::{Held, large_bytes, rows_of, to_bytes};
use super::entry_map::EntryMap;
use super::tally::stored_of;
use crate::kernels::latest::Latest as Kernel;
use crate::kernels::rows::Taken;

/// See `penstock_native.pyi`.
#[pyclass]
pub struct Latest(Kernel);

impl Latest {
    /// Keys, a column of texts, and times.
    fn with<'py>(&self, py: Python<'py>, texts: Taken) -> PyResult<Bound<'py, PyTuple>> {
        let (keys, ends) = self.0.keys();
        let parts = [
            large_bytes(py, keys)?,
            to_bytes(py, &ends),
            large_bytes(py, &texts.data)?,
            to_bytes(py, &texts.ends),
            to_bytes(py, &self.0.times()),
        ];
        PyTuple::new(py, parts)
    }
}

#[pymethods]
impl Latest {
    #[new]
    fn new(later: bool) -> Self {
        Latest(Kernel::new(later))
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    #[getter]
    fn used_bytes(&self) -> usize {
        self.0.used_bytes()
    }

    #[getter]
    fn any_stored(&self) -> bool {
        self.0.any_stored()
    }

    fn add(
        &mut self,
        py: Python<'_>,
        data: Held<u8>,
        offsets: Held<i64>,
        times: Held<i64>,
        text_data: Held<u8>,
        text_offsets: Held<i64>,
    ) -> PyResult<()> {
        let (keys, texts) = (rows_of(&data, &offsets, None)?, rows_of(&text_data, &text_offsets, None)?);
        let times = times.slice();
        if times.len() != keys.len() || texts.len() != keys.len() {
            return Err(PyValueError::new_err("there is not one time and text per key"));
        }
        self.0.check_room(keys.len())?;
        let latest = &mut self.0;
        py.detach(|| latest.add(&keys, times, &texts));
        Ok(())
    }

    fn unbased<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let keys: Vec<_> = self.0.unbased_keys().map(|key| PyBytes::new(py, key)).collect();
        PyList::new(py, keys)
    }

    fn base(&mut self, stored: &Bound<'_, PyList>) -> PyResult<()> {
        if stored.len() != self.0.unbased_keys().count() {
            return Err(PyValueError::new_err("there is not one value per new key"));
        }
        let stored: Vec<Bound<'_, PyAny>> = stored.iter().collect();
        self.0.base(stored.iter().map(stored_of)).map_err(PyValueError::new_err)
    }

    /// See `Tally::base_from`.
    fn base_from(&mut self, py: Python<'_>, mut known: PyRefMut<'_, EntryMap>, whole: bool) -> PyResult<()> {
        let (latest, entered) = (&mut self.0, &mut known.entered);
        py.detach(|| latest.base_from(entered, whole)).map_err(PyValueError::new_err)
    }

    fn texts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        self.with(py, self.0.texts()?)
    }

    fn tuples<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        self.with(py, self.0.tuples()?)
    }

    fn clear(&mut self) {
        self.0.clear();
    }
}
