//! Work on whole columns: each kernel is a function of buffers.

use pyo3::prelude::*;

/// Adds the kernels to the module.
pub fn register(_module: &Bound<'_, PyModule>) -> PyResult<()> {
    Ok(())
}
