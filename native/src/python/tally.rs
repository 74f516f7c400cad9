//! Counts of records by key: see `kernels::tally`.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use super::buffers::{Held, rows_of, to_bytes};
use super::entry_map::EntryMap;
use crate::kernels::tally::Counts;

/// A stored value. An object that is not bytes is none that can be read.
pub(super) fn stored_of<'a>(value: &'a Bound<'_, PyAny>) -> Option<&'a [u8]> {
    match value.cast::<PyBytes>() {
        Ok(bytes) => Some(bytes.as_bytes()),
        Err(_) => (!value.is_none()).then_some(&[][..]),
    }
}

/// See `penstock_native.pyi`.
#[pyclass]
pub struct Tally(Counts);

#[pymethods]
impl Tally {
    #[new]
    fn new() -> Self {
        Tally(Counts::new())
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    #[getter]
    fn used_bytes(&self) -> usize {
        self.0.used_bytes()
    }

    fn add(
        &mut self,
        py: Python<'_>,
        data: Held<u8>,
        offsets: Held<i64>,
        counts: Option<Held<i64>>,
        times: Held<i64>,
    ) -> PyResult<bool> {
        let rows = rows_of(&data, &offsets, None)?;
        let times = times.slice();
        let given = counts.as_ref().map(Held::slice);
        if times.len() != rows.len() || given.is_some_and(|counts| counts.len() != rows.len()) {
            return Err(PyValueError::new_err("there is not one time, or count, per row"));
        }
        self.0.check_room(rows.len())?;
        let tally = &mut self.0;
        let fits = tally.fits(given.unwrap_or(&[rows.len() as i64]));
        if fits {
            py.detach(|| match given {
                Some(counts) => tally.add(&rows, rows.len(), |row| (row, counts[row], times[row])),
                None => tally.add(&rows, rows.len(), |row| (row, 1, times[row])),
            });
        }
        Ok(fits)
    }

    fn add_coded(
        &mut self,
        py: Python<'_>,
        codes: Held<i32>,
        data: Held<u8>,
        offsets: Held<i64>,
        times: Held<i64>,
    ) -> PyResult<bool> {
        let keys = rows_of(&data, &offsets, None)?;
        let (codes, times) = (codes.slice(), times.slice());
        if times.len() != codes.len() {
            return Err(PyValueError::new_err("there is not one time per row"));
        }
        let known = keys.len() as i64;
        if codes.iter().fold(false, |wrong, &code| wrong | (code < 0 || i64::from(code) >= known)) {
            return Err(PyValueError::new_err("there is a code that no key has"));
        }
        self.0.check_room(keys.len())?;
        let tally = &mut self.0;
        let fits = tally.fits(&[codes.len() as i64]);
        if fits {
            py.detach(|| tally.add_coded(&keys, codes, times));
        }
        Ok(fits)
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

    /// What the memory of a store knows of the `unbased` keys; of the others they are still unbased, unless it is the
    /// `whole` store.
    fn base_from(&mut self, py: Python<'_>, mut known: PyRefMut<'_, EntryMap>, whole: bool) -> PyResult<()> {
        let (counts, entered) = (&mut self.0, &mut known.entered);
        py.detach(|| counts.base_from(entered, whole)).map_err(PyValueError::new_err)
    }

    fn columns<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let ((keys, ends), (numbers, times)) = (self.0.keys(), self.0.numbers());
        let parts = [PyBytes::new(py, keys), to_bytes(py, &ends), to_bytes(py, &numbers), to_bytes(py, &times)];
        PyTuple::new(py, parts)
    }

    fn clear(&mut self) {
        self.0.clear();
    }
}
