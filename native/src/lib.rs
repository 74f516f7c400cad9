//! The module `penstock_native`: what Penstock does per record, without Python objects and without the GIL.
//!
//! Optional. Everything here has a twin in Python that gives the same answers; `penstock_native.pyi` holds the
//! contracts. Only `python` depends on Python: without the feature of this name it is left out, so that the units can
//! be tested without an interpreter.

// Only Python calls these.
#![cfg_attr(not(feature = "python"), allow(dead_code, unused_imports))]

mod kernels;
mod librdkafka;
#[cfg(feature = "python")]
mod python;
mod reading;
mod refused;
mod writing;
