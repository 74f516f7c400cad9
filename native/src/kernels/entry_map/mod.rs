//! Entries of one store in memory: those that are written and not in the database yet, and those read or written
//! lately.
//!
//! A log of segments with an index. An entry is a header of 12 bytes, its key and its value. A value that fits is
//! changed in place; otherwise a new entry is appended and the old place is dead. To free memory, the oldest segment
//! is taken apart: written entries, and those used since they were last moved, are appended at the end; the rest is
//! dropped. So the memory is that of the segments and the index, without an allocator's or Python's header per entry.

mod ordered;

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use self::ordered::{Ordered, is_live};
use super::rows::Rows;
use super::segments::{ABSENT, DEAD, Entries, HEADER, Log, Place, USED, WRITTEN, head_of, header};

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
    /// The places of written entries that are not ordered yet, and of some dead ones.
    places: Vec<Place>,
    /// Those that are.
    ordered: Ordered,
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

    /// The places of the written entries, in no order.
    fn all_written(&self) -> Vec<Place> {
        let all = self.ordered.places().chain(self.places.iter().copied());
        all.filter(|&place| is_live(&self.log, place)).collect()
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
            + self.ordered.bytes()
    }

    /// Takes the oldest segment apart.
    fn rotate(&mut self) {
        let Some((number, oldest)) = self.log.pop_oldest() else { return };
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
            let moved = self.log.append(key, value, flags & !USED);
            *found.get_mut() = moved;
            if flags & WRITTEN != 0 {
                self.written_bytes -= head.total - HEADER - head.key - value.map_or(0, <[u8]>::len);
                self.places.push(moved);
            }
        }
    }

    /// Drops the places whose segment is gone.
    fn forget_gone(&mut self) {
        let log = &self.log;
        self.places.retain(|&place| log.has(place));
        self.ordered.forget_gone(log);
    }

    /// Takes segments apart until at most `max_bytes` are used. Returns whether they are.
    fn free(&mut self, max_bytes: usize) -> bool {
        for _ in 0..2 * self.log.segments() {
            if self.used_bytes() <= max_bytes {
                return true;
            }
            self.rotate();
        }
        false
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
        let all = self.free(max_bytes);
        self.forget_gone();
        if all {
            return;
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
    pub fn put_stamped(&mut self, prefixes: Option<&[i64]>, keys: &Rows, times: &[i64], values: &Rows) {
        self.sorted = None;
        let mut names = vec![];
        let mut places = [(0, 0, 0); AHEAD];
        let mut stamped = vec![];
        for first in (0..keys.len()).step_by(AHEAD) {
            let part = first..keys.len().min(first + AHEAD);
            names.clear();
            for (place, row) in places.iter_mut().zip(part.clone()) {
                let start = names.len();
                if let Some(prefixes) = prefixes {
                    names.extend_from_slice(&prefixes[row].to_be_bytes());
                }
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
            self.sorted = Some(self.by_key(self.all_written()));
        }
        self.sorted.get_or_insert_default()
    }

    /// Places in the order of their keys. Takes little time if they begin with long parts in order.
    fn by_key(&self, places: Vec<Place>) -> Vec<Place> {
        let log = &self.log;
        let common = self.common(&places);
        // The first bytes in which keys differ decide most comparisons, without reading the log.
        let mut found: Vec<(u64, Place)> =
            places.into_iter().map(|place| (head_of(&log.key(place)[common..]), place)).collect();
        found.sort_by(|a, b| a.0.cmp(&b.0).then_with(|| log.key(a.1).cmp(log.key(b.1))));
        found.into_iter().map(|(_, place)| place).collect()
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
        self.ordered.clear();
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
        let gone = self.log.below(bound);
        if gone.is_empty() {
            return;
        }
        for place in gone {
            self.forget(place);
        }
        self.log.free_dead();
        self.forget_gone();
    }

    /// Up to `most` written entries with `low <= key < high`, in the order of their keys: the first, or the last of them. No
    /// `high`: to the end.
    pub fn written_between(&mut self, low: &[u8], high: Option<&[u8]>, most: usize, last: bool) -> Vec<Place> {
        if !self.places.is_empty() {
            let log = &self.log;
            self.places.retain(|&place| is_live(log, place));
            let added = std::mem::take(&mut self.places);
            self.ordered.add(&self.log, self.by_key(added));
        }
        self.ordered.between(&self.log, low, high, most, last)
    }

    /// Key and value of an entry.
    pub fn entry(&self, place: Place) -> (&[u8], Option<&[u8]>) {
        (self.log.key(place), self.log.value(place))
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
mod tests;
