//! Appending to lists, and what a commit writes of it.

use std::borrow::Cow;
use std::collections::HashMap;

use super::forgotten::Forgotten;
use super::groups::Item;
use super::{BEHIND_KEY, Lists};
use crate::kernels::rows::Rows;
use crate::refused::Refused;

/// The most memory that a commit leaves for the next one.
const KEPT_BYTES: usize = 16 << 20;
const SEQUENCES_MAX: u32 = u32::MAX - 1;

/// What a commit writes, by columns: the segments of entries, what follows these in their store keys, the values, the times.
pub struct Appends<'a> {
    pub segments: Vec<i64>,
    pub keys: Cow<'a, [u8]>,
    pub key_ends: Cow<'a, [i64]>,
    pub values: Cow<'a, [u8]>,
    pub value_ends: Cow<'a, [i64]>,
    pub times: Cow<'a, [i64]>,
}

/// A column of byte strings that grows.
pub(super) struct Texts {
    pub(super) data: Vec<u8>,
    pub(super) ends: Vec<i64>,
}

impl Default for Texts {
    fn default() -> Self {
        Texts { data: vec![], ends: vec![0] }
    }
}

impl Texts {
    fn clear(&mut self) {
        self.data.clear();
        self.ends.truncate(1);
    }

    pub(super) fn push(&mut self, parts: &[&[u8]]) {
        for part in parts {
            self.data.extend_from_slice(part);
        }
        self.ends.push(self.data.len() as i64);
    }

    pub(super) fn get(&self, at: usize) -> &[u8] {
        &self.data[self.ends[at] as usize..self.ends[at + 1] as usize]
    }

    pub(super) fn bytes(&self) -> usize {
        self.data.capacity() + 8 * (self.ends.capacity() - 1)
    }
}

impl Lists {
    /// The rows whose numbers are unknown without a read of the entry with number 0 of their key and time: if there is
    /// none, it is theirs, else their group must be loaded.
    fn underivable(&mut self, keys: &[&[u8]], numbers: &[i64], times: &[i64], expired: &[u8]) -> Vec<i64> {
        let mut rows = vec![];
        for (row, (&number, &time)) in numbers.iter().zip(times).enumerate() {
            let segment = time / self.segment_ms;
            let key = keys[number as usize];
            if self.is_known(segment, key, time) || expired.get(row).is_some_and(|&gone| gone != 0) {
                continue;
            }
            let derived = self.group(segment, key).is_some_and(|at| {
                let group = &self.young.groups[at as usize];
                group.whole || group.end_of(time).1.is_some()
            });
            if !derived {
                rows.push(row as i64);
            }
        }
        rows
    }

    /// Appends entries, of which `keys[numbers[i]]` is the key of the i-th. `expired`: one byte per entry, 1 where its time
    /// is over: it is written with number 0, for no reader. Unless `checked`, returns the rows whose numbers are unknown
    /// (see `underivable`), and has done nothing if there are any.
    pub fn append(
        &mut self,
        keys: &[&[u8]],
        numbers: &[i64],
        times: &[i64],
        values: &Rows,
        expired: &[u8],
        checked: bool,
    ) -> Result<Vec<i64>, Refused> {
        let count = values.len();
        if numbers.len() != count || times.len() != count || !(expired.is_empty() || expired.len() == count) {
            return Err(Refused::Value("there is not one key, time and value per entry".into()));
        }
        if numbers.iter().any(|&number| number < 0 || number >= keys.len() as i64) {
            return Err(Refused::Value("there is a number that no key has".into()));
        }
        if times.iter().any(|&time| time < 0) {
            return Err(Refused::Value("a time is before 1970".into()));
        }
        if !checked {
            let rows = self.underivable(keys, numbers, times, expired);
            if !rows.is_empty() {
                return Ok(rows);
            }
        }
        self.found.clear();
        self.numbers.clear();
        self.keys.data.reserve(count * BEHIND_KEY);
        self.values.data.reserve(values.extent());
        // the last group of each key
        let mut last: Vec<(i64, u32)> = vec![(i64::MIN, 0); keys.len()];
        for (row, (&number, &time)) in numbers.iter().zip(times).enumerate() {
            let (key, segment) = (keys[number as usize], time / self.segment_ms);
            if last[number as usize].0 != segment {
                let at = match self.group(segment, key) {
                    Some(at) => at,
                    None => self.new_group(segment, key, self.is_known(segment, key, i64::MIN)),
                };
                last[number as usize] = (segment, at);
                self.segments.insert(segment);
                self.first = self.first.min(segment);
            }
            let at = last[number as usize].1;
            if expired.get(row).is_some_and(|&gone| gone != 0) {
                self.append_expired(at, key, time, values.bytes(row));
                self.numbers.push(0);
            } else {
                let sequence = self.append_one(at, key, time, values.bytes(row))?;
                self.numbers.push(sequence);
            }
        }
        Ok(vec![])
    }

    fn append_one(&mut self, at: u32, key: &[u8], time: i64, value: &[u8]) -> Result<u32, Refused> {
        let append = self.stored + self.times.len() as u64 + 1;
        let group = &mut self.young.groups[at as usize];
        let (end, last) = group.end_of(time);
        if last.is_some_and(|last| last >= SEQUENCES_MAX) {
            return Err(Refused::Value("a key has too many entries of one time".into()));
        }
        let sequence = last.map_or(0, |last| last + 1);
        let before = group.items.capacity();
        if before == 0 {
            group.items.reserve_exact(1); // most keys of many have one entry in a segment
        }
        group.items.insert(end, Item { time, append, sequence });
        self.young.bytes += (group.items.capacity() - before) * size_of::<Item>();
        self.push(key, time, sequence, value);
        Ok(sequence)
    }

    fn push(&mut self, key: &[u8], time: i64, sequence: u32, value: &[u8]) {
        self.keys.push(&[key, &time.to_be_bytes(), &sequence.to_be_bytes()]);
        self.values.push(&[value]);
        self.times.push(time);
        self.latest_ms = self.latest_ms.max(time);
    }

    /// The entry takes the place of one of the same name that no commit has stored.
    fn append_expired(&mut self, at: u32, key: &[u8], time: i64, value: &[u8]) {
        let mut name = key.to_vec();
        name.extend_from_slice(&time.to_be_bytes());
        name.extend_from_slice(&[0; 4]);
        let items = &self.young.groups[at as usize].items;
        let first = items.get(items.partition_point(|item| item.time < time));
        let live = first.filter(|item| item.time == time && item.sequence == 0 && item.append > self.stored);
        let place = live.map(|item| (item.append - self.stored) as usize - 1).or(self.expired.get(&name[..]).copied());
        if let Some(place) = place {
            self.replaced.insert(place, value.into());
        } else {
            self.expired.insert(name.into(), self.times.len());
            self.push(key, time, 0, value);
        }
    }

    // -- commits -------------------------------------------------------------------------------------------------

    /// What the next commit writes, without the entries before `from_ms`.
    pub fn appends(&self, from_ms: i64) -> Appends<'_> {
        if self.replaced.is_empty() && self.times.iter().all(|&time| time >= from_ms) {
            return Appends {
                segments: self.times.iter().map(|time| time / self.segment_ms).collect(),
                keys: Cow::Borrowed(&self.keys.data),
                key_ends: Cow::Borrowed(&self.keys.ends),
                values: Cow::Borrowed(&self.values.data),
                value_ends: Cow::Borrowed(&self.values.ends),
                times: Cow::Borrowed(&self.times),
            };
        }
        let (mut keys, mut values, mut times) = (Texts::default(), Texts::default(), vec![]);
        for (row, _) in self.times.iter().enumerate().filter(|(_, time)| **time >= from_ms) {
            keys.push(&[self.keys.get(row)]);
            values.push(&[self.replaced.get(&row).map_or(self.values.get(row), |value| value)]);
            times.push(self.times[row]);
        }
        Appends {
            segments: times.iter().map(|time| time / self.segment_ms).collect(),
            keys: Cow::Owned(keys.data),
            key_ends: Cow::Owned(keys.ends),
            values: Cow::Owned(values.data),
            value_ends: Cow::Owned(values.ends),
            times: Cow::Owned(times),
        }
    }

    /// All that was appended is stored. Forgets the segments below `floor`.
    pub fn committed(&mut self, floor: i64) {
        self.stored += self.times.len() as u64;
        // pages that stay need not be found again; a worker at rest must not keep those of its largest commit
        if self.buffered_bytes() > KEPT_BYTES {
            (self.keys, self.values, self.times) = (Texts::default(), Texts::default(), vec![]);
        } else {
            self.keys.clear();
            self.values.clear();
            self.times.clear();
        }
        (self.expired, self.replaced) = (HashMap::new(), HashMap::new());
        (self.found, self.numbers) = (vec![], vec![]);
        if floor <= self.first {
            return;
        }
        self.first = floor;
        self.segments = self.segments.split_off(&floor);
        for generation in [&mut self.young, &mut self.old] {
            *generation = std::mem::take(generation).from(floor, &self.hasher);
        }
    }

    /// Frees memory, if nothing is uncommitted, until at most half of `max_bytes` is used. Returns whether it could.
    pub fn trim(&mut self, max_bytes: usize) -> bool {
        if !self.times.is_empty() {
            return false;
        }
        if 4 * self.forgotten.bytes() > max_bytes {
            self.forget_what_was_forgotten();
        }
        if 4 * self.young.bytes > max_bytes {
            self.forget_old(max_bytes / 8);
            self.old = std::mem::take(&mut self.young);
        }
        if 2 * (self.young.bytes + self.old.bytes + self.forgotten.bytes()) > max_bytes {
            self.forget_old(max_bytes / 8);
        }
        self.found = vec![];
        (self.keys, self.values, self.times) = (Texts::default(), Texts::default(), vec![]);
        true
    }

    /// Forgets the groups that were not used lately, and notes those with entries in at most `note_bytes`.
    fn forget_old(&mut self, note_bytes: usize) {
        let old = std::mem::take(&mut self.old);
        let with_entries = old.with_entries(&self.hasher);
        if with_entries.is_empty() {
            return;
        }
        if self.forgotten.make_room(with_entries.len(), note_bytes) {
            with_entries.into_iter().for_each(|hash| self.forgotten.add(hash));
        } else {
            self.forget_what_was_forgotten();
        }
    }

    /// Then of no group up to now that is not here it is known whether it has entries.
    fn forget_what_was_forgotten(&mut self) {
        self.forgotten = Forgotten::default();
        self.known_from_ms = self.known_from_ms.max(self.latest_ms.saturating_add(1));
    }
}
