//! Functions of texts for whole columns: see `kernels::texts`.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use super::buffers::{Held, rows_of, to_bytes};
use super::rows::taken_column;
use crate::kernels::texts::{self, Where};

/// The number of characters of each text: int64.
#[pyfunction]
#[pyo3(signature = (data, offsets, nulls))]
pub fn text_lengths<'py>(
    py: Python<'py>,
    data: Held<u8>,
    offsets: Held<i64>,
    nulls: Option<Held<u8>>,
) -> PyResult<Bound<'py, PyBytes>> {
    let rows = rows_of(&data, &offsets, nulls.as_ref())?;
    Ok(to_bytes(py, &py.detach(|| texts::lengths(&rows))))
}

/// A byte for each text, 1 if it has `what` anywhere, at its start or at its end (`a`, `s`, `e`).
#[pyfunction]
#[pyo3(signature = (data, offsets, nulls, what, place))]
pub fn texts_found<'py>(
    py: Python<'py>,
    data: Held<u8>,
    offsets: Held<i64>,
    nulls: Option<Held<u8>>,
    what: &[u8],
    place: &str,
) -> PyResult<Bound<'py, PyBytes>> {
    let rows = rows_of(&data, &offsets, nulls.as_ref())?;
    let place = place.bytes().next().and_then(Where::of);
    let place = place.ok_or_else(|| PyValueError::new_err("a text is found at a, s or e"))?;
    Ok(to_bytes(py, &py.detach(|| texts::found(&rows, what, place))))
}

/// The texts with `new` for each `old`, as a column.
#[pyfunction]
#[pyo3(signature = (data, offsets, nulls, old, new))]
pub fn texts_replaced<'py>(
    py: Python<'py>,
    data: Held<u8>,
    offsets: Held<i64>,
    nulls: Option<Held<u8>>,
    old: &[u8],
    new: &[u8],
) -> PyResult<Bound<'py, PyTuple>> {
    let rows = rows_of(&data, &offsets, nulls.as_ref())?;
    let taken = py.detach(|| texts::replaced(&rows, old, new))?;
    let nullable = taken.nulls.contains(&1);
    taken_column(py, &taken, nullable)
}

/// The part at a place between the separators, as a column; null where there is none.
#[pyfunction]
#[pyo3(signature = (data, offsets, nulls, separator, place))]
pub fn texts_split<'py>(
    py: Python<'py>,
    data: Held<u8>,
    offsets: Held<i64>,
    nulls: Option<Held<u8>>,
    separator: &[u8],
    place: usize,
) -> PyResult<Bound<'py, PyTuple>> {
    let rows = rows_of(&data, &offsets, nulls.as_ref())?;
    let taken = py.detach(|| texts::split_part(&rows, separator, place))?;
    let nullable = taken.nulls.contains(&1);
    taken_column(py, &taken, nullable)
}
