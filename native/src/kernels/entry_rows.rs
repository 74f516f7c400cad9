//! Entries of an `EntryMap` for a column of keys: values are copied into one buffer, and none becomes a Python
//! object.

use super::entry_map::Entered;
use super::rows::Rows;

#[derive(Default)]
pub struct Found {
    pub data: Vec<u8>,
    /// Where each value ends, from a 0 on.
    pub ends: Vec<i64>,
    /// 1 if the key is not in the store, or unknown.
    pub absent: Vec<u8>,
    /// The places of unknown keys.
    pub unknown: Vec<i64>,
}

/// Looks up each key; skips the first `skip` bytes of each value.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::segments::WRITTEN;

    #[test]
    fn values_of_many_keys_lie_in_one_buffer() {
        let mut entered = Entered::default();
        entered.put(b"a", Some(b"12345678one"), WRITTEN);
        entered.put(b"b", None, WRITTEN);
        entered.keep(b"c", Some(b"short"));
        let keys = Rows::of(b"abxca", &[0, 1, 2, 3, 4, 5], None).unwrap();
        let found = find(&mut entered, &keys, 8);
        assert_eq!((found.data, found.ends), (b"oneone".to_vec(), vec![0, 3, 3, 3, 3, 6]));
        assert_eq!((found.absent, found.unknown), (vec![0, 1, 1, 0, 0], vec![2]));
    }

    #[test]
    fn more_keys_than_are_looked_for_together_keep_their_places() {
        let mut entered = Entered::default();
        let bytes: Vec<u8> = (0..200).collect();
        let offsets: Vec<i64> = (0..=200).collect();
        for key in bytes.iter().step_by(2) {
            entered.put(&[*key], Some(&[*key]), WRITTEN);
        }
        let found = find(&mut entered, &Rows::of(&bytes, &offsets, None).unwrap(), 0);
        assert_eq!(found.data, bytes.iter().copied().step_by(2).collect::<Vec<_>>());
        assert_eq!(found.unknown, (1..200).step_by(2).collect::<Vec<_>>());
    }
}
