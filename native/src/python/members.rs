//! Members of distinct counts: see `kernels::members`.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use super::buffers::{Held, large_bytes, rows_of, to_bytes};
use super::tuples::{forms_of, tuple_of};
use crate::kernels::bags::each_value;
use crate::kernels::members;
use crate::kernels::tuples::{Form, Found, Scalar};

/// See `penstock_native.pyi`.
#[pyclass]
#[derive(Default)]
pub struct Members(members::Members);

#[pymethods]
impl Members {
    #[new]
    fn new() -> Self {
        Members::default()
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    #[getter]
    fn used_bytes(&self) -> usize {
        self.0.used_bytes()
    }

    #[allow(clippy::too_many_arguments)]
    fn ask<'py>(
        &mut self,
        py: Python<'py>,
        data: Held<u8>,
        offsets: Held<i64>,
        forms: &[u8],
        heads: Held<u8>,
        head_offsets: Held<i64>,
        entries: Held<i64>,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let (partials, heads) = (rows_of(&data, &offsets, None)?, rows_of(&heads, &head_offsets, None)?);
        let forms = forms_of(Some(forms))?.unwrap_or_default();
        let entries = entries.slice();
        let known = heads.len() as i64;
        if entries.len() != partials.len() || entries.iter().any(|entry| !(0..known).contains(entry)) {
            return Err(PyValueError::new_err("there is not one entry that has a head per partial"));
        }
        let members = &mut self.0;
        if py.detach(|| members.ask(&partials, &forms, &heads, entries)).is_none() {
            return Ok(None);
        }
        let (keys, ends) = self.0.asked();
        (large_bytes(py, keys)?, to_bytes(py, &ends)).into_pyobject(py).map(Some)
    }

    fn fresh<'py>(&mut self, py: Python<'py>, absent: Held<u8>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(to_bytes(py, &self.0.fresh(absent.slice())?))
    }

    fn keep(&mut self) {
        self.0.keep();
    }

    fn any_below(&self, bound: &[u8]) -> bool {
        self.0.any_below(bound)
    }

    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let (keys, ends) = self.0.keys();
        (large_bytes(py, keys)?, to_bytes(py, &ends)).into_pyobject(py)
    }

    fn logged<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let logged = self.0.logged()?;
        (large_bytes(py, &logged.data)?, to_bytes(py, &logged.ends)).into_pyobject(py)
    }

    fn clear(&mut self) {
        self.0.clear();
    }
}

/// The tuples of partials; in the place of each bag the next of `counts`.
#[pyfunction]
#[pyo3(signature = (data, offsets, forms, counts))]
pub fn read_partials<'py>(
    py: Python<'py>,
    data: Held<u8>,
    offsets: Held<i64>,
    forms: &[u8],
    counts: Option<Held<i64>>,
) -> PyResult<Option<Bound<'py, PyList>>> {
    let rows = rows_of(&data, &offsets, None)?;
    let forms = forms_of(Some(forms))?.unwrap_or_default();
    let bags = forms.iter().filter(|&&form| form == Form::Bag).count();
    let given = counts.as_ref().map(Held::slice);
    if given.is_some_and(|counts| counts.len() != bags * rows.len()) {
        return Err(PyValueError::new_err("there is not one count per bag"));
    }
    let mut counts = given.unwrap_or(&[]).iter();
    let (mut found, mut tuples) = (Found::default(), Vec::with_capacity(rows.len()));
    for row in 0..rows.len() {
        found.clear();
        let done = found.add_parts_with(rows.bytes(row), &forms, |bag| {
            if given.is_none() {
                each_value(bag, |_| ())?;
            }
            Some(Scalar::Int(*counts.next().unwrap_or(&0)))
        });
        if done.is_none() {
            return Ok(None);
        }
        if given.is_some() {
            tuples.push(tuple_of(py, &found, Some(&forms))?);
        }
    }
    PyList::new(py, tuples).map(Some)
}
