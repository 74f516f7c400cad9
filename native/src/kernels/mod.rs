//! Kernels on whole columns, independent of Python: each is a function of slices, or a structure of its own.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::RandomState;

pub mod avro;
pub mod bags;
pub mod changelog;
pub mod distinct;
pub mod entry_map;
pub mod entry_rows;
pub mod group;
pub mod interner;
pub mod json;
pub mod key_index;
pub mod key_table;
pub mod latest;
pub mod lists;
pub mod members;
pub mod murmur;
pub mod panes;
pub mod part_tally;
pub mod parts;
pub mod patterns;
pub mod rows;
pub mod segments;
pub mod sessions;
pub mod tally;
pub mod texts;
pub mod tuples;
pub mod words;

/// The hash of a key's bytes.
fn hash_of(hasher: &RandomState, name: &[u8]) -> u64 {
    let mut hasher = hasher.build_hasher();
    hasher.write(name);
    hasher.finish()
}
