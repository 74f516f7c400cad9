//! The entries of a key in a segment of time, and an index of such groups.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::RandomState;
use hashbrown::HashTable;

const GROUP_BYTES: usize = size_of::<Group>() + 9;

#[derive(Clone, Copy)]
pub(super) struct Item {
    pub(super) time: i64,
    /// The number of its append; `COMMITTED` if it was read.
    pub(super) append: u64,
    pub(super) sequence: u32,
}

pub(super) const COMMITTED: u64 = 0;

#[derive(Default)]
pub(super) struct Group {
    pub(super) segment: i64,
    pub(super) key: Box<[u8]>,
    pub(super) items: Vec<Item>,
    pub(super) whole: bool,
}

impl Group {
    pub(super) fn is(&self, segment: i64, key: &[u8]) -> bool {
        self.segment == segment && *self.key == *key
    }

    /// Where the items of a time end, and the number of the last of them.
    pub(super) fn end_of(&self, time: i64) -> (usize, Option<u32>) {
        if self.items.last().is_none_or(|last| last.time < time) {
            return (self.items.len(), None);
        }
        let end = self.items.partition_point(|item| item.time <= time);
        (end, self.items[..end].last().filter(|last| last.time == time).map(|last| last.sequence))
    }

    pub(super) fn bytes(&self) -> usize {
        GROUP_BYTES + self.key.len() + self.items.capacity() * size_of::<Item>()
    }
}

/// Groups by name. Those that were taken out leave an empty one behind.
#[derive(Default)]
pub(super) struct Generation {
    index: HashTable<u32>,
    pub(super) groups: Vec<Group>,
    pub(super) bytes: usize,
}

impl Generation {
    pub(super) fn find(&self, hash: u64, segment: i64, key: &[u8]) -> Option<u32> {
        self.index.find(hash, |&at| self.groups[at as usize].is(segment, key)).copied()
    }

    pub(super) fn add(&mut self, hasher: &RandomState, hash: u64, group: Group) -> u32 {
        let at = self.groups.len() as u32;
        self.bytes += group.bytes();
        self.groups.push(group);
        let groups = &self.groups;
        self.index.insert_unique(hash, at, |&at| {
            let group = &groups[at as usize];
            hash_of(hasher, group.segment, &group.key)
        });
        at
    }

    pub(super) fn take(&mut self, hash: u64, segment: i64, key: &[u8]) -> Option<Group> {
        let groups = &self.groups;
        let (at, _) = self.index.find_entry(hash, |&at| groups[at as usize].is(segment, key)).ok()?.remove();
        let group = std::mem::take(&mut self.groups[at as usize]);
        self.bytes -= group.bytes();
        Some(group)
    }

    /// The hashes of the groups that have entries, or may have some that are not here.
    pub(super) fn with_entries(&self, hasher: &RandomState) -> Vec<u64> {
        let groups = self.index.iter().map(|&at| &self.groups[at as usize]);
        let some = groups.filter(|group| !group.whole || !group.items.is_empty());
        some.map(|group| hash_of(hasher, group.segment, &group.key)).collect()
    }

    /// With the groups of segments from `floor` on only.
    pub(super) fn from(mut self, floor: i64, hasher: &RandomState) -> Generation {
        let mut kept = Generation::default();
        for &at in &self.index {
            let group = std::mem::take(&mut self.groups[at as usize]);
            if group.segment >= floor {
                kept.add(hasher, hash_of(hasher, group.segment, &group.key), group);
            }
        }
        kept
    }
}

pub(super) fn hash_of(hasher: &RandomState, segment: i64, key: &[u8]) -> u64 {
    let mut hasher = hasher.build_hasher();
    hasher.write_i64(segment);
    hasher.write(key);
    hasher.finish()
}
