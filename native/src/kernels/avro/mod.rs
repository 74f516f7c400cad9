//! Avro's binary encoding straight into columns, and columns into it, for flat records: numbers, flags, texts, bytes and
//! enums, each alone or in a union with null.
//!
//! The promise is that of `kernels::json`: if a record's status is certain, its values are those of the row decoder; all
//! others are *unsure* and left to it.

pub mod reading;
pub mod writing;
