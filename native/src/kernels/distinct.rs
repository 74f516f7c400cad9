//! The distinct byte strings of one batch, numbered in the order of first appearance.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::RandomState;

const FIRST_SLOTS: usize = 1024;
/// Mask of a slot's upper half: enough bits of a hash that different strings are seldom compared.
const TAG: u64 = 0xffff_ffff_0000_0000;

struct Entry {
    hash: u64,
    start: u32,
    length: u32,
}

/// For less than 2^31 bytes of strings.
pub struct Distinct {
    hasher: RandomState,
    /// By hash: its upper half, and one more than the place of an entry; 0: free. At least twice as many slots as
    /// entries.
    slots: Vec<u64>,
    entries: Vec<Entry>,
    arena: Vec<u8>,
}

impl Distinct {
    pub fn new() -> Self {
        Distinct { hasher: RandomState::default(), slots: vec![0; FIRST_SLOTS], entries: vec![], arena: vec![] }
    }

    /// The number of a string, given now if it has none.
    #[inline(always)]
    pub fn code(&mut self, value: &[u8]) -> i32 {
        let hash = self.hash(value);
        match self.find(hash, value) {
            Ok(place) => place as i32,
            Err(at) => self.add(value, hash, at),
        }
    }

    /// Whether the string has a number.
    #[inline(always)]
    pub fn has(&self, value: &[u8]) -> bool {
        self.find(self.hash(value), value).is_ok()
    }

    #[inline(always)]
    fn hash(&self, value: &[u8]) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(value);
        hasher.finish()
    }

    /// The number of a string, or the free slot for it.
    #[inline(always)]
    fn find(&self, hash: u64, value: &[u8]) -> Result<usize, usize> {
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            let slot = self.slots[at];
            if slot == 0 {
                return Err(at);
            }
            if (slot ^ hash) & TAG == 0 {
                let place = (slot & !TAG) as usize - 1;
                if self.get(place) == value {
                    return Ok(place);
                }
            }
            at = (at + 1) & mask;
        }
    }

    /// The string with this number.
    #[inline(always)]
    pub fn get(&self, place: usize) -> &[u8] {
        let entry = &self.entries[place];
        &self.arena[entry.start as usize..entry.start as usize + entry.length as usize]
    }

    /// How many strings there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// The length of all strings together.
    pub fn bytes(&self) -> usize {
        self.arena.len()
    }

    pub fn used_bytes(&self) -> usize {
        size_of_val(&self.slots[..]) + size_of_val(&self.entries[..]) + self.arena.len()
    }

    fn add(&mut self, value: &[u8], hash: u64, at: usize) -> i32 {
        let place = self.entries.len();
        self.entries.push(Entry { hash, start: self.arena.len() as u32, length: value.len() as u32 });
        self.arena.extend_from_slice(value);
        self.slots[at] = hash & TAG | (place as u64 + 1);
        if 2 * self.entries.len() > self.slots.len() {
            self.grow();
        }
        place as i32
    }

    fn grow(&mut self) {
        let mask = 2 * self.slots.len() - 1;
        self.slots = vec![0; mask + 1];
        for (place, entry) in self.entries.iter().enumerate() {
            let mut at = entry.hash as usize & mask;
            while self.slots[at] != 0 {
                at = (at + 1) & mask;
            }
            self.slots[at] = entry.hash & TAG | (place as u64 + 1);
        }
    }

    /// All strings one after the other, and where each begins and ends.
    pub fn column(&self) -> (&[u8], Vec<i64>) {
        let ends = self.entries.iter().map(|entry| i64::from(entry.start) + i64::from(entry.length));
        (&self.arena, std::iter::once(0).chain(ends).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_numbered_by_first_appearance() {
        let mut distinct = Distinct::new();
        let codes: Vec<i32> = ["b", "", "a", "b", "", "c"].iter().map(|s| distinct.code(s.as_bytes())).collect();
        assert_eq!(codes, [0, 1, 2, 0, 1, 3]);
        assert_eq!(distinct.column(), (&b"bac"[..], vec![0, 1, 1, 2, 3]));
    }

    #[test]
    fn strings_are_found_again() {
        let mut distinct = Distinct::new();
        assert!(!distinct.has(b"") && distinct.len() == 0);
        for text in [&b"ab"[..], b"", b"c"] {
            distinct.code(text);
        }
        assert!(distinct.has(b"ab") && distinct.has(b"") && !distinct.has(b"a"));
        assert_eq!((distinct.get(0), distinct.get(1), distinct.len(), distinct.bytes()), (&b"ab"[..], &b""[..], 3, 3));
    }

    #[test]
    fn numbers_stay_while_the_table_grows() {
        let mut distinct = Distinct::new();
        let texts: Vec<String> = (0..5 * FIRST_SLOTS).map(|i| format!("word {i}")).collect();
        for _ in 0..2 {
            for (i, text) in texts.iter().enumerate() {
                assert_eq!(distinct.code(text.as_bytes()), i as i32);
            }
        }
        assert_eq!(distinct.column().1.len(), texts.len() + 1);
    }
}
