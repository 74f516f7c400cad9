//! Entries of one store in memory: those that are written and not in the database yet, and those read or written
//! lately.
//!
//! A log of segments with an index. An entry is a header of 12 bytes, its key and its value. A value that fits is
//! changed in place; otherwise a new entry is appended and the old place is dead. To free memory, the oldest segment
//! is taken apart: written entries, and those used since they were last moved, are appended at the end; the rest is
//! dropped. So the memory is that of the segments and the index, without an allocator's or Python's header per entry.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use super::rows::Rows;
use super::segments::{ABSENT, DEAD, Entries, HEADER, Log, Place, USED, WRITTEN, header};

/// If the written entries leave less than this part of the log, a pass over all of it is not worth it.
const LITTLE: usize = 8;
/// A bucket of the index and its control byte.
const BUCKET_BYTES: usize = 9;

/// How many keys are looked up together.
pub const AHEAD: usize = 32;

/// The entries of one store.
#[derive(Default)]
pub struct Entered {
    hasher: RandomState,
    index: HashTable<Place>,
    pub log: Log,
    pub written: usize,
    written_bytes: usize,
    /// The places of written entries, and of some dead ones.
    places: Vec<Place>,
    /// Whether a written entry was moved, so that `places` must be rebuilt.
    moved: bool,
    /// The written entries by key, while nothing changes them.
    sorted: Option<Vec<Place>>,
    /// Whether an entry that the database holds was dropped.
    pub forgot: bool,
    /// The part of the log without written entries, when the last pass could free no more.
    kept_spare: usize,
}

impl Entered {
    #[inline(always)]
    pub fn hash(&self, key: &[u8]) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(key);
        hasher.finish()
    }

    pub fn find(&self, key: &[u8]) -> Option<Place> {
        self.find_hashed(self.hash(key), key)
    }

    pub fn find_hashed(&self, hash: u64, key: &[u8]) -> Option<Place> {
        self.index.find(hash, |&p| self.log.key(p) == key).copied()
    }

    /// Prefetches, while the processor does other work, what a search for a key of this hash will read.
    #[inline(always)]
    pub fn expect(&self, hash: u64) {
        if let Some(&place) = self.index.find(hash, |_| true) {
            let (segment, at) = self.log.at(place);
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a prefetch reads nothing, and the address lies within the segment.
            unsafe {
                use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
                _mm_prefetch::<_MM_HINT_T0>(segment.as_ptr().add(at).cast());
            }
            #[cfg(not(target_arch = "x86_64"))]
            let _ = (segment, at);
        }
    }

    /// Marks the entry as used.
    #[inline(always)]
    pub fn mark_used(&mut self, place: Place) {
        let flags = self.log.flags(place);
        if flags & USED == 0 {
            self.log.set_flags(place, flags | USED);
        }
    }

    fn size(&self, place: Place) -> usize {
        let (segment, at) = self.log.at(place);
        header(segment, at).total
    }

    pub fn put(&mut self, key: &[u8], value: Option<&[u8]>, flags: u32) {
        self.put_hashed(self.hash(key), key, value, flags);
    }

    fn put_hashed(&mut self, hash: u64, key: &[u8], value: Option<&[u8]>, flags: u32) {
        let log = &mut self.log;
        if let Some(found) = self.index.find_mut(hash, |&p| log.key(p) == key) {
            let (there, before) = (*found, log.flags(*found));
            let (segment, at) = log.at(*found);
            let size = header(segment, at).total;
            if before & WRITTEN != 0 {
                self.written -= 1;
                self.written_bytes -= size;
            }
            // A key that is written again counts as used.
            let flags = flags | USED;
            if !log.replace(*found, value, flags) {
                log.set_flags(*found, DEAD);
                *found = log.append(key, value, flags);
            }
            let (segment, at) = log.at(*found);
            if flags & WRITTEN != 0 {
                self.written += 1;
                self.written_bytes += header(segment, at).total;
                if before & WRITTEN == 0 || *found != there {
                    self.places.push(*found);
                }
            }
            return;
        }
        let place = self.log.append(key, value, flags);
        let (log, hasher) = (&self.log, &self.hasher);
        self.index.insert_unique(hash, place, |&p| {
            let mut state = hasher.build_hasher();
            state.write(log.key(p));
            state.finish()
        });
        if flags & WRITTEN != 0 {
            self.written += 1;
            self.written_bytes += self.size(place);
            self.places.push(place);
        }
    }

    /// The written entries, in no order.
    fn all_written(&mut self) -> Vec<Place> {
        if self.moved {
            self.moved = false;
            self.places = self.log.places().filter(|(_, f)| f & (WRITTEN | DEAD) == WRITTEN).map(|(p, _)| p).collect();
        }
        let log = &self.log;
        self.places.retain(|&p| p >> 32 >= log.first && log.flags(p) & (WRITTEN | DEAD) == WRITTEN);
        self.places.clone()
    }

    fn forget(&mut self, place: Place) {
        let hash = self.hash(self.log.key(place));
        if let Ok(found) = self.index.find_entry(hash, |&p| p == place) {
            found.remove();
        }
        if self.log.flags(place) & WRITTEN != 0 {
            self.written -= 1;
            self.written_bytes -= self.size(place);
        }
        self.log.set_flags(place, DEAD);
    }

    pub fn used_bytes(&self) -> usize {
        let buckets = match self.index.capacity() {
            0 => 0,
            room => (room * 8).div_ceil(7).next_power_of_two(),
        };
        self.log.bytes
            + buckets * BUCKET_BYTES
            + (self.sorted.as_ref().map_or(0, Vec::capacity) + self.places.capacity()) * 8
    }

    /// Takes the oldest segment apart.
    fn rotate(&mut self) {
        let Some(oldest) = self.log.segments.pop_front() else { return };
        let number = self.log.first;
        self.log.first += 1;
        self.log.bytes -= oldest.capacity();
        for (at, flags) in (Entries { segment: &oldest, at: 0 }) {
            if flags & DEAD != 0 {
                continue;
            }
            let head = header(&oldest, at);
            let key = &oldest[at + HEADER..at + HEADER + head.key];
            let place = number << 32 | at as u64;
            let hash = self.hash(key);
            let Ok(mut found) = self.index.find_entry(hash, |&p| p == place) else { continue };
            if flags & (WRITTEN | USED) == 0 {
                found.remove();
                self.forgot = true;
                continue;
            }
            let start = at + HEADER + head.key;
            let value = (head.value != ABSENT).then(|| &oldest[start..start + head.value as usize]);
            if flags & WRITTEN != 0 {
                self.moved = true;
                self.written_bytes -= head.total - HEADER - head.key - value.map_or(0, <[u8]>::len);
            }
            *found.get_mut() = self.log.append(key, value, flags & !USED);
        }
    }

    /// The part of the log that no written entry takes.
    fn spare(&self) -> usize {
        self.log.bytes.saturating_sub(self.written_bytes)
    }

    /// Drops entries until at most `max_bytes` are used, as far as that is worth it, and visits each entry at most
    /// twice: used ones are dropped only if nothing else is left. Written entries stay, and each pass copies them, so
    /// there is no pass if they leave little room, or little more than before the last pass.
    pub fn shrink(&mut self, max_bytes: usize) {
        if self.spare().saturating_sub(self.kept_spare) < self.log.bytes / LITTLE {
            return;
        }
        self.sorted = None;
        self.kept_spare = 0;
        for _ in 0..2 * self.log.segments.len() {
            if self.used_bytes() <= max_bytes {
                return;
            }
            self.rotate();
        }
        self.kept_spare = self.spare();
        if self.index.len() * 4 < self.index.capacity() {
            let (log, hasher) = (&self.log, &self.hasher);
            self.index.shrink_to_fit(|&p| {
                let mut state = hasher.build_hasher();
                state.write(log.key(p));
                state.finish()
            });
        }
    }

    /// Calls `visit` with each row of a column of keys and its hash; prefetches what a search for it reads.
    #[inline(always)]
    pub fn each_row(&mut self, keys: &Rows, mut visit: impl FnMut(&mut Self, usize, u64)) {
        let mut hashes = [0; AHEAD];
        for first in (0..keys.len()).step_by(AHEAD) {
            let part = first..keys.len().min(first + AHEAD);
            for (hash, row) in hashes.iter_mut().zip(part.clone()) {
                *hash = self.hash(keys.bytes(row));
                self.expect(*hash);
            }
            for (&hash, row) in hashes.iter().zip(part) {
                visit(self, row, hash);
            }
        }
    }

    /// Writes a column of keys with as many values; a null deletes.
    pub fn put_rows(&mut self, keys: &Rows, values: &Rows) {
        self.sorted = None;
        self.each_row(keys, |entered, row, hash| {
            entered.put_hashed(hash, keys.bytes(row), values.get(row), WRITTEN);
        });
    }

    /// Writes a column of keys with as many values; each key behind its prefix, each value behind its time, as big-endian
    /// numbers.
    pub fn put_stamped(&mut self, prefixes: &[i64], keys: &Rows, times: &[i64], values: &Rows) {
        self.sorted = None;
        let mut names = vec![];
        let mut places = [(0, 0, 0); AHEAD];
        let mut stamped = vec![];
        for first in (0..keys.len()).step_by(AHEAD) {
            let part = first..keys.len().min(first + AHEAD);
            names.clear();
            for (place, row) in places.iter_mut().zip(part.clone()) {
                let start = names.len();
                names.extend_from_slice(&prefixes[row].to_be_bytes());
                names.extend_from_slice(keys.bytes(row));
                *place = (self.hash(&names[start..]), start, names.len());
                self.expect(place.0);
            }
            for (&(hash, start, end), row) in places.iter().zip(part) {
                stamped.clear();
                stamped.extend_from_slice(&times[row].to_be_bytes());
                stamped.extend_from_slice(values.bytes(row));
                self.put_hashed(hash, &names[start..end], Some(&stamped), WRITTEN);
            }
        }
    }

    /// How many bytes all these keys begin with.
    fn common(&self, places: &[Place]) -> usize {
        let Some((&first, others)) = places.split_first() else { return 0 };
        let first = self.log.key(first);
        others.iter().fold(first.len(), |common, &place| {
            let key = self.log.key(place);
            if key.starts_with(&first[..common]) {
                return common;
            }
            first.iter().zip(key).take_while(|(a, b)| a == b).count()
        })
    }

    pub fn sort(&mut self) -> &[Place] {
        if self.sorted.is_none() {
            let places = self.all_written();
            let log = &self.log;
            let common = self.common(&places);
            // The first bytes in which keys differ decide most comparisons, without reading the log.
            let mut found: Vec<(u64, Place)> = places
                .into_iter()
                .map(|place| {
                    let key = &log.key(place)[common..];
                    let mut first = [0; 8];
                    let some = key.len().min(8);
                    first[..some].copy_from_slice(&key[..some]);
                    (u64::from_be_bytes(first), place)
                })
                .collect();
            found.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| log.key(a.1).cmp(log.key(b.1))));
            self.sorted = Some(found.into_iter().map(|(_, place)| place).collect());
        }
        self.sorted.get_or_insert_default()
    }

    pub fn settle(&mut self) {
        let places = match self.sorted.take() {
            Some(sorted) => sorted,
            None => self.all_written(),
        };
        for place in places {
            let flags = self.log.flags(place);
            self.log.set_flags(place, flags & !WRITTEN);
        }
        self.places = vec![];
        self.moved = false;
        self.written = 0;
        self.written_bytes = 0;
    }
    /// The memory of the written entries, including their buckets of the index.
    pub fn written_bytes(&self) -> usize {
        self.written_bytes + self.written * BUCKET_BYTES
    }

    /// Stores what the database holds for a key, unless the map has a newer value.
    pub fn keep(&mut self, key: &[u8], value: Option<&[u8]>) {
        if self.find(key).is_none() {
            self.put(key, value, 0);
        }
    }

    /// Drops every key below the bound, written or not.
    pub fn forget_below(&mut self, bound: &[u8]) {
        self.sorted = None;
        let log = &self.log;
        let gone: Vec<Place> =
            log.places().filter(|&(p, flags)| flags & DEAD == 0 && log.key(p) < bound).map(|(p, _)| p).collect();
        for place in gone {
            self.forget(place);
        }
    }

    /// The sorted order is no longer valid, because entries change.
    pub fn unsort(&mut self) {
        self.sorted = None;
    }

    /// Keys and values of `[start, stop)` of the written entries, in the order of their keys.
    pub fn written_part(&mut self, start: usize, stop: usize) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        self.sort();
        let log = &self.log;
        let sorted = self.sorted.as_deref().unwrap_or(&[]);
        let start = start.min(sorted.len());
        sorted[start..stop.min(sorted.len()).max(start)].iter().map(|&place| (log.key(place), log.value(place)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    type Entry = (Vec<u8>, Option<Vec<u8>>);

    fn written(map: &mut Entered) -> Vec<Entry> {
        let owned = |(key, value): (&[u8], Option<&[u8]>)| (key.to_vec(), value.map(<[u8]>::to_vec));
        map.written_part(0, usize::MAX).map(owned).collect()
    }

    fn value(map: &Entered, key: &[u8]) -> Option<Option<Vec<u8>>> {
        map.find(key).map(|place| map.log.value(place).map(<[u8]>::to_vec))
    }

    #[test]
    fn what_is_written_comes_back_in_the_order_of_keys() {
        let mut map = Entered::default();
        map.put(b"prefix-b", Some(b"1"), WRITTEN);
        map.put(b"prefix-a", None, WRITTEN);
        map.put(b"", Some(b""), WRITTEN);
        map.put(b"prefix", Some(b"2"), WRITTEN);
        map.keep(b"only read", Some(b"3"));
        let keys = |part: Vec<Entry>| part.into_iter().map(|(key, _)| key).collect::<Vec<_>>();
        assert_eq!(keys(written(&mut map)), [&b""[..], b"prefix", b"prefix-a", b"prefix-b"]);
        let part: Vec<_> = map.written_part(1, 3).map(|(key, value)| (key.to_vec(), value.is_some())).collect();
        assert_eq!(part, [(b"prefix".to_vec(), true), (b"prefix-a".to_vec(), false)]);
        assert_eq!(map.written_part(3, 1).count() + map.written_part(9, 12).count(), 0);
        assert_eq!((map.written, value(&map, b"only read")), (4, Some(Some(b"3".to_vec()))));
    }

    #[test]
    fn what_is_kept_never_hides_what_is_written() {
        let mut map = Entered::default();
        map.put(b"k", Some(b"new"), WRITTEN);
        map.keep(b"k", Some(b"old"));
        assert_eq!(value(&map, b"k"), Some(Some(b"new".to_vec())));
        map.keep(b"absent", None);
        assert_eq!((value(&map, b"absent"), value(&map, b"unknown")), (Some(None), None));
    }

    #[test]
    fn settled_entries_are_no_longer_written_but_known() {
        let mut map = Entered::default();
        map.put(b"k", Some(b"v"), WRITTEN);
        map.settle();
        assert_eq!((map.written, map.written_bytes(), written(&mut map)), (0, 0, vec![]));
        assert_eq!(value(&map, b"k"), Some(Some(b"v".to_vec())));
        map.unsort();
        map.put(b"k", Some(b"longer than before"), WRITTEN);
        assert_eq!(written(&mut map), [(b"k".to_vec(), Some(b"longer than before".to_vec()))]);
    }

    #[test]
    fn keys_below_a_bound_are_forgotten() {
        let mut map = Entered::default();
        for key in [b"a", b"b", b"c"] {
            map.put(key, Some(b"v"), WRITTEN);
        }
        map.keep(b"0", Some(b"v"));
        map.forget_below(b"b");
        assert_eq!(written(&mut map).len(), 2);
        assert!([&b"0"[..], b"a"].iter().all(|key| value(&map, key).is_none()));
        assert!(!map.forgot, "what is below the bound is not in the database either");
    }

    #[test]
    fn shrinking_keeps_what_is_written_and_forgets_what_nobody_asked_for_first() {
        let mut map = Entered::default();
        let key = |i: u32| i.to_be_bytes();
        for i in 0..20_000 {
            map.keep(&key(i), Some(&[1; 100]));
        }
        map.put(&key(5), Some(b"new"), WRITTEN);
        let asked = map.find(&key(7)).unwrap();
        map.mark_used(asked);
        let before = map.used_bytes();
        map.shrink(before / 2);
        assert!(map.used_bytes() <= before / 2 && map.forgot);
        assert_eq!(value(&map, &key(5)), Some(Some(b"new".to_vec())));
        assert!(value(&map, &key(7)).is_some() && value(&map, &key(6)).is_none());
        map.unsort();
        assert_eq!(written(&mut map), [(key(5).to_vec(), Some(b"new".to_vec()))]);
    }

    /// Compared with a map of the standard library, over some thousand steps of a small generator.
    #[test]
    fn it_answers_as_a_plain_map_does() {
        let (mut map, mut plain) = (Entered::default(), BTreeMap::<Vec<u8>, Option<Vec<u8>>>::new());
        let mut state = 1u64;
        let mut next = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for step in 0..30_000 {
            let key = format!("key {}", next(700)).into_bytes();
            let new = (next(5) > 0).then(|| vec![step as u8; next(40) as usize]);
            map.unsort();
            map.put(&key, new.as_deref(), WRITTEN);
            plain.insert(key, new);
            match next(2_000) {
                0 => {
                    assert_eq!(written(&mut map), plain.clone().into_iter().collect::<Vec<_>>());
                    map.settle();
                    plain.clear();
                }
                1 => map.shrink(20_000),
                _ => {}
            }
            assert_eq!(map.written, plain.len());
        }
        for (key, expected) in &plain {
            assert_eq!(value(&map, key).as_ref(), Some(expected));
        }
    }
}
