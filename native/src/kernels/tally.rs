//! Counts of records by key since the last commit, with the stored counts.
//!
//! A key costs a slot of an index, an entry and its bytes. The slots and entries of a block of keys are prefetched
//! before the first of them is compared, so that memory serves all of them at once.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::RandomState;

use super::entry_map::{AHEAD, Entered};
use super::rows::Rows;
use crate::refused::Refused;

const BLOCK: usize = 32;
const FIRST_SLOTS: usize = 1024;
/// The store's value: a timestamp and a count.
const STORED_BYTES: usize = 16;

#[derive(Clone, Copy)]
struct Entry {
    hash: u64,
    start: u64,
    length: u32,
    count: i64,
    latest: i64,
}

impl Entry {
    /// Adds the store's value of the key, and returns that count; an error has changed nothing.
    fn add_stored(&mut self, bytes: &[u8]) -> Result<i64, &'static str> {
        let (time, count) = (bytes.first_chunk::<8>(), bytes.last_chunk::<8>());
        let (Some(time), Some(count), STORED_BYTES) = (time, count, bytes.len()) else {
            return Err("a stored count is not a timestamp and a long");
        };
        let stored = i64::from_be_bytes(*count);
        self.count = self.count.checked_add(stored).ok_or("a count does not fit into 64 bits")?;
        self.latest = self.latest.max(i64::from_be_bytes(*time));
        Ok(stored)
    }
}

pub struct Counts {
    hasher: RandomState,
    /// By hash, one more than the place of an entry; 0: free. Twice as many as entries at least.
    slots: Vec<u32>,
    entries: Vec<Entry>,
    arena: Vec<u8>,
    /// How many entries include the store's value, except for the missing ones.
    based: usize,
    /// The places of entries below `based` that the store's memory does not know.
    missing: Vec<u32>,
    /// How many keys there were before the last `clear`, until the index is made.
    expected: usize,
    /// The number of counted records, which is at least any count that is not based.
    total: i64,
    /// The highest stored count of any key: with `total`, at least any of the counts.
    highest_stored: i64,
}

impl Counts {
    pub fn new() -> Self {
        Counts {
            hasher: RandomState::default(),
            slots: vec![],
            entries: vec![],
            arena: vec![],
            based: 0,
            missing: vec![],
            expected: 0,
            total: 0,
            highest_stored: 0,
        }
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Also returns the memory: a worker at rest would otherwise keep that of its largest commit. The next batch
    /// probably has as many keys, so the index begins at the size that they need, in pages that cost nothing yet.
    pub fn clear(&mut self) {
        self.expected = self.entries.len();
        (self.slots, self.entries, self.arena) = (vec![], vec![], vec![]);
        self.based = 0;
        self.missing = vec![];
        self.total = 0;
        self.highest_stored = 0;
    }

    pub fn used_bytes(&self) -> usize {
        4 * self.slots.len() + size_of::<Entry>() * self.entries.len() + self.arena.len()
    }

    /// Counts `many` times: `item` returns the row of a key, how often to count it, and its time.
    pub fn add(&mut self, rows: &Rows, many: usize, item: impl Fn(usize) -> (usize, i64, i64)) {
        let mut hashes = [0u64; BLOCK];
        let mut found = [0u32; BLOCK];
        let mut start = 0;
        while start < many {
            let stop = (start + BLOCK).min(many);
            while 2 * (self.entries.len() + BLOCK) > self.slots.len() {
                self.grow();
            }
            for (hash, i) in hashes.iter_mut().zip(start..stop) {
                let mut hasher = self.hasher.build_hasher();
                hasher.write(rows.bytes(item(i).0));
                *hash = hasher.finish();
            }
            let mask = self.slots.len() - 1;
            for (slot, hash) in found.iter_mut().zip(&hashes).take(stop - start) {
                *slot = self.slots[*hash as usize & mask];
            }
            let mut alike = 0;
            for (slot, hash) in found.iter().zip(&hashes).take(stop - start) {
                alike += (*slot > 0 && self.entries[*slot as usize - 1].hash == *hash) as usize;
            }
            std::hint::black_box(alike);
            for (hash, i) in hashes.iter().zip(start..stop) {
                let (row, count, time) = item(i);
                self.count(rows.bytes(row), *hash, count, time);
            }
            start = stop;
        }
    }

    /// Counts rows whose `codes` point to their keys, where every key occurs once; keys in the order in which they
    /// first have a row. Every code is valid.
    pub fn add_coded(&mut self, keys: &Rows, codes: &[i32], times: &[i64]) {
        let mut found = vec![(0i64, i64::MIN); keys.len()];
        let mut seen: Vec<u32> = vec![];
        for (&code, &time) in codes.iter().zip(times) {
            let (count, latest) = &mut found[code as usize];
            if *count == 0 {
                seen.push(code as u32);
            }
            *count += 1;
            *latest = time.max(*latest);
        }
        self.add(keys, seen.len(), |i| {
            let row = seen[i] as usize;
            (row, found[row].0, found[row].1)
        });
    }

    /// The places of the entries without the store's value.
    fn unbased(&self) -> impl Iterator<Item = usize> + '_ {
        self.missing.iter().map(|&place| place as usize).chain(self.based..self.entries.len())
    }

    /// Adds the stored count of an entry's key. One that cannot be added stays unbased: the caller that takes the
    /// counts out asks for it again.
    fn add_stored(&mut self, place: usize, stored: &[u8], problem: &mut Option<&'static str>) {
        match self.entries[place].add_stored(stored) {
            Ok(count) => self.highest_stored = self.highest_stored.max(count),
            Err(found) => {
                *problem = Some(found);
                self.missing.push(place as u32);
            }
        }
    }

    /// An error names what is wrong with one of the stored values; all others are added.
    pub fn base_from(&mut self, known: &mut Entered, whole: bool) -> Result<(), &'static str> {
        let mut hashes = [0u64; AHEAD];
        let mut problem = None;
        let new: Vec<usize> = self.unbased().collect();
        self.missing.clear();
        for part in new.chunks(AHEAD) {
            for (hash, &place) in hashes.iter_mut().zip(part) {
                *hash = known.hash(self.key(&self.entries[place]));
                known.expect(*hash);
            }
            for (&hash, &place) in hashes.iter().zip(part) {
                match known.find_hashed(hash, self.key(&self.entries[place])) {
                    Some(found) => {
                        known.mark_used(found);
                        if let Some(stored) = known.log.value(found) {
                            self.add_stored(place, stored, &mut problem);
                        }
                    }
                    None if whole => {}
                    None => self.missing.push(place as u32),
                }
            }
        }
        self.based = self.entries.len();
        problem.map_or(Ok(()), Err)
    }

    /// Whether counts increased by this many would still fit into 64 bits.
    pub fn fits(&mut self, counts: &[i64]) -> bool {
        let mut total = self.total;
        for &count in counts {
            match total.checked_add(count) {
                Some(more) if count >= 0 => total = more,
                _ => return false,
            }
        }
        if total.checked_add(self.highest_stored).is_none() {
            return false;
        }
        self.total = total;
        true
    }

    #[inline(always)]
    fn count(&mut self, key: &[u8], hash: u64, count: i64, time: i64) {
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            let slot = self.slots[at];
            if slot == 0 {
                let start = self.arena.len() as u64;
                self.arena.extend_from_slice(key);
                self.entries.push(Entry { hash, start, length: key.len() as u32, count, latest: time });
                self.slots[at] = self.entries.len() as u32;
                return;
            }
            let entry = &mut self.entries[slot as usize - 1];
            if entry.hash == hash {
                let start = entry.start as usize;
                if self.arena[start..start + entry.length as usize] == *key {
                    entry.count += count;
                    entry.latest = entry.latest.max(time);
                    return;
                }
            }
            at = (at + 1) & mask;
        }
    }

    fn grow(&mut self) {
        let size = (2 * self.slots.len()).max(FIRST_SLOTS).max((2 * self.expected).next_power_of_two());
        self.expected = 0;
        let mask = size - 1;
        self.slots = vec![0; size];
        for (place, entry) in self.entries.iter().enumerate() {
            let mut at = entry.hash as usize & mask;
            while self.slots[at] != 0 {
                at = (at + 1) & mask;
            }
            self.slots[at] = place as u32 + 1;
        }
    }

    fn key(&self, entry: &Entry) -> &[u8] {
        &self.arena[entry.start as usize..entry.start as usize + entry.length as usize]
    }

    /// The keys without the store's value.
    pub fn unbased_keys(&self) -> impl Iterator<Item = &[u8]> + '_ {
        self.unbased().map(|place| self.key(&self.entries[place]))
    }

    /// Adds what the store holds of the `unbased_keys`, in their order. An error says what is wrong with one of the stored
    /// values; all others are added.
    pub fn base<'a>(&mut self, stored: impl Iterator<Item = Option<&'a [u8]>>) -> Result<(), &'static str> {
        let places: Vec<usize> = self.unbased().collect();
        let mut problem = None;
        self.missing.clear();
        for (place, value) in places.into_iter().zip(stored) {
            if let Some(value) = value {
                self.add_stored(place, value, &mut problem);
            }
        }
        self.based = self.entries.len();
        problem.map_or(Ok(()), Err)
    }

    /// All keys one after the other, and where each begins and ends.
    pub fn keys(&self) -> (&[u8], Vec<i64>) {
        let ends = self.entries.iter().map(|entry| (entry.start + u64::from(entry.length)) as i64);
        (&self.arena, std::iter::once(0).chain(ends).collect())
    }

    /// For each key: its count and its latest time.
    pub fn numbers(&self) -> (Vec<i64>, Vec<i64>) {
        self.entries.iter().map(|entry| (entry.count, entry.latest)).unzip()
    }

    /// Refuses more keys than the index can number.
    pub fn check_room(&self, more: usize) -> Result<(), Refused> {
        if self.entries.len() + more >= u32::MAX as usize / 2 {
            return Err(Refused::Value("there are too many keys to count at once".into()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::segments::WRITTEN;

    fn stored(time: i64, count: i64) -> Vec<u8> {
        [time.to_be_bytes(), count.to_be_bytes()].concat()
    }

    fn counted(counts: &Counts) -> Vec<(Vec<u8>, i64, i64)> {
        let ((keys, ends), (numbers, times)) = (counts.keys(), counts.numbers());
        let key = |i: usize| keys[ends[i] as usize..ends[i + 1] as usize].to_vec();
        (0..counts.len()).map(|i| (key(i), numbers[i], times[i])).collect()
    }

    fn of(keys: &[u8], times: &[i64]) -> Counts {
        let mut counts = Counts::new();
        let offsets: Vec<i64> = (0..=keys.len() as i64).collect();
        counts.add(&Rows::of(keys, &offsets, None).unwrap(), keys.len(), |row| (row, 1, times[row]));
        counts
    }

    #[test]
    fn records_are_counted_by_key_with_the_latest_time() {
        let counts = of(b"abab", &[5, 1, 3, 9]);
        assert_eq!(counted(&counts), [(b"a".to_vec(), 2, 5), (b"b".to_vec(), 2, 9)]);
        assert_eq!(counts.unbased_keys().collect::<Vec<_>>(), [b"a", b"b"]);
    }

    #[test]
    fn coded_rows_are_counted_as_the_rows_themselves() {
        let mut counts = Counts::new();
        let keys = Rows::of(b"abc", &[0, 1, 2, 3], None).unwrap();
        counts.add_coded(&keys, &[2, 0, 2, 2], &[4, -1, 8, 6]);
        assert_eq!(counted(&counts), [(b"c".to_vec(), 3, 8), (b"a".to_vec(), 1, -1)]);
    }

    #[test]
    fn what_the_store_holds_is_added_once() {
        let mut counts = of(b"ab", &[5, 5]);
        assert_eq!(counts.base([Some(&stored(9, 40)[..]), None].into_iter()), Ok(()));
        assert_eq!(counted(&counts), [(b"a".to_vec(), 41, 9), (b"b".to_vec(), 1, 5)]);
        assert_eq!(counts.unbased_keys().count(), 0);
    }

    #[test]
    fn a_stored_value_that_is_no_count_leaves_its_key_unbased() {
        let mut counts = of(b"abc", &[5, 5, 5]);
        let values = [Some(&b"short"[..]), Some(&stored(1, 2)[..]), Some(&stored(1, i64::MAX)[..])];
        assert!(counts.base(values.into_iter()).is_err());
        assert_eq!(counts.unbased_keys().collect::<Vec<_>>(), [b"a", b"c"]);
        assert_eq!(counted(&counts)[1], (b"b".to_vec(), 3, 5));
    }

    #[test]
    fn the_memory_of_a_store_answers_for_the_keys_that_it_knows() {
        for whole in [false, true] {
            let mut known = Entered::default();
            known.put(b"a", Some(&stored(7, 10)), WRITTEN);
            known.put(b"b", None, WRITTEN);
            let mut counts = of(b"abc", &[1, 2, 3]);
            assert_eq!(counts.base_from(&mut known, whole), Ok(()));
            assert_eq!(counted(&counts), [(b"a".to_vec(), 11, 7), (b"b".to_vec(), 1, 2), (b"c".to_vec(), 1, 3)]);
            assert_eq!(counts.unbased_keys().count(), usize::from(!whole));
        }
    }

    #[test]
    fn counts_that_may_not_fit_are_refused() {
        let mut counts = of(b"a", &[1]);
        assert!(counts.fits(&[i64::MAX - 1]));
        assert!(!counts.fits(&[2]) && !counts.fits(&[-1]) && !counts.fits(&[i64::MAX, 1]));
        counts.base([Some(&stored(1, 5)[..])].into_iter()).unwrap();
        assert!(!counts.fits(&[0]), "the stored count and all that was counted exceed 64 bits");
        counts.clear();
        assert!(counts.fits(&[i64::MAX]) && counts.len() == 0 && counts.used_bytes() == 0);
    }

    #[test]
    fn keys_stay_apart_while_the_index_grows() {
        let mut counts = Counts::new();
        let (data, offsets): (Vec<u8>, Vec<i64>) =
            ((0..5_000u32).flat_map(u32::to_be_bytes).collect(), (0..=5_000).map(|i| 4 * i).collect());
        let rows = Rows::of(&data, &offsets, None).unwrap();
        for _ in 0..3 {
            counts.add(&rows, rows.len(), |row| (row, 2, row as i64));
        }
        assert_eq!(counts.len(), 5_000);
        assert!(counted(&counts).iter().enumerate().all(|(i, (_, count, time))| (*count, *time) == (6, i as i64)));
        assert_eq!(counts.check_room(10), Ok(()));
        assert!(counts.check_room(u32::MAX as usize).is_err());
    }
}
