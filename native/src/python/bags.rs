//! Distinct values of partial aggregates: see `kernels::bags`.

use pyo3::exceptions::{PyMemoryError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use super::buffers::{Held, large_bytes, rows_of};
use super::rows::taken_column;
use super::tuples::{forms_of, put_parts};
use crate::kernels::bags;
use crate::kernels::rows::Taken;
use crate::kernels::tuples::put_framed;

const USUAL_BYTES: usize = 128;

/// See `penstock_native.pyi`.
#[pyclass]
#[derive(Default)]
pub struct Bags(bags::Bags);

/// Refuses groups other than one of at least 0 per value.
fn check_groups(groups: &[i64], values: usize) -> PyResult<()> {
    if groups.len() != values || groups.iter().any(|&group| !(0..1 << 40).contains(&group)) {
        return Err(PyValueError::new_err("there is not one group, of at least 0, per value"));
    }
    Ok(())
}

#[pymethods]
impl Bags {
    #[new]
    fn new() -> Self {
        Bags::default()
    }

    fn __bool__(&self) -> bool {
        !self.0.is_empty()
    }

    fn has_room(&self, bytes: usize, numbers: usize) -> bool {
        self.0.has_room(bytes) && self.0.has_room_for_numbers(numbers)
    }

    fn add_numbers(&mut self, py: Python<'_>, count: u16, groups: Held<i64>, numbers: Held<i64>) -> PyResult<()> {
        let (groups, numbers) = (groups.slice(), numbers.slice());
        check_groups(groups, numbers.len())?;
        let bags = &mut self.0;
        py.detach(|| bags.add_numbers(count, groups, numbers));
        Ok(())
    }

    fn add_coded(
        &mut self,
        py: Python<'_>,
        count: u16,
        groups: Held<i64>,
        codes: Held<i64>,
        data: Held<u8>,
        offsets: Held<i64>,
    ) -> PyResult<()> {
        let values = rows_of(&data, &offsets, None)?;
        let (groups, codes) = (groups.slice(), codes.slice());
        check_groups(groups, codes.len())?;
        let known = values.len() as i64;
        if codes.iter().any(|code| !(0..known).contains(code)) {
            return Err(PyValueError::new_err("there is a code that no value has"));
        }
        let bags = &mut self.0;
        py.detach(|| bags.add_coded(count, groups, codes, &values));
        Ok(())
    }

    fn add_pairs(&mut self, count: u16, group: i64, pairs: &Bound<'_, PyList>) -> PyResult<()> {
        check_groups(&[group], 1)?;
        for pair in pairs.iter() {
            let (value, times): (Bound<'_, PyBytes>, i64) = pair.extract()?;
            if !self.0.has_room(value.as_bytes().len()) {
                return Err(PyMemoryError::new_err(()));
            }
            self.0.add(count, group, value.as_bytes(), times);
        }
        Ok(())
    }

    fn written<'py>(
        &mut self,
        py: Python<'py>,
        partials: &Bound<'py, PyList>,
        groups: Held<i64>,
        forms: &[u8],
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        check_groups(groups.slice(), partials.len())?;
        let forms = forms_of(Some(forms))?.unwrap_or_default();
        self.0.sort();
        let mut all = Taken::with_room(partials.len(), partials.len().saturating_mul(USUAL_BYTES))?;
        for (partial, &group) in partials.iter().zip(groups.slice()) {
            let mut count = 0;
            let done = put_parts(&mut all.data, &partial, &forms, |out| {
                count += 1;
                put_framed(out, |inner| self.0.put(inner, group, count - 1))
            });
            if done.is_none() {
                return Ok(None);
            }
            all.ends.push(all.data.len() as i64);
        }
        taken_column(py, &all, false).map(Some)
    }

    fn pairs<'py>(&mut self, py: Python<'py>, group: i64, count: u16) -> PyResult<Bound<'py, PyList>> {
        check_groups(&[group], 1)?;
        self.0.sort();
        let pairs: Vec<_> = self
            .0
            .pairs(group, count)
            .map(|(value, times)| Ok((large_bytes(py, value)?, times)))
            .collect::<PyResult<_>>()?;
        PyList::new(py, pairs)
    }
}
