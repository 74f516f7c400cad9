//! Groups of rows: see `kernels::group`.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use super::buffers::{Held, to_bytes};
use crate::kernels::group::{check_numbers, folded, grouped, sums};
use crate::kernels::interner::check_rows;

/// Codes as numpy holds them: of a dictionary, or worked out from several.
#[derive(FromPyObject)]
pub enum Codes {
    Narrow(Held<i32>),
    Wide(Held<i64>),
}

/// The groups of codes from 0 to `bound - 1`, all int64: `(number of each row's group, code of each group, its first row)`.
#[pyfunction]
pub fn group_rows<'py>(py: Python<'py>, codes: Codes, bound: usize) -> PyResult<Bound<'py, PyTuple>> {
    let groups = match &codes {
        Codes::Narrow(codes) => {
            let codes = codes.slice();
            check_rows(codes.len())?;
            py.detach(|| grouped(codes.iter().map(|&code| i64::from(code)), bound))
        }
        Codes::Wide(codes) => {
            let codes = codes.slice();
            check_rows(codes.len())?;
            py.detach(|| grouped(codes.iter().copied(), bound))
        }
    }?;
    (to_bytes(py, &groups.numbers), to_bytes(py, &groups.codes), to_bytes(py, &groups.firsts)).into_pyobject(py)
}

/// int64: the highest value of each group, or with `running` of each row's group up to that row.
#[pyfunction]
pub fn highest_rows<'py>(
    py: Python<'py>,
    numbers: Held<i64>,
    count: usize,
    values: Held<i64>,
    running: bool,
) -> PyResult<Bound<'py, PyBytes>> {
    let (numbers, values) = (numbers.slice(), values.slice());
    check_numbers(numbers, count, values.len())?;
    let found = py.detach(|| match running {
        true => folded::<true>(numbers, values, count, i64::MIN, i64::max),
        false => folded::<false>(numbers, values, count, i64::MIN, i64::max),
    })?;
    Ok(to_bytes(py, &found))
}

/// int64: how many rows each row's group has up to that row, itself included.
#[pyfunction]
pub fn count_rows_so_far<'py>(py: Python<'py>, numbers: Held<i64>, count: usize) -> PyResult<Bound<'py, PyBytes>> {
    let numbers = numbers.slice();
    check_numbers(numbers, count, numbers.len())?;
    let found = py.detach(|| folded::<true>(numbers, numbers, count, 0, |so_far, _| so_far + 1))?;
    Ok(to_bytes(py, &found))
}

/// int64: the sum of each group's values; `None` where one is out of int64's range.
#[pyfunction]
pub fn sum_rows<'py>(
    py: Python<'py>,
    numbers: Held<i64>,
    count: usize,
    values: Held<i64>,
) -> PyResult<Option<Bound<'py, PyBytes>>> {
    let (numbers, values) = (numbers.slice(), values.slice());
    check_numbers(numbers, count, values.len())?;
    let sums = py.detach(|| sums(numbers, values, count))?;
    Ok(sums.map(|sums| to_bytes(py, &sums)))
}
