//! Python's buffers as slices that can be read without the GIL, and slices as Python's `bytes`.

use pyo3::buffer::{Element, PyBuffer};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::kernels::rows::Rows;

/// A contiguous buffer of `T`, held for as long as this value lives.
///
/// The caller promises that nobody writes to a buffer during the call: columns are immutable.
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

/// The column in these buffers. Raises `ValueError` where they do not fit one another.
pub fn rows_of<'a>(data: &'a Held<u8>, offsets: &'a Held<i64>, nulls: Option<&'a Held<u8>>) -> PyResult<Rows<'a>> {
    Ok(Rows::of(data.slice(), offsets.slice(), nulls.map(Held::slice))?)
}

/// The bytes as `bytes`, or `MemoryError`.
pub fn large_bytes<'py>(py: Python<'py>, data: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    // SAFETY: Python copies that many bytes from there; what it returns is a new `bytes`, or null with an exception set.
    unsafe {
        let made = ffi::PyBytes_FromStringAndSize(data.as_ptr().cast(), data.len() as isize);
        Ok(Bound::from_owned_ptr_or_err(py, made)?.cast_into_unchecked())
    }
}

/// Keys that are `bytes`.
pub fn bytes_of<'a>(listed: &'a [Bound<'_, PyAny>]) -> PyResult<Vec<&'a [u8]>> {
    let bytes = listed.iter().map(|name| name.cast::<PyBytes>().map(|bytes| bytes.as_bytes()));
    bytes.collect::<Result<_, _>>().map_err(|_| PyTypeError::new_err("keys are bytes"))
}

/// The numbers as `bytes`, in the machine's own order, for `numpy.frombuffer`.
pub fn to_bytes<'py, T: bytemuck::NoUninit>(py: Python<'py>, numbers: &[T]) -> Bound<'py, PyBytes> {
    PyBytes::new(py, bytemuck::cast_slice(numbers))
}
