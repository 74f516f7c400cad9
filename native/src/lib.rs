//! The module `penstock_native`: what Penstock does per record, without Python objects and without the GIL.
//!
//! Optional. Everything here has a twin in Python that gives the same answers; `penstock_native.pyi` holds the contracts.

use pyo3::prelude::*;

mod handed;
mod kernels;
mod librdkafka;
mod reader;
mod writer;

/// Changes with every change of a signature: a module that was built from other sources is not used.
const INTERFACE: u32 = 7;

#[pymodule]
fn penstock_native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("INTERFACE", INTERFACE)?;
    module.add_class::<reader::Reader>()?;
    module.add_class::<writer::Writer>()?;
    kernels::register(module)
}
