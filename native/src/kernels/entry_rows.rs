//! Entries of an `EntryMap` for a column of keys: values go into one buffer, and none becomes a Python object.

use super::buffers::Rows;
use super::entry_map::Entered;

#[derive(Default)]
pub struct Found {
    pub data: Vec<u8>,
    /// Where each value ends, from a 0 on.
    pub ends: Vec<i64>,
    /// 1 where the key is not in the store, or nothing is known of it.
    pub absent: Vec<u8>,
    /// The places of keys of which nothing is known.
    pub unknown: Vec<i64>,
}

/// Looks for each key; of each value the first `skip` bytes are left out.
pub fn find(entered: &mut Entered, keys: &Rows, skip: usize) -> Found {
    let rows = keys.len();
    let mut found = Found { absent: vec![0; rows], ..Found::default() };
    found.ends.reserve(rows + 1);
    found.ends.push(0);
    entered.each_row(keys, |entered, row, hash| {
        match entered.find_hashed(hash, keys.bytes(row)) {
            None => {
                found.unknown.push(row as i64);
                found.absent[row] = 1;
            }
            Some(place) => {
                entered.mark_used(place);
                match entered.log.value(place) {
                    None => found.absent[row] = 1,
                    Some(value) => found.data.extend_from_slice(value.get(skip..).unwrap_or(&[])),
                }
            }
        }
        found.ends.push(found.data.len() as i64);
    });
    found
}
