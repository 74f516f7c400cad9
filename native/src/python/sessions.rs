//! Sessions of counted records: see `kernels::sessions`.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use super::buffers::{Held, bytes_of, to_bytes};
use crate::kernels::sessions::{Batch, Closed, Names, Rules, Sessions, Stored};

/// See `penstock_native.pyi`.
#[pyclass]
pub struct SessionCounts(Sessions);

fn list_of<'py>(py: Python<'py>, names: &Names) -> PyResult<Bound<'py, PyList>> {
    PyList::new(py, names.iter().map(|name| PyBytes::new(py, name)))
}

#[pymethods]
impl SessionCounts {
    #[new]
    fn new(gap: i64, touching: bool, behind: i64, closes_after: i64, keep: i64, segment_ms: i64) -> Self {
        SessionCounts(Sessions::new(Rules { gap, touching, behind, closes_after, keep, segment_ms }))
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    #[getter]
    fn latest_ms(&self) -> i64 {
        self.0.latest_ms()
    }

    #[getter]
    fn pending(&self) -> usize {
        self.0.pending()
    }

    fn missing(&self, names: &Bound<'_, PyList>) -> PyResult<Vec<usize>> {
        let listed: Vec<_> = names.iter().collect();
        Ok(self.0.missing(&bytes_of(&listed)?))
    }

    fn hold(&mut self, name: &[u8], stored: Vec<Stored>) {
        self.0.hold(name, &stored);
    }

    /// `(int64 late records, int64 positions, ends, starts, last times and counts, keys, their int64 offsets)`.
    #[allow(clippy::too_many_arguments)]
    fn take<'py>(
        &mut self,
        py: Python<'py>,
        names: &Bound<'py, PyList>,
        numbers: Held<i64>,
        times: Held<i64>,
        counts: Option<Held<i64>>,
        at: Held<i64>,
        levels: Held<i64>,
        moved_by_records: bool,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let listed: Vec<_> = names.iter().collect();
        let batch = Batch {
            names: &bytes_of(&listed)?,
            numbers: numbers.slice(),
            times: times.slice(),
            counts: counts.as_ref().map(Held::slice),
            at: at.slice(),
            levels: levels.slice(),
            moved_by_records,
        };
        let sessions = &mut self.0;
        let taken = py.detach(|| sessions.take(&batch))?;
        let column = |of: fn(&Closed) -> i64| to_bytes(py, &taken.closed.iter().map(of).collect::<Vec<_>>());
        let mut keys = Vec::new();
        let mut offsets = vec![0i64];
        for one in &taken.closed {
            keys.extend_from_slice(self.0.name(one));
            offsets.push(keys.len() as i64);
        }
        PyTuple::new(
            py,
            [
                to_bytes(py, &taken.late),
                column(|c| c.position),
                column(|c| c.end),
                column(|c| c.start),
                column(|c| c.last),
                column(|c| c.count),
                PyBytes::new(py, &keys),
                to_bytes(py, &offsets),
            ],
        )
    }

    /// `(gone, their times, new, their entries, known, their entries, timers gone, timers set)`.
    fn changes<'py>(&mut self, py: Python<'py>, floor: i64) -> PyResult<Bound<'py, PyTuple>> {
        let found = self.0.changes(floor);
        (
            list_of(py, &found.gone)?,
            found.gone_times,
            list_of(py, &found.new)?,
            found.new_entries,
            list_of(py, &found.known)?,
            found.known_entries,
            list_of(py, &found.timers_gone)?,
            list_of(py, &found.timers_set)?,
        )
            .into_pyobject(py)
    }

    /// `[(end, start as 8 bytes)]`.
    fn release<'py>(&mut self, py: Python<'py>, name: &[u8]) -> Option<Vec<(i64, Bound<'py, PyBytes>)>> {
        let places = self.0.release(name)?;
        Some(places.into_iter().map(|(end, start)| (end, PyBytes::new(py, &start.to_be_bytes()))).collect())
    }

    fn shrink(&mut self, floor: i64, most: usize) -> bool {
        self.0.shrink(floor, most)
    }
}
