//! librdkafka as the Python client has loaded it: its functions, found by name, and the handle inside a client object.
//!
//! Nothing here is linked. The functions are looked up through the client's own extension module, so they belong to
//! the library that created the handle. A pointer from a client object is used only after two checks: it was read
//! through the kernel, which returns an error where a wrong pointer would end the process, and the library reports
//! the name that the client's settings demand.

pub mod functions;
pub mod handle;

pub use functions::{Argument, Functions, Kind, Message, text};
pub use handle::{Handle, check, functions_of};

/// A record whose timestamp is 0 carries this header; readers remove it (`penstock.state.log`).
pub const ZERO_NAME: &std::ffi::CStr = c"penstock.ts";
pub const ZERO_VALUE: &[u8] = b"0";
