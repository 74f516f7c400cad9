//! An index of keys since the last commit, each with what its records come to, and with the store's value in it as soon as
//! that is known.
//!
//! A key costs a slot of the index, an entry and its bytes. The slots and entries of a block of keys are prefetched
//! before the first of them is compared, so that memory serves all of them at once.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::RandomState;

use super::entry_map::{AHEAD, Entered};
use super::rows::Rows;
use crate::refused::Refused;

const BLOCK: usize = 32;
const FIRST_SLOTS: usize = 1024;

struct Entry<T> {
    hash: u64,
    start: u64,
    length: u32,
    value: T,
}

/// Takes the store's value of a key into the value of an entry. An error has changed nothing.
pub trait Based<T> {
    fn add_stored(&mut self, value: &mut T, stored: &[u8]) -> Result<(), &'static str>;
}

pub struct KeyIndex<T> {
    hasher: RandomState,
    /// By hash, one more than the place of an entry; 0: free. Twice as many as entries at least.
    slots: Vec<u32>,
    entries: Vec<Entry<T>>,
    arena: Vec<u8>,
    /// How many entries include the store's value, except for the missing ones.
    based: usize,
    /// The places of entries below `based` that the store's memory does not know.
    missing: Vec<u32>,
    /// How many keys there were before the last `clear`, until the index is made.
    expected: usize,
}

impl<T> KeyIndex<T> {
    pub fn new() -> Self {
        KeyIndex {
            hasher: RandomState::default(),
            slots: vec![],
            entries: vec![],
            arena: vec![],
            based: 0,
            missing: vec![],
            expected: 0,
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
    }

    pub fn used_bytes(&self) -> usize {
        4 * self.slots.len() + size_of::<Entry<T>>() * self.entries.len() + self.arena.len()
    }

    /// Adds `many` items: `row` returns the row of an item's key. What a key's first item is, `first` returns; later ones
    /// `add` adds.
    pub fn add<C>(
        &mut self,
        rows: &Rows,
        many: usize,
        context: &mut C,
        row: impl Fn(usize) -> usize,
        first: impl Fn(&mut C, usize) -> T,
        add: impl Fn(&mut C, &mut T, usize),
    ) {
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
                hasher.write(rows.bytes(row(i)));
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
            for (&hash, i) in hashes.iter().zip(start..stop) {
                match self.find(hash, rows.bytes(row(i))) {
                    Ok(place) => add(context, &mut self.entries[place].value, i),
                    Err(slot) => {
                        let value = first(context, i);
                        self.insert(slot, hash, rows.bytes(row(i)), value);
                    }
                }
            }
            start = stop;
        }
    }

    /// The place of the key's entry, or the slot for a new one.
    #[inline(always)]
    fn find(&self, hash: u64, key: &[u8]) -> Result<usize, usize> {
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            let slot = self.slots[at];
            if slot == 0 {
                return Err(at);
            }
            let entry = &self.entries[slot as usize - 1];
            if entry.hash == hash && self.key(entry) == key {
                return Ok(slot as usize - 1);
            }
            at = (at + 1) & mask;
        }
    }

    #[inline(always)]
    fn insert(&mut self, slot: usize, hash: u64, key: &[u8], value: T) {
        let start = self.arena.len() as u64;
        self.arena.extend_from_slice(key);
        self.entries.push(Entry { hash, start, length: key.len() as u32, value });
        self.slots[slot] = self.entries.len() as u32;
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

    fn key(&self, entry: &Entry<T>) -> &[u8] {
        &self.arena[entry.start as usize..entry.start as usize + entry.length as usize]
    }

    /// All keys one after the other, and where each begins and ends.
    pub fn keys(&self) -> (&[u8], Vec<i64>) {
        let ends = self.entries.iter().map(|entry| (entry.start + u64::from(entry.length)) as i64);
        (&self.arena, std::iter::once(0).chain(ends).collect())
    }

    /// What each key's items come to, in the order of the first ones.
    pub fn values(&self) -> impl Iterator<Item = &T> + '_ {
        self.entries.iter().map(|entry| &entry.value)
    }

    /// The places of the entries without the store's value.
    fn unbased(&self) -> impl Iterator<Item = usize> + '_ {
        self.missing.iter().map(|&place| place as usize).chain(self.based..self.entries.len())
    }

    /// The keys without the store's value.
    pub fn unbased_keys(&self) -> impl Iterator<Item = &[u8]> + '_ {
        self.unbased().map(|place| self.key(&self.entries[place]))
    }

    /// Takes in the store's value of an entry's key. One that cannot be taken in stays unbased: the caller that takes the
    /// values out asks for it again.
    fn add_stored(
        &mut self,
        place: usize,
        stored: &[u8],
        into: &mut impl Based<T>,
        problem: &mut Option<&'static str>,
    ) {
        if let Err(found) = into.add_stored(&mut self.entries[place].value, stored) {
            *problem = Some(found);
            self.missing.push(place as u32);
        }
    }

    /// Takes in what the memory of a store knows of the `unbased_keys`; the others stay so, unless it is the `whole` store.
    /// An error names what is wrong with one of the stored values; all others are taken in.
    pub fn base_from(
        &mut self,
        known: &mut Entered,
        whole: bool,
        into: &mut impl Based<T>,
    ) -> Result<(), &'static str> {
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
                            self.add_stored(place, stored, into, &mut problem);
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

    /// Takes in what the store holds of the `unbased_keys`, in their order. An error says what is wrong with one of the
    /// stored values; all others are taken in.
    pub fn base<'a>(
        &mut self,
        stored: impl Iterator<Item = Option<&'a [u8]>>,
        into: &mut impl Based<T>,
    ) -> Result<(), &'static str> {
        let places: Vec<usize> = self.unbased().collect();
        let mut problem = None;
        self.missing.clear();
        for (place, value) in places.into_iter().zip(stored) {
            if let Some(value) = value {
                self.add_stored(place, value, into, &mut problem);
            }
        }
        self.based = self.entries.len();
        problem.map_or(Ok(()), Err)
    }

    /// Refuses more keys than the index can number.
    pub fn check_room(&self, more: usize) -> Result<(), Refused> {
        if self.entries.len() + more >= u32::MAX as usize / 2 {
            return Err(Refused::Value("there are too many keys to count at once".into()));
        }
        Ok(())
    }
}
