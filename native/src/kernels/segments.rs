//! A log of segments in memory. An entry is a header of 12 bytes, its key and its value.

use std::collections::VecDeque;

pub const HEADER: usize = 12;
const SEGMENT_BYTES: usize = 1 << 20;
const FIRST_SEGMENT_BYTES: usize = 4 << 10;
pub const WRITTEN: u32 = 1 << 31;
pub const USED: u32 = 1 << 30;
pub const DEAD: u32 = 1 << 29;
pub const KEY_LENGTH: u32 = DEAD - 1;
/// In place of the length of a value: the key is not in the store.
pub const ABSENT: u32 = u32::MAX;
/// The place of an entry: the number of its segment, and the offset in it.
pub type Place = u64;

/// Header: the entry's whole length, flags and the key's length, the value's length or `ABSENT`.
pub(super) struct Header {
    pub total: usize,
    pub flags: u32,
    pub key: usize,
    pub value: u32,
}

#[inline(always)]
fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[inline(always)]
pub(super) fn header(segment: &[u8], at: usize) -> Header {
    let word = number(segment, at + 4);
    Header {
        total: number(segment, at) as usize,
        flags: word & !KEY_LENGTH,
        key: (word & KEY_LENGTH) as usize,
        value: number(segment, at + 8),
    }
}

/// The first bytes of a key, as a number: of two keys the lower one never has the higher number.
pub(super) fn head_of(key: &[u8]) -> u64 {
    let mut head = [0; 8];
    let some = key.len().min(8);
    head[..some].copy_from_slice(&key[..some]);
    u64::from_be_bytes(head)
}

struct Segment {
    data: Vec<u8>,
    /// No entry's key has a lower head; none: all entries are dead.
    lowest: Option<u64>,
}

#[derive(Default)]
pub struct Log {
    segments: VecDeque<Segment>,
    /// The number of the first segment.
    first: u64,
    pub(super) bytes: usize,
}

impl Log {
    #[inline(always)]
    pub(super) fn at(&self, place: Place) -> (&[u8], usize) {
        (&self.segments[((place >> 32) - self.first) as usize].data, place as u32 as usize)
    }

    #[inline(always)]
    fn at_mut(&mut self, place: Place) -> (&mut [u8], usize) {
        (&mut self.segments[((place >> 32) - self.first) as usize].data, place as u32 as usize)
    }

    pub(super) fn segments(&self) -> usize {
        self.segments.len()
    }

    /// Takes the oldest segment, and its number.
    pub(super) fn pop_oldest(&mut self) -> Option<(u64, Vec<u8>)> {
        let oldest = self.segments.pop_front()?.data;
        self.bytes -= oldest.capacity();
        self.first += 1;
        Some((self.first - 1, oldest))
    }

    /// Whether the entry's segment is still there.
    pub(super) fn has(&self, place: Place) -> bool {
        place >> 32 >= self.first && !self.segments[((place >> 32) - self.first) as usize].data.is_empty()
    }

    /// The places with a key below `bound` that are not dead. The caller makes them so. Looks only into segments that may
    /// have such keys.
    pub(super) fn below(&mut self, bound: &[u8]) -> Vec<Place> {
        let (mut found, head) = (vec![], head_of(bound));
        for (i, segment) in self.segments.iter_mut().enumerate() {
            if segment.lowest.is_none_or(|lowest| lowest > head) {
                continue;
            }
            segment.lowest = None;
            for (at, flags) in (Entries { segment: &segment.data, at: 0 }) {
                if flags & DEAD != 0 {
                    continue;
                }
                let key = &segment.data[at + HEADER..at + HEADER + header(&segment.data, at).key];
                if key < bound {
                    found.push((self.first + i as u64) << 32 | at as u64);
                } else {
                    segment.lowest = Some(head_of(key).min(segment.lowest.unwrap_or(u64::MAX)));
                }
            }
        }
        found
    }

    /// Frees the segments of which all entries are known to be dead. Afterwards `has` tells which places are left.
    pub(super) fn free_dead(&mut self) {
        for segment in self.segments.iter_mut().filter(|segment| segment.lowest.is_none()) {
            self.bytes -= segment.data.capacity();
            segment.data = vec![];
        }
        while self.segments.front().is_some_and(|segment| segment.data.is_empty()) {
            self.pop_oldest();
        }
    }

    pub(super) fn key(&self, place: Place) -> &[u8] {
        let (segment, at) = self.at(place);
        &segment[at + HEADER..at + HEADER + header(segment, at).key]
    }

    pub fn value(&self, place: Place) -> Option<&[u8]> {
        let (segment, at) = self.at(place);
        let head = header(segment, at);
        let start = at + HEADER + head.key;
        (head.value != ABSENT).then(|| &segment[start..start + head.value as usize])
    }

    pub(super) fn flags(&self, place: Place) -> u32 {
        let (segment, at) = self.at(place);
        number(segment, at + 4) & !KEY_LENGTH
    }

    pub(super) fn set_flags(&mut self, place: Place, flags: u32) {
        let (segment, at) = self.at_mut(place);
        let word = number(segment, at + 4) & KEY_LENGTH | flags;
        segment[at + 4..at + 8].copy_from_slice(&word.to_le_bytes());
    }

    pub(super) fn append(&mut self, key: &[u8], value: Option<&[u8]>, flags: u32) -> Place {
        let room = value.map_or(0, <[u8]>::len);
        let total = HEADER + key.len() + room;
        let full = self.segments.back().is_none_or(|s| s.data.len() + total > s.data.capacity());
        if full {
            let size = (self.bytes / 4).clamp(FIRST_SEGMENT_BYTES, SEGMENT_BYTES).max(total);
            let data = Vec::with_capacity(size);
            self.bytes += data.capacity();
            self.segments.push_back(Segment { data, lowest: None });
        }
        let number = self.first + self.segments.len() as u64 - 1;
        let last = self.segments.back_mut().expect("one was pushed when there was none");
        last.lowest = Some(head_of(key).min(last.lowest.unwrap_or(u64::MAX)));
        let segment = &mut last.data;
        let at = segment.len();
        segment.extend_from_slice(&(total as u32).to_le_bytes());
        segment.extend_from_slice(&(key.len() as u32 | flags).to_le_bytes());
        segment.extend_from_slice(&value.map_or(ABSENT, |v| v.len() as u32).to_le_bytes());
        segment.extend_from_slice(key);
        segment.extend_from_slice(value.unwrap_or(&[]));
        number << 32 | at as u64
    }

    /// Writes the value into the entry's own place, if it fits there.
    pub(super) fn replace(&mut self, place: Place, value: Option<&[u8]>, flags: u32) -> bool {
        let (segment, at) = self.at_mut(place);
        let head = header(segment, at);
        let start = at + HEADER + head.key;
        if value.is_some_and(|v| v.len() > head.total - HEADER - head.key) {
            return false;
        }
        segment[at + 4..at + 8].copy_from_slice(&(head.key as u32 | flags).to_le_bytes());
        segment[at + 8..at + 12].copy_from_slice(&value.map_or(ABSENT, |v| v.len() as u32).to_le_bytes());
        if let Some(value) = value {
            segment[start..start + value.len()].copy_from_slice(value);
        }
        true
    }

    #[cfg(test)]
    pub(super) fn places(&self) -> impl Iterator<Item = (Place, u32)> + '_ {
        self.segments.iter().enumerate().flat_map(move |(i, segment)| {
            let number = self.first + i as u64;
            Entries { segment: &segment.data, at: 0 }.map(move |(at, flags)| (number << 32 | at as u64, flags))
        })
    }
}

/// The entries of a segment from `at` on: the place of each, and its flags.
pub(super) struct Entries<'a> {
    pub segment: &'a [u8],
    pub at: usize,
}

impl Iterator for Entries<'_> {
    type Item = (usize, u32);

    fn next(&mut self) -> Option<(usize, u32)> {
        if self.at >= self.segment.len() {
            return None;
        }
        let (at, head) = (self.at, header(self.segment, self.at));
        self.at += head.total;
        Some((at, head.flags))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_read_where_it_was_appended() {
        let mut log = Log::default();
        let places: Vec<Place> =
            [(&b"k"[..], Some(&b"value"[..]), WRITTEN), (b"", Some(b""), USED), (b"gone", None, 0)]
                .into_iter()
                .map(|(key, value, flags)| log.append(key, value, flags))
                .collect();
        assert_eq!(places.iter().map(|&p| log.key(p)).collect::<Vec<_>>(), [&b"k"[..], b"", b"gone"]);
        assert_eq!(places.iter().map(|&p| log.value(p)).collect::<Vec<_>>(), [Some(&b"value"[..]), Some(b""), None]);
        assert_eq!(log.places().collect::<Vec<_>>(), [(places[0], WRITTEN), (places[1], USED), (places[2], 0)]);
    }

    #[test]
    fn a_value_is_replaced_where_it_fits_and_nothing_else_changes() {
        let mut log = Log::default();
        let (first, second) = (log.append(b"a", Some(b"12345"), 0), log.append(b"b", Some(b"x"), 0));
        assert!(log.replace(first, Some(b"123"), WRITTEN));
        assert_eq!((log.value(first), log.flags(first)), (Some(&b"123"[..]), WRITTEN));
        assert!(log.replace(first, None, 0));
        assert_eq!(log.value(first), None);
        assert!(log.replace(first, Some(b"54321"), USED), "the room of the first value stays");
        assert!(!log.replace(first, Some(b"123456"), WRITTEN));
        assert_eq!((log.value(first), log.flags(first)), (Some(&b"54321"[..]), USED));
        log.set_flags(second, DEAD);
        assert_eq!((log.key(second), log.value(second), log.flags(second)), (&b"b"[..], Some(&b"x"[..]), DEAD));
    }

    #[test]
    fn what_is_below_a_bound_is_found_and_freed() {
        let mut log = Log::default();
        let key = |i: u64| [&i.to_be_bytes()[..], b"behind"].concat();
        let places: Vec<Place> = (0..2_000).map(|i| log.append(&key(i), Some(&[1; 50]), WRITTEN)).collect();
        let high = log.append(&[0xff; 9], None, 0);
        log.set_flags(places[3], DEAD);
        let before = log.bytes;
        let found = log.below(&key(1_000));
        assert_eq!(found, [&places[..3], &places[4..1_000]].concat());
        found.iter().for_each(|&place| log.set_flags(place, DEAD));
        log.free_dead();
        assert!(log.bytes < before && !log.has(places[0]));
        assert!(places[1_000..].iter().all(|&place| log.has(place) && log.value(place).is_some()));
        assert!(log.below(&key(1_000)).is_empty() && log.below(b"").is_empty());
        assert_eq!(log.below(&1_001u64.to_be_bytes()), [places[1_000]], "a bound may be shorter than the key");
        for place in log.places().map(|(place, _)| place).filter(|&place| place != high).collect::<Vec<_>>() {
            log.set_flags(place, DEAD);
        }
        assert_eq!(log.below(&[0xff; 10]), [high]);
        log.free_dead();
        assert_eq!((log.bytes, log.segments()), (0, 0));
        let place = log.append(b"", None, 0);
        assert_eq!((log.below(b"\0"), log.has(place), log.has(high)), (vec![place], true, false));
    }

    #[test]
    fn segments_follow_one_another_and_take_what_is_larger_than_one() {
        let mut log = Log::default();
        let large = vec![7; SEGMENT_BYTES + 1];
        let places: Vec<Place> = (0..=FIRST_SEGMENT_BYTES / 16).map(|_| log.append(b"key", Some(b"v"), 0)).collect();
        let place = log.append(b"large", Some(&large), 0);
        assert_eq!(log.value(place), Some(&large[..]));
        assert!(log.segments.len() >= 3);
        assert_eq!(log.bytes, log.segments.iter().map(|segment| segment.data.capacity()).sum::<usize>());
        assert_eq!(log.places().map(|(p, _)| p).collect::<Vec<_>>(), [&places[..], &[place]].concat());
    }
}
