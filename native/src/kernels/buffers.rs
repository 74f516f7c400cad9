//! Python's buffers as slices that can be read without the GIL, and slices as Python's `bytes`.

use pyo3::buffer::{Element, PyBuffer};
use pyo3::exceptions::{PyMemoryError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// A contiguous buffer of `T`, held for as long as this value lives.
///
/// Whoever passes a buffer promises that nobody writes to it during the call: columns are immutable.
pub struct Held<T: Element>(PyBuffer<T>);

impl<T: Element> Held<T> {
    pub fn slice(&self) -> &[T] {
        if self.0.item_count() == 0 {
            return &[];
        }
        // SAFETY: the buffer is held and C-contiguous (`FromPyObject` checks it), of `item_count` elements of the size
        // and alignment of `T` (PyO3 checks both), and its owner has promised not to write to it meanwhile.
        unsafe { std::slice::from_raw_parts(self.0.buf_ptr().cast(), self.0.item_count()) }
    }
}

impl<'a, 'py, T: Element> FromPyObject<'a, 'py> for Held<T> {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let buffer = PyBuffer::<T>::get(&object)?;
        if !buffer.is_c_contiguous() {
            return Err(PyValueError::new_err("the buffer is not contiguous; pass numpy.ascontiguousarray of it"));
        }
        Ok(Held(buffer))
    }
}

/// A column of byte strings as it comes from Python.
pub struct Rows<'a> {
    pub data: &'a [u8],
    offsets: &'a [i64],
    nulls: Option<&'a [u8]>,
}

impl<'a> Rows<'a> {
    /// Raises `ValueError` where the offsets do not rise within the data, so that no later step has to look.
    pub fn of(data: &'a Held<u8>, offsets: &'a Held<i64>, nulls: &'a Option<Held<u8>>) -> PyResult<Self> {
        let rows = Rows { data: data.slice(), offsets: offsets.slice(), nulls: nulls.as_ref().map(Held::slice) };
        let rising = rows.offsets.windows(2).fold(true, |so_far, pair| so_far & (pair[0] <= pair[1]));
        let within = match (rows.offsets.first(), rows.offsets.last()) {
            (Some(&first), Some(&last)) => first >= 0 && last <= rows.data.len() as i64,
            _ => false,
        };
        if !(rising && within) {
            return Err(PyValueError::new_err("the offsets do not rise from 0 on within the data"));
        }
        if rows.nulls.is_some_and(|nulls| nulls.len() != rows.len()) {
            return Err(PyValueError::new_err("there is not one null flag per row"));
        }
        Ok(rows)
    }

    pub fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    /// How many bytes lie between the first row's begin and the last one's end: a slice has less of them than its data.
    pub fn extent(&self) -> usize {
        let (first, last) = (self.offsets[0], self.offsets[self.len()]);
        (last - first) as usize
    }

    /// How many bytes the longest row has.
    pub fn longest(&self) -> usize {
        self.offsets.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0) as usize
    }

    #[inline(always)]
    pub fn is_null(&self, row: usize) -> bool {
        self.nulls.is_some_and(|nulls| nulls[row] != 0)
    }

    /// Where the row's bytes begin and end; the offsets have been checked.
    #[inline(always)]
    pub fn span(&self, row: usize) -> (usize, usize) {
        (self.offsets[row] as usize, self.offsets[row + 1] as usize)
    }

    /// A null has none.
    #[inline(always)]
    pub fn bytes(&self, row: usize) -> &'a [u8] {
        let (start, end) = self.span(row);
        &self.data[start..end]
    }

    /// `None` for a null.
    #[inline(always)]
    pub fn get(&self, row: usize) -> Option<&'a [u8]> {
        if self.is_null(row) { None } else { Some(self.bytes(row)) }
    }
}

/// `MemoryError`, where Rust would end the process: for what is as large as a number from outside says.
pub fn no_room<E>(_: E) -> PyErr {
    PyMemoryError::new_err(())
}

/// An empty vector with room for so many.
pub fn room_for<T>(count: usize) -> PyResult<Vec<T>> {
    let mut empty = vec![];
    empty.try_reserve_exact(count).map_err(no_room)?;
    Ok(empty)
}

/// So many of the value.
pub fn filled<T: Clone>(value: T, count: usize) -> PyResult<Vec<T>> {
    let mut column = room_for(count)?;
    column.resize(count, value);
    Ok(column)
}

/// The bytes as `bytes`, or `MemoryError`.
pub fn large_bytes<'py>(py: Python<'py>, data: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    // SAFETY: Python copies that many bytes from there; what it returns is a new `bytes`, or null with an exception set.
    unsafe {
        let made = ffi::PyBytes_FromStringAndSize(data.as_ptr().cast(), data.len() as isize);
        Ok(Bound::from_owned_ptr_or_err(py, made)?.cast_into_unchecked())
    }
}

/// The numbers as `bytes`, in the machine's own order, for `numpy.frombuffer`.
pub fn to_bytes<'py, T: bytemuck::NoUninit>(py: Python<'py>, numbers: &[T]) -> Bound<'py, PyBytes> {
    PyBytes::new(py, bytemuck::cast_slice(numbers))
}
