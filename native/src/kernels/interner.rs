//! Dictionary coding: byte strings to small integers, with one object per distinct value, kept from batch to batch.
//!
//! Codes are dense per batch, in the order of first appearance, so that work per distinct value is only done for the
//! values of the batch. Between batches a value keeps its object, until the interner has grown over its limit and is
//! emptied.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use super::rows::Rows;
use crate::refused::Refused;

/// Rough memory per value in addition to its bytes: entry, index and the Python object with its header.
const ENTRY_BYTES: usize = 128;

struct Entry {
    start: usize,
    length: usize,
    hash: u64,
    batch: u64,
    code: i32,
}

/// The part that works without the GIL.
pub struct Codes {
    hasher: RandomState,
    index: HashTable<u32>,
    entries: Vec<Entry>,
    arena: Vec<u8>,
    batch: u64,
    /// By code, the entries of the batch's distinct values; `None` is null.
    used: Vec<Option<u32>>,
    null_code: Option<i32>,
}

impl Codes {
    pub fn new() -> Self {
        Codes {
            hasher: RandomState::default(),
            index: HashTable::new(),
            entries: vec![],
            arena: vec![],
            batch: 0,
            used: vec![],
            null_code: None,
        }
    }

    pub fn bytes_held(&self) -> usize {
        self.arena.len() + self.entries.len() * ENTRY_BYTES
    }

    fn clear(&mut self) {
        self.index.clear();
        self.entries.clear();
        self.arena.clear();
    }

    pub fn begin_batch(&mut self) {
        self.batch += 1;
        self.used.clear();
        self.null_code = None;
    }

    /// How many distinct values the batch has so far.
    pub fn distinct(&self) -> usize {
        self.used.len()
    }

    /// The batch's code of null.
    pub fn null(&mut self) -> i32 {
        let next = self.used.len() as i32;
        *self.null_code.get_or_insert_with(|| {
            self.used.push(None);
            next
        })
    }

    /// The batch's code of a value. Codes are below the number of rows, which `encode` holds below 2^31.
    #[inline(always)]
    pub fn code(&mut self, value: &[u8]) -> i32 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(value);
        let hash = hasher.finish();
        let (entries, arena) = (&self.entries, &self.arena);
        let same = |&place: &u32| {
            let entry = &entries[place as usize];
            entry.hash == hash && arena[entry.start..entry.start + entry.length] == *value
        };
        match self.index.find(hash, same) {
            Some(&place) => {
                let entry = &mut self.entries[place as usize];
                if entry.batch != self.batch {
                    entry.batch = self.batch;
                    entry.code = self.used.len() as i32;
                    self.used.push(Some(place));
                }
                entry.code
            }
            None => self.add(value, hash),
        }
    }

    fn add(&mut self, value: &[u8], hash: u64) -> i32 {
        let place = self.entries.len() as u32;
        let code = self.used.len() as i32;
        let start = self.arena.len();
        self.arena.extend_from_slice(value);
        self.entries.push(Entry { start, length: value.len(), hash, batch: self.batch, code });
        let entries = &self.entries;
        self.index.insert_unique(hash, place, |&other| entries[other as usize].hash);
        self.used.push(Some(place));
        code
    }

    fn bytes_of(&self, place: usize) -> &[u8] {
        let entry = &self.entries[place];
        &self.arena[entry.start..entry.start + entry.length]
    }

    pub fn encode(&mut self, rows: &Rows) -> Vec<i32> {
        (0..rows.len())
            .map(|row| match rows.get(row) {
                Some(value) => self.code(value),
                None => self.null(),
            })
            .collect()
    }
}

/// `Codes` with an object of each entry.
pub struct Interned<T> {
    pub codes: Codes,
    objects: Vec<T>,
    bytes_max: usize,
}

impl<T> Interned<T> {
    pub fn new(bytes_max: usize) -> Self {
        Interned { codes: Codes::new(), objects: vec![], bytes_max }
    }

    /// Call it before the rows of a batch. The limit applies to what stays for the next batch, not to what one batch
    /// adds.
    pub fn begin_batch(&mut self) {
        if self.codes.bytes_held() > self.bytes_max || self.codes.entries.len() > i32::MAX as usize / 2 {
            self.clear();
        }
        self.codes.begin_batch();
    }

    /// After them: the objects of the batch's distinct values in the order of their codes, `None` for null. `make` gives
    /// those of new values; if it fails, the interner is emptied.
    pub fn values<E>(
        &mut self,
        mut make: impl FnMut(&[u8]) -> Result<T, E>,
    ) -> Result<impl ExactSizeIterator<Item = Option<&T>>, E> {
        for place in self.objects.len()..self.codes.entries.len() {
            match make(self.codes.bytes_of(place)) {
                Ok(object) => self.objects.push(object),
                Err(error) => {
                    self.clear();
                    return Err(error);
                }
            }
        }
        Ok(self.codes.used.iter().map(|place| place.map(|p| &self.objects[p as usize])))
    }

    fn clear(&mut self) {
        self.codes.clear();
        self.objects.clear();
    }
}

/// Refuses more rows than codes can count.
pub fn check_rows(rows: usize) -> Result<(), Refused> {
    if rows >= i32::MAX as usize {
        return Err(Refused::Value(format!("{rows} rows are too many for one column of codes; take fewer at a time")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: &[u8]) -> Result<String, String> {
        String::from_utf8(bytes.to_vec()).map_err(|_| "not UTF-8".to_string())
    }

    fn values(interned: &mut Interned<String>) -> Vec<Option<String>> {
        interned.values(text).unwrap().map(|value| value.cloned()).collect()
    }

    #[test]
    fn codes_are_dense_in_each_batch() {
        let mut interned = Interned::new(1 << 20);
        let mut encode = |offsets: &[i64], nulls: &[u8]| {
            interned.begin_batch();
            let codes = interned.codes.encode(&Rows::of(b"abcab", offsets, Some(nulls)).unwrap());
            (codes, values(&mut interned))
        };
        let some = |text: &str| Some(text.to_string());
        let first = encode(&[0, 1, 2, 2, 3, 4], &[0, 0, 1, 0, 0]);
        assert_eq!(first, (vec![0, 1, 2, 3, 0], vec![some("a"), some("b"), None, some("c")]));
        // Values that are known keep no code of an earlier batch.
        assert_eq!(encode(&[2, 3, 4], &[0, 0]), (vec![0, 1], vec![some("c"), some("a")]));
        assert_eq!(encode(&[2, 2, 2], &[1, 1]), (vec![0, 0], vec![None]));
    }

    #[test]
    fn objects_are_made_once_until_the_limit_is_passed() {
        let mut interned = Interned::new(3 * ENTRY_BYTES);
        let made = std::cell::Cell::new(0);
        let mut batch = |texts: &[&str]| {
            interned.begin_batch();
            for text in texts {
                interned.codes.code(text.as_bytes());
            }
            let count = |bytes: &[u8]| {
                made.set(made.get() + 1);
                text(bytes)
            };
            assert_eq!(interned.values(count).unwrap().map(Option::unwrap).collect::<Vec<_>>(), texts);
            made.get()
        };
        assert_eq!(batch(&["a", "b"]), 2);
        assert_eq!(batch(&["b", "a"]), 2);
        assert_eq!(batch(&["a", "c", "d"]), 4);
        assert_eq!(batch(&["a"]), 5, "over its limit it is emptied");
    }

    #[test]
    fn a_value_that_cannot_be_made_leaves_nothing_behind() {
        let mut interned = Interned::new(1 << 20);
        interned.begin_batch();
        interned.codes.code(b"good");
        interned.codes.code(b"\xff");
        assert!(interned.values(text).is_err());
        assert_eq!(interned.codes.bytes_held(), 0);
        interned.begin_batch();
        assert_eq!((interned.codes.code(b"good"), interned.codes.null()), (0, 1));
        assert_eq!(values(&mut interned), [Some("good".to_string()), None]);
    }

    #[test]
    fn more_rows_than_codes_are_refused() {
        assert_eq!(check_rows(i32::MAX as usize - 1), Ok(()));
        assert!(check_rows(i32::MAX as usize).is_err());
    }
}
