//! Aggregates of whole numbers by key: see `kernels::part_tally`.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use super::buffers::{Held, large_bytes, rows_of, to_bytes};
use super::entry_map::EntryMap;
use super::tally::stored_of;
use crate::kernels::part_tally::{self, Values};
use crate::kernels::parts::Part;
use crate::kernels::rows::Taken;

/// The numbers of a part by row, and a byte that is 1 where there is none.
type Numbers = (Option<Held<i64>>, Option<Held<u8>>);

/// See `penstock_native.pyi`.
#[pyclass]
pub struct PartTally(part_tally::PartTally);

fn column<'py>(py: Python<'py>, taken: &Taken) -> PyResult<Bound<'py, PyTuple>> {
    (large_bytes(py, &taken.data)?, to_bytes(py, &taken.ends)).into_pyobject(py)
}

impl PartTally {
    fn check(&self, times: &[i64]) -> PyResult<()> {
        if times.len() != self.0.reserved() {
            return Err(PyValueError::new_err("there is not one time per reserved row"));
        }
        if self.0.unbased_keys().next().is_some() {
            return Err(PyValueError::new_err("there are keys whose stored values are not known"));
        }
        Ok(())
    }
}

#[pymethods]
impl PartTally {
    #[new]
    fn new(parts: &[u8]) -> PyResult<Self> {
        let parts: Option<Vec<Part>> = parts.iter().map(|&letter| Part::of(letter)).collect();
        match parts {
            Some(parts) if !parts.is_empty() => Ok(PartTally(part_tally::PartTally::new(parts))),
            _ => Err(PyValueError::new_err("name at least one part, each by its letter: n, s, r, l or g")),
        }
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    #[getter]
    fn used_bytes(&self) -> usize {
        self.0.used_bytes()
    }

    fn reserve(
        &mut self,
        py: Python<'_>,
        data: Held<u8>,
        offsets: Held<i64>,
        starts: Option<Held<i64>>,
    ) -> PyResult<bool> {
        let rows = rows_of(&data, &offsets, None)?;
        let starts = starts.as_ref().map(Held::slice);
        if starts.is_some_and(|starts| starts.len() != rows.len()) {
            return Err(PyValueError::new_err("there is not one start per row"));
        }
        let tally = &mut self.0;
        Ok(py.detach(|| tally.reserve(&rows, starts)))
    }

    fn unbased<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let keys: Vec<_> = self.0.unbased_keys().map(|key| PyBytes::new(py, key)).collect();
        PyList::new(py, keys)
    }

    fn base_nothing(&mut self) {
        self.0.base_nothing();
    }

    fn base(&mut self, stored: &Bound<'_, PyList>) -> PyResult<()> {
        if stored.len() != self.0.unbased_keys().count() {
            return Err(PyValueError::new_err("there is not one value per new key"));
        }
        let stored: Vec<Bound<'_, PyAny>> = stored.iter().collect();
        self.0.base(stored.iter().map(stored_of)).map_err(PyValueError::new_err)
    }

    fn base_from(&mut self, py: Python<'_>, mut known: PyRefMut<'_, EntryMap>, whole: bool) -> PyResult<()> {
        let (tally, entered) = (&mut self.0, &mut known.entered);
        py.detach(|| tally.base_from(entered, whole)).map_err(PyValueError::new_err)
    }

    fn fold(&mut self, py: Python<'_>, columns: Vec<Numbers>, times: Held<i64>) -> PyResult<bool> {
        let times = times.slice();
        self.check(times)?;
        let (parts, rows) = (self.0.parts(), times.len());
        let mut values = Vec::with_capacity(columns.len());
        for (part, (numbers, nulls)) in parts.iter().zip(&columns) {
            let (numbers, nulls) = (numbers.as_ref().map(Held::slice), nulls.as_ref().map(Held::slice));
            let whole = numbers.is_none_or(|numbers| numbers.len() == rows);
            if !whole || nulls.is_some_and(|nulls| nulls.len() != rows) {
                return Err(PyValueError::new_err("there is not one value, or flag, per reserved row"));
            }
            match (part, numbers) {
                (Part::Count, _) => values.push(Values::Rows(nulls)),
                (_, Some(numbers)) => values.push(Values::Numbers(numbers, nulls)),
                (_, None) => return Err(PyValueError::new_err("only counts take rows without numbers")),
            }
        }
        if values.len() != parts.len() || columns.len() != parts.len() {
            return Err(PyValueError::new_err("there is not one column per part"));
        }
        let tally = &mut self.0;
        Ok(py.detach(|| tally.fold(&values, times)))
    }

    fn merge(&mut self, py: Python<'_>, data: Held<u8>, offsets: Held<i64>, times: Held<i64>) -> PyResult<bool> {
        let (partials, times) = (rows_of(&data, &offsets, None)?, times.slice());
        self.check(times)?;
        if partials.len() != times.len() {
            return Err(PyValueError::new_err("there is not one partial per reserved row"));
        }
        let tally = &mut self.0;
        Ok(py.detach(|| tally.merge(&partials, times)))
    }

    fn any_below(&self, bound: &[u8]) -> bool {
        self.0.any_below(bound)
    }

    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        column(py, &self.0.keys()?)
    }

    fn logged<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        column(py, &self.0.logged()?)
    }

    fn windows<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let (starts, names) = self.0.windows()?;
        (to_bytes(py, &starts), large_bytes(py, &names.data)?, to_bytes(py, &names.ends)).into_pyobject(py)
    }

    fn written<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        column(py, &self.0.written()?)
    }

    fn times<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        to_bytes(py, self.0.times())
    }

    fn columns<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, self.0.columns().iter().map(|numbers| to_bytes(py, numbers)))
    }

    fn clear(&mut self) {
        self.0.clear();
    }
}
