//! JSON straight into columns: only the needed fields of each record are read, and none becomes a Python object.
//!
//! The promise is one-sided. If a record's status is certain, its values are those of the type's
//! `msgspec.json.Decoder`; all other records are *unsure* and left to that decoder, which then returns the value or
//! the error.

pub mod ahead;
pub mod form;
mod lexer;
pub mod projector;
pub mod record;
mod scan;
pub mod writing;
