//! Columns of byte strings: to and from Python's lists, taken at places, spread over partitions, and as a store keeps them.

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};

use super::buffers::{Held, large_bytes, rows_of, to_bytes};
use crate::kernels::changelog::{stamped, window_keys};
use crate::kernels::murmur::partition;
use crate::kernels::rows::{Taken, take};

/// A column as `(data, offsets: int64 bytes, nulls: one byte each, or None)`.
fn column<'py>(py: Python<'py>, data: &[u8], offsets: &[i64], nulls: Option<&[u8]>) -> PyResult<Bound<'py, PyTuple>> {
    (large_bytes(py, data)?, to_bytes(py, offsets), nulls.map(|flags| to_bytes(py, flags))).into_pyobject(py)
}

/// The rows as `column` has them; without flags where none can be null.
pub fn taken_column<'py>(py: Python<'py>, taken: &Taken, nullable: bool) -> PyResult<Bound<'py, PyTuple>> {
    column(py, &taken.data, &taken.ends, nullable.then_some(&taken.nulls))
}

/// A column of these values, each `bytes` or what has a buffer of bytes, `str` as UTF-8, or `None`.
#[pyfunction]
pub fn pack_rows<'py>(py: Python<'py>, values: &Bound<'py, PyList>) -> PyResult<Bound<'py, PyTuple>> {
    let mut data = vec![];
    let mut offsets = Vec::with_capacity(values.len() + 1);
    let mut nulls: Vec<u8> = vec![];
    offsets.push(0);
    for (row, value) in values.iter().enumerate() {
        if value.is_none() {
            nulls.resize(row, 0);
            nulls.push(1);
        } else if let Ok(text) = value.cast::<PyString>() {
            data.extend_from_slice(text.to_cow()?.as_bytes());
        } else if let Ok(bytes) = value.cast::<PyBytes>() {
            data.extend_from_slice(bytes.as_bytes());
        } else {
            data.extend(PyBuffer::<u8>::get(&value)?.to_vec(py)?);
        }
        offsets.push(data.len() as i64);
    }
    if !nulls.is_empty() {
        nulls.resize(offsets.len() - 1, 0);
    }
    column(py, &data, &offsets, (!nulls.is_empty()).then_some(&nulls))
}

/// The values as `bytes` or `None`.
#[pyfunction]
#[pyo3(signature = (data, offsets, nulls))]
pub fn list_rows<'py>(
    py: Python<'py>,
    data: Held<u8>,
    offsets: Held<i64>,
    nulls: Option<Held<u8>>,
) -> PyResult<Bound<'py, PyList>> {
    let rows = rows_of(&data, &offsets, nulls.as_ref())?;
    PyList::new(py, (0..rows.len()).map(|row| rows.get(row).map(|value| PyBytes::new(py, value))))
}

/// The column of the rows at these places. Raises `IndexError` for one that is not there.
#[pyfunction]
#[pyo3(signature = (data, offsets, nulls, places))]
pub fn take_rows<'py>(
    py: Python<'py>,
    data: Held<u8>,
    offsets: Held<i64>,
    nulls: Option<Held<u8>>,
    places: Held<i64>,
) -> PyResult<Bound<'py, PyTuple>> {
    let rows = rows_of(&data, &offsets, nulls.as_ref())?;
    let taken = py.detach(|| take(&rows, places.slice()))?;
    taken_column(py, &taken, nulls.is_some())
}

/// The column with each value behind its record's time.
#[pyfunction]
#[pyo3(signature = (data, offsets, nulls, times))]
pub fn stamp_rows<'py>(
    py: Python<'py>,
    data: Held<u8>,
    offsets: Held<i64>,
    nulls: Option<Held<u8>>,
    times: Held<i64>,
) -> PyResult<Bound<'py, PyTuple>> {
    let rows = rows_of(&data, &offsets, nulls.as_ref())?;
    let made = py.detach(|| stamped(&rows, times.slice()))?;
    taken_column(py, &made, nulls.is_some())
}

/// The keys of a window store, from those of its changelog; `None` where Python must look at them.
#[pyfunction]
#[pyo3(signature = (data, offsets, nulls))]
pub fn window_key_rows<'py>(
    py: Python<'py>,
    data: Held<u8>,
    offsets: Held<i64>,
    nulls: Option<Held<u8>>,
) -> PyResult<Option<Bound<'py, PyTuple>>> {
    let rows = rows_of(&data, &offsets, nulls.as_ref())?;
    let made = py.detach(|| window_keys(&rows))?;
    made.map(|keys| taken_column(py, &keys, false)).transpose()
}

/// The partitions of keys, int32; a null is like an empty key here, which the caller does not ask about.
#[pyfunction]
pub fn partition_rows<'py>(
    py: Python<'py>,
    data: Held<u8>,
    offsets: Held<i64>,
    partitions: i32,
) -> PyResult<Bound<'py, PyBytes>> {
    if partitions < 1 {
        return Err(PyValueError::new_err(format!("{partitions} partitions, at least 1")));
    }
    let rows = rows_of(&data, &offsets, None)?;
    let found: Vec<i32> = py.detach(|| (0..rows.len()).map(|row| partition(rows.bytes(row), partitions)).collect());
    Ok(to_bytes(py, &found))
}
