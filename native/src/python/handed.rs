//! Bytes that Python reads in place: large columns are passed on without a copy.

use std::ffi::c_int;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView};

/// From this size on, bytes are passed on in place: one more object costs less than the copy.
const HANDED_MIN: usize = 1 << 14;

#[pyclass(frozen, module = "penstock_native")]
struct Handed(Vec<u8>);

#[pymethods]
impl Handed {
    /// # Safety
    /// Python's: `view` is its to fill.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let data = &slf.get().0;
        // SAFETY: by the contract; the bytes stay where they are and as they are while this object lives, which the view
        // holds, and the view is read-only.
        let done = unsafe {
            ffi::PyBuffer_FillInfo(view, slf.as_ptr(), data.as_ptr().cast_mut().cast(), data.len() as isize, 1, flags)
        };
        if done == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}

/// The bytes as `bytes`, or as a `memoryview` on what `data` held, which then is empty, with room for as many.
pub fn handed<'py>(py: Python<'py>, data: &mut Vec<u8>) -> PyResult<Bound<'py, PyAny>> {
    if data.len() < HANDED_MIN {
        return Ok(PyBytes::new(py, data).into_any());
    }
    let mut next = Vec::new();
    let _ = next.try_reserve_exact(data.len() + data.len() / 8);
    let kept = Bound::new(py, Handed(std::mem::replace(data, next)))?;
    Ok(PyMemoryView::from(kept.as_any())?.into_any())
}
