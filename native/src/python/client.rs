//! A Kafka client of Python's, and the handle inside it.

use std::ffi::c_void;

use pyo3::exceptions::PyRuntimeError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use crate::librdkafka::{Handle, Kind, check, functions_of};

/// The handle is behind the two words of every object (reference count, type).
const PLACE: usize = 2 * size_of::<usize>();

/// A client with its handle. Holds the object, so that the handle outlives its users, unless the client is closed.
pub struct Client {
    handle: Handle,
    object: Py<PyAny>,
}

impl Client {
    /// `object` is of the extension module at the path `library`; `version` is what the client says of its library,
    /// `client_id` what it was configured with. A `RuntimeError` says what is not as expected.
    pub fn of(object: &Bound<'_, PyAny>, kind: Kind, library: &str, version: i32, client_id: &str) -> PyResult<Self> {
        let size: usize = object.get_type().getattr("__basicsize__")?.extract()?;
        let call = functions_of(library, version).map_err(PyRuntimeError::new_err)?;
        if size < PLACE + size_of::<usize>() {
            return Err(PyRuntimeError::new_err(format!("a client object has only {size} bytes")));
        }
        // SAFETY: the object is alive and has at least `size` bytes.
        let rk = unsafe { handle_in(object) };
        check(&call, rk, kind, client_id).map_err(PyRuntimeError::new_err)?;
        Ok(Self { handle: Handle { call, rk }, object: object.clone().unbind() })
    }

    /// Whether the client still has this handle: closing it destroys the handle and takes it out of the object.
    pub fn is_open(&self, py: Python<'_>) -> bool {
        // SAFETY: the object is held, and had the handle there before; it is written with the GIL held, as here.
        unsafe { handle_in(self.object.bind(py)) == self.handle.rk }
    }

    /// The handle of an open client. A `RuntimeError` refuses one that was closed: nothing of it is left to be used.
    pub fn opened(&self, py: Python<'_>) -> PyResult<&Handle> {
        if self.is_open(py) {
            return Ok(&self.handle);
        }
        Err(PyRuntimeError::new_err("the client is closed; close what reads or writes through it first"))
    }

    /// The client refers to its callbacks, and the callbacks to users of this handle: the collector must see the whole
    /// cycle. Nothing here must be cleared: the client's own part is, and the handle serves until its user is gone.
    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.object)
    }
}

/// # Safety
/// The object has a word at `PLACE`.
unsafe fn handle_in(object: &Bound<'_, PyAny>) -> *mut c_void {
    // SAFETY: by the contract.
    unsafe { object.as_ptr().cast::<u8>().add(PLACE).cast::<*mut c_void>().read() }
}
