//! Columns of byte strings and of numbers as `Writer.send` takes them.

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use crate::writing::{EMPTY, Place};

/// A run of byte strings: `(start, length)` of each, null for none, and what keeps them alive.
pub struct Strings<'py> {
    pub places: Vec<Place>,
    _objects: Vec<Bound<'py, PyAny>>,
    _data: Option<PyBuffer<u8>>,
}

impl<'py> Strings<'py> {
    /// Of a list of `bytes | None`, of a column `(data, offsets, nulls | None)`, or of a coded one `(codes, values)`, whose
    /// values are a list.
    pub fn of(column: &Bound<'py, PyAny>, start: usize, stop: usize) -> PyResult<Self> {
        match column.cast::<PyTuple>() {
            Ok(parts) if parts.len() == 3 => Self::of_column(parts, start, stop),
            Ok(parts) if parts.len() == 2 => Self::of_coded(parts, start, stop),
            _ => Self::of_list(column.cast::<PyList>()?, start, stop),
        }
    }

    fn of_list(list: &Bound<'py, PyList>, start: usize, stop: usize) -> PyResult<Self> {
        let mut places = Vec::with_capacity(stop - start);
        let mut objects = Vec::with_capacity(stop - start);
        for i in start..stop {
            let item = list.get_item(i)?;
            if item.is_none() {
                places.push((std::ptr::null(), 0));
            } else {
                let bytes = item.cast::<PyBytes>()?.as_bytes();
                places.push((bytes.as_ptr(), bytes.len()));
                // Kept: another thread may change the list meanwhile.
                objects.push(item);
            }
        }
        Ok(Self { places, _objects: objects, _data: None })
    }

    fn of_coded(parts: &Bound<'py, PyTuple>, start: usize, stop: usize) -> PyResult<Self> {
        let codes = numbers::<i32>(&parts.get_item(0)?, start, stop)?;
        let values = parts.get_item(1)?;
        let values = values.cast::<PyList>()?;
        let distinct = Self::of_list(values, 0, values.len())?;
        let place = |&code: &i32| {
            let found = usize::try_from(code).ok().and_then(|c| distinct.places.get(c)).copied();
            found.ok_or_else(|| PyValueError::new_err(format!("code {code} of a column has no value")))
        };
        let places = codes.iter().map(place).collect::<PyResult<_>>()?;
        Ok(Self { places, _objects: distinct._objects, _data: None })
    }

    fn of_column(parts: &Bound<'py, PyTuple>, start: usize, stop: usize) -> PyResult<Self> {
        let data = PyBuffer::<u8>::get(&parts.get_item(0)?)?;
        let ends = numbers::<i64>(&parts.get_item(1)?, start, stop + 1)?;
        let nulls = parts.get_item(2)?;
        let nulls = if nulls.is_none() { None } else { Some(numbers::<u8>(&nulls, start, stop)?) };
        if !data.is_c_contiguous() {
            return Err(PyValueError::new_err("the data of a column must be one run of bytes"));
        }
        let (first, len) = (data.buf_ptr().cast::<u8>().cast_const(), data.len_bytes() as i64);
        let mut places = Vec::with_capacity(stop - start);
        for (i, pair) in ends.windows(2).enumerate() {
            if nulls.as_ref().is_some_and(|n| n[i] != 0) {
                places.push((std::ptr::null(), 0));
                continue;
            }
            if pair[0] < 0 || pair[1] < pair[0] || pair[1] > len {
                return Err(PyValueError::new_err(format!("place {i} of a column lies outside of its data")));
            }
            if pair[1] == pair[0] {
                places.push((EMPTY, 0));
            } else {
                // SAFETY: inside the buffer, as was just seen.
                places.push((unsafe { first.add(pair[0] as usize) }, (pair[1] - pair[0]) as usize));
            }
        }
        Ok(Self { places, _objects: Vec::new(), _data: Some(data) })
    }
}

/// The numbers `[start, stop)` of a buffer or a list.
pub fn numbers<T>(column: &Bound<'_, PyAny>, start: usize, stop: usize) -> PyResult<Vec<T>>
where
    T: pyo3::buffer::Element + for<'a, 'b> FromPyObject<'a, 'b, Error = PyErr>,
{
    if let Ok(list) = column.cast::<PyList>() {
        return (start..stop).map(|i| list.get_item(i)?.extract()).collect();
    }
    let buffer = PyBuffer::<T>::get(column)?;
    let cells = buffer.as_slice_ptr().ok_or_else(|| PyValueError::new_err("a column must be one run of numbers"))?;
    // SAFETY: the buffer is held and the GIL too; writing into an array without it breaks numpy's rules.
    let cells = unsafe { cells.as_ref() };
    let cells = cells.get(start..stop).ok_or_else(|| PyValueError::new_err("a column is too short"))?;
    Ok(cells.to_vec())
}
