//! JSON straight into columns: of each record only the needed fields are made, and none as a Python object.
//!
//! The promise is one-sided. What a record's status calls certain is what `msgspec.json.Decoder` of the type gives, value
//! for value; all else is *unsure* and left to that decoder, which then gives the value or the error.

pub mod form;
mod lexer;
pub mod projector;
pub mod record;
mod scan;
pub mod writing;
