//! Records of a changelog as the entries of a store: see `penstock.state.recovery.changelog`.

use super::rows::{Rows, Taken};
use crate::refused::Refused;

const STAMP_BYTES: usize = 8;
const START_BYTES: usize = 8;
const SEQUENCE: &[u8] = &[0; 4];

/// Each value behind its record's time, big-endian; a null stays one. Refuses other than one time per value.
pub fn stamped(values: &Rows, times: &[i64]) -> Result<Taken, Refused> {
    if times.len() != values.len() {
        return Err(Refused::Value("there is not one time per value".into()));
    }
    let mut out = Taken::with_room(values.len(), values.extent().saturating_add(values.len() * STAMP_BYTES))?;
    for (row, time) in times.iter().enumerate() {
        let stamp = time.to_be_bytes();
        out.push(values.get(row).map(|value| [&stamp[..], value]));
    }
    Ok(out)
}

/// The window's start and then the key, of `key | start | sequence` each. `None`: some record has no such key, or another
/// sequence than 0.
pub fn window_keys(keys: &Rows) -> Result<Option<Taken>, Refused> {
    let mut out = Taken::with_room(keys.len(), keys.extent())?;
    for row in 0..keys.len() {
        let split = keys.get(row).and_then(|key| key.strip_suffix(SEQUENCE)).and_then(|key| {
            let start = key.len().checked_sub(START_BYTES)?;
            Some(key.split_at(start))
        });
        let Some((key, start)) = split else { return Ok(None) };
        out.push(Some([start, key]));
    }
    Ok(Some(out))
}

/// The keys of a changelog, `key | start | sequence`, of a window store's. `bytes`: the length of all of them.
pub fn logged_keys<'a>(keys: impl ExactSizeIterator<Item = &'a [u8]>, bytes: usize) -> Result<Taken, Refused> {
    let mut out = Taken::with_room(keys.len(), bytes.saturating_add(keys.len() * SEQUENCE.len()))?;
    for key in keys {
        let (start, rest) = key.split_at_checked(START_BYTES).unwrap_or((&[], key));
        out.data.extend_from_slice(rest);
        out.push(Some([start, SEQUENCE]));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stand_behind_their_times() {
        let values = Rows::of(b"-abc", &[1, 3, 3, 4, 4], Some(&[0, 1, 0, 0])).unwrap();
        let found = stamped(&values, &[1, 2, -1, 0]).unwrap();
        let expected = b"\0\0\0\0\0\0\0\x01ab\xff\xff\xff\xff\xff\xff\xff\xffc\0\0\0\0\0\0\0\0";
        assert_eq!(found, Taken { data: expected.to_vec(), ends: vec![0, 10, 10, 19, 27], nulls: vec![0, 1, 0, 0] });
        assert!(matches!(stamped(&values, &[1]), Err(Refused::Value(why)) if why.contains("time")));
    }

    #[test]
    fn keys_of_windows_begin_with_the_start() {
        let keys = Rows::of(b"k12345678\x00\x00\x00\x0012345678\0\0\0\0", &[0, 13, 25], None).unwrap();
        let found = window_keys(&keys).unwrap().unwrap();
        assert_eq!(found, Taken { data: b"12345678k12345678".to_vec(), ends: vec![0, 9, 17], nulls: vec![0, 0] });
    }

    #[test]
    fn other_keys_are_left_to_python() {
        for (data, ends, nulls) in [
            (&b"k12345678\0\0\0\x01"[..], &[0, 13][..], None),
            (b"2345678\0\0\0\0", &[0, 11], None),
            (b"\0\0\0", &[0, 3], None),
            (b"", &[0, 0], Some(&[1][..])),
        ] {
            assert_eq!(window_keys(&Rows::of(data, ends, nulls).unwrap()), Ok(None));
        }
    }
}
