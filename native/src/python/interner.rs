//! Dictionary coding with Python objects: see `kernels::interner`.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};

use super::buffers::{Held, rows_of, to_bytes};
use crate::kernels::interner::{Interned, check_rows};

/// The batch's distinct values in the order of their codes, as `str` or `bytes`. Raises `UnicodeDecodeError` where they
/// must be `str` and one is not UTF-8; the interner is emptied then.
pub fn values_of<'py>(py: Python<'py>, interned: &mut Interned<Py<PyAny>>, text: bool) -> PyResult<Bound<'py, PyList>> {
    let make = |bytes: &[u8]| match text {
        true => PyString::from_bytes(py, bytes).map(|text| text.into_any().unbind()),
        false => Ok(PyBytes::new(py, bytes).into_any().unbind()),
    };
    let values = interned.values(make)?;
    PyList::new(py, values.map(|value| value.map(|object| object.clone_ref(py))))
}

/// Codes columns of byte strings and remembers the values.
#[pyclass(module = "penstock_native")]
pub struct Interner {
    interned: Interned<Py<PyAny>>,
    text: bool,
}

#[pymethods]
impl Interner {
    #[new]
    fn new(bytes_max: usize, text: bool) -> Self {
        Interner { interned: Interned::new(bytes_max), text }
    }

    /// `(codes: int32 bytes, values)`.
    fn encode<'py>(
        &mut self,
        py: Python<'py>,
        data: Held<u8>,
        offsets: Held<i64>,
        nulls: Option<Held<u8>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let rows = rows_of(&data, &offsets, nulls.as_ref())?;
        check_rows(rows.len())?;
        self.interned.begin_batch();
        let coded = &mut self.interned.codes;
        let codes = py.detach(|| coded.encode(&rows));
        let values = values_of(py, &mut self.interned, self.text)?;
        (to_bytes(py, &codes), values).into_pyobject(py)
    }
}
