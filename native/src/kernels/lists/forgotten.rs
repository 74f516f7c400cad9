//! The groups that were forgotten to free memory, as a Bloom filter: of a group that is not in it, the entries are here, so
//! that it need not be read. It says "perhaps" of a few groups in a hundred that were never added; such a read finds nothing.

/// How many bits a group sets.
const PROBES: u64 = 5;
/// With fewer bits for each group the filter says "perhaps" too often.
const BITS_PER_GROUP_MIN: usize = 8;
/// Less memory is not worth a filter.
const BYTES_MIN: usize = 1 << 10;

#[derive(Default)]
pub(super) struct Forgotten {
    /// A power of two of words; none before the first group.
    words: Vec<u64>,
    groups: usize,
}

impl Forgotten {
    pub(super) fn bytes(&self) -> usize {
        8 * self.words.len()
    }

    /// Makes room for this many groups more, in at most `max_bytes`. Returns whether there is.
    pub(super) fn make_room(&mut self, groups: usize, max_bytes: usize) -> bool {
        if self.words.is_empty() && max_bytes >= BYTES_MIN {
            self.words = vec![0; (max_bytes / 8 + 1).next_power_of_two() / 2];
        }
        64 * self.words.len() >= BITS_PER_GROUP_MIN * (self.groups + groups) && !self.words.is_empty()
    }

    /// Adds a group by its hash. There must be room.
    pub(super) fn add(&mut self, hash: u64) {
        self.groups += 1;
        for (word, bit) in places(hash, self.words.len()) {
            self.words[word] |= bit;
        }
    }

    /// Whether the group with this hash may have been added.
    pub(super) fn has(&self, hash: u64) -> bool {
        !self.words.is_empty() && places(hash, self.words.len()).all(|(word, bit)| self.words[word] & bit != 0)
    }
}

/// The words, and the bit in each, of a hash.
fn places(hash: u64, words: usize) -> impl Iterator<Item = (usize, u64)> {
    let step = (hash >> 32) | 1;
    (0..PROBES).map(move |i| {
        let at = hash.wrapping_add(i.wrapping_mul(step.wrapping_mul(0x9E37_79B9_7F4A_7C15)));
        ((at >> 6) as usize & (words - 1), 1 << (at & 63))
    })
}

#[cfg(test)]
mod tests {
    use std::hash::BuildHasher;

    use foldhash::fast::RandomState;

    use super::*;

    #[test]
    fn what_was_added_is_there_and_little_else() {
        let hasher = RandomState::default();
        let mut forgotten = Forgotten::default();
        assert!(!forgotten.has(1) && forgotten.bytes() == 0);
        assert!(forgotten.make_room(10_000, 20_000));
        for i in 0..10_000u64 {
            forgotten.add(hasher.hash_one(i));
        }
        assert!(forgotten.bytes() <= 20_000);
        assert!((0..10_000u64).all(|i| forgotten.has(hasher.hash_one(i))));
        let wrong = (10_000..20_000u64).filter(|i| forgotten.has(hasher.hash_one(i))).count();
        assert!(wrong < 600, "{wrong} of 10,000");
    }

    #[test]
    fn there_is_no_room_for_more_than_memory_allows() {
        let mut forgotten = Forgotten::default();
        assert!(!forgotten.make_room(1, 1_000), "too little to be worth it");
        assert!(!forgotten.make_room(2_000, 1_024));
        assert!(forgotten.make_room(1_000, 1_024) && forgotten.bytes() == 1_024);
        (0..1_000).for_each(|i| forgotten.add(i << 20));
        assert!(forgotten.make_room(24, 1_024) && !forgotten.make_room(25, 1_024));
    }
}
