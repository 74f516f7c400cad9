//! Counts of records by key since the last commit, beside what the store holds of them.
//!
//! A key costs a slot of an index, an entry and its bytes. Slots and entries of a block of keys are read before the first of
//! them is compared, so that the memory answers for all of them at once.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::RandomState;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use super::buffers::{Held, Rows, to_bytes};
use super::entry_map::{AHEAD, Entered, EntryMap};

const BLOCK: usize = 32;
const FIRST_SLOTS: usize = 1024;
/// What the store keeps: a timestamp and a count.
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
    /// Adds what the store holds of the key, and gives that count; an error has changed nothing.
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

struct Counts {
    hasher: RandomState,
    /// By hash, one more than the place of an entry; 0: free. Twice as many as entries at least.
    slots: Vec<u32>,
    entries: Vec<Entry>,
    arena: Vec<u8>,
    /// How many entries have what the store holds in them, but for the missing ones.
    based: usize,
    /// The places of entries below `based` of which the store's memory knew nothing.
    missing: Vec<u32>,
    /// How many keys there were before the last `clear`, until the index is made.
    expected: usize,
    /// What was counted, and so no less than any of the counts that are not based.
    total: i64,
    /// The highest count that the store held of any key: with `total`, no less than any of the counts.
    highest_stored: i64,
}

impl Counts {
    /// Gives the memory back too: a worker at rest would keep that of its largest commit. The next keys are as many as
    /// these, by all that is known, so the index begins at the size that they need, in pages that cost nothing yet.
    fn clear(&mut self) {
        self.expected = self.entries.len();
        (self.slots, self.entries, self.arena) = (vec![], vec![], vec![]);
        self.based = 0;
        self.missing = vec![];
        self.total = 0;
        self.highest_stored = 0;
    }

    fn used_bytes(&self) -> usize {
        4 * self.slots.len() + size_of::<Entry>() * self.entries.len() + self.arena.len()
    }

    /// Counts `many` times: `item` gives the row of a key, how often it is counted and when.
    fn add(&mut self, rows: &Rows, many: usize, item: impl Fn(usize) -> (usize, i64, i64)) {
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

    /// Counts rows of which `codes` say which key each has, every key that occurs once; keys in the order in which they
    /// first have a row. Every code is that of a key.
    fn add_coded(&mut self, keys: &Rows, codes: &[i32], times: &[i64]) {
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

    /// The places of the entries of which nobody has said what the store holds.
    fn unbased(&self) -> impl Iterator<Item = usize> + '_ {
        self.missing.iter().map(|&place| place as usize).chain(self.based..self.entries.len())
    }

    /// Adds what the store holds of an entry's key. One that cannot be added stays unbased: whoever takes the counts out
    /// asks for it again.
    fn add_stored(&mut self, place: usize, stored: &[u8], problem: &mut Option<&'static str>) {
        match self.entries[place].add_stored(stored) {
            Ok(count) => self.highest_stored = self.highest_stored.max(count),
            Err(found) => {
                *problem = Some(found);
                self.missing.push(place as u32);
            }
        }
    }

    /// An error says what is wrong with one of the stored values; all others are added.
    fn base_from(&mut self, known: &mut Entered, whole: bool) -> Result<(), &'static str> {
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

    /// Whether counts of so many more would still be numbers of 64 bits.
    fn fits(&mut self, counts: &[i64]) -> bool {
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
}

/// See `penstock_native.pyi`.
#[pyclass]
pub struct Tally(Counts);

#[pymethods]
impl Tally {
    #[new]
    fn new() -> Self {
        Tally(Counts {
            hasher: RandomState::default(),
            slots: vec![],
            entries: vec![],
            arena: vec![],
            based: 0,
            missing: vec![],
            expected: 0,
            total: 0,
            highest_stored: 0,
        })
    }

    fn __len__(&self) -> usize {
        self.0.entries.len()
    }

    #[getter]
    fn used_bytes(&self) -> usize {
        self.0.used_bytes()
    }

    fn add(
        &mut self,
        py: Python<'_>,
        data: Held<u8>,
        offsets: Held<i64>,
        counts: Option<Held<i64>>,
        times: Held<i64>,
    ) -> PyResult<bool> {
        let rows = Rows::of(&data, &offsets, &None)?;
        let times = times.slice();
        let given = counts.as_ref().map(Held::slice);
        if times.len() != rows.len() || given.is_some_and(|counts| counts.len() != rows.len()) {
            return Err(PyValueError::new_err("there is not one time, or count, per row"));
        }
        self.check_room(rows.len())?;
        let tally = &mut self.0;
        let fits = tally.fits(given.unwrap_or(&[rows.len() as i64]));
        if fits {
            py.detach(|| match given {
                Some(counts) => tally.add(&rows, rows.len(), |row| (row, counts[row], times[row])),
                None => tally.add(&rows, rows.len(), |row| (row, 1, times[row])),
            });
        }
        Ok(fits)
    }

    fn add_coded(
        &mut self,
        py: Python<'_>,
        codes: Held<i32>,
        data: Held<u8>,
        offsets: Held<i64>,
        times: Held<i64>,
    ) -> PyResult<bool> {
        let keys = Rows::of(&data, &offsets, &None)?;
        let (codes, times) = (codes.slice(), times.slice());
        if times.len() != codes.len() {
            return Err(PyValueError::new_err("there is not one time per row"));
        }
        let known = keys.len() as i64;
        if codes.iter().fold(false, |wrong, &code| wrong | (code < 0 || i64::from(code) >= known)) {
            return Err(PyValueError::new_err("there is a code that no key has"));
        }
        self.check_room(keys.len())?;
        let tally = &mut self.0;
        let fits = tally.fits(&[codes.len() as i64]);
        if fits {
            py.detach(|| tally.add_coded(&keys, codes, times));
        }
        Ok(fits)
    }

    fn unbased<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let keys: Vec<_> = self.0.unbased().map(|place| PyBytes::new(py, self.0.key(&self.0.entries[place]))).collect();
        PyList::new(py, keys)
    }

    fn base(&mut self, stored: &Bound<'_, PyList>) -> PyResult<()> {
        let counts = &mut self.0;
        let places: Vec<usize> = counts.unbased().collect();
        if stored.len() != places.len() {
            return Err(PyValueError::new_err("there is not one value per new key"));
        }
        let mut problem = None;
        counts.missing.clear();
        for (place, value) in places.into_iter().zip(stored.iter()) {
            if !value.is_none() {
                // What is no bytes has no count either.
                counts.add_stored(place, value.cast::<PyBytes>().map_or(&[], |v| v.as_bytes()), &mut problem);
            }
        }
        counts.based = counts.entries.len();
        problem.map_or(Ok(()), |found| Err(PyValueError::new_err(found)))
    }

    /// What the memory of a store knows of the `unbased` keys; of the others they are still unbased, unless it is the
    /// `whole` store.
    fn base_from(&mut self, py: Python<'_>, mut known: PyRefMut<'_, EntryMap>, whole: bool) -> PyResult<()> {
        let (counts, entered) = (&mut self.0, &mut known.entered);
        py.detach(|| counts.base_from(entered, whole)).map_err(PyValueError::new_err)
    }

    fn columns<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let counts = &self.0;
        let mut offsets = Vec::with_capacity(counts.entries.len() + 1);
        offsets.push(0i64);
        offsets.extend(counts.entries.iter().map(|e| (e.start + e.length as u64) as i64));
        let numbers: Vec<i64> = counts.entries.iter().map(|e| e.count).collect();
        let times: Vec<i64> = counts.entries.iter().map(|e| e.latest).collect();
        let parts =
            [PyBytes::new(py, &counts.arena), to_bytes(py, &offsets), to_bytes(py, &numbers), to_bytes(py, &times)];
        PyTuple::new(py, parts)
    }

    fn clear(&mut self) {
        self.0.clear();
    }
}

impl Tally {
    fn check_room(&self, more: usize) -> PyResult<()> {
        if self.0.entries.len() + more >= u32::MAX as usize / 2 {
            return Err(PyValueError::new_err("there are too many keys to count at once"));
        }
        Ok(())
    }
}
