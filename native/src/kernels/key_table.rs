//! Values by their names, each at a place that is its own until it is removed.

use std::mem::take;
use std::ops::{Index, IndexMut};

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use super::hash_of;

/// What knows its name. The default stands where one was removed.
pub trait Named: Default {
    fn name(&self) -> &[u8];
}

pub struct KeyTable<T> {
    hasher: RandomState,
    index: HashTable<u32>,
    all: Vec<T>,
    /// Places of values that were removed.
    free: Vec<u32>,
}

impl<T: Named> KeyTable<T> {
    pub fn new() -> Self {
        KeyTable { hasher: RandomState::default(), index: HashTable::new(), all: vec![], free: vec![] }
    }

    pub fn len(&self) -> usize {
        self.index.len()
    }

    pub fn find(&self, name: &[u8]) -> Option<u32> {
        self.index.find(hash_of(&self.hasher, name), |&at| self.all[at as usize].name() == name).copied()
    }

    /// The places of names. `None`: one is not here.
    pub fn places(&self, names: &[&[u8]]) -> Option<Vec<u32>> {
        names.iter().map(|name| self.find(name)).collect()
    }

    /// Which of the names are not here.
    pub fn missing(&self, names: &[&[u8]]) -> Vec<usize> {
        (0..names.len()).filter(|&place| self.find(names[place]).is_none()).collect()
    }

    /// Adds a value whose name is not here, and returns its place.
    pub fn enter(&mut self, value: T) -> u32 {
        let at = match self.free.pop() {
            Some(at) => {
                self.all[at as usize] = value;
                at
            }
            None => {
                self.all.push(value);
                self.all.len() as u32 - 1
            }
        };
        let (all, hasher) = (&self.all, &self.hasher);
        let hash = |&at: &u32| hash_of(hasher, all[at as usize].name());
        self.index.insert_unique(hash(&at), at, hash);
        at
    }

    pub fn remove(&mut self, name: &[u8]) -> Option<T> {
        let (all, hash) = (&self.all, hash_of(&self.hasher, name));
        let (at, _) = self.index.find_entry(hash, |&at| all[at as usize].name() == name).ok()?.remove();
        self.free.push(at);
        Some(take(&mut self.all[at as usize]))
    }

    /// Removes the values that `keep` is false of. The others keep their places.
    pub fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        let (all, free) = (&mut self.all, &mut self.free);
        self.index.retain(|&mut at| {
            let kept = keep(&all[at as usize]);
            if !kept {
                all[at as usize] = T::default();
                free.push(at);
            }
            kept
        });
    }

    /// Removes all, and returns them, with what stands where one was removed before.
    pub fn take_all(&mut self) -> Vec<T> {
        self.index.clear();
        self.free.clear();
        take(&mut self.all)
    }

    /// All values, with what stands where one was removed.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.all.iter()
    }
}

impl<T> Index<u32> for KeyTable<T> {
    type Output = T;

    fn index(&self, at: u32) -> &T {
        &self.all[at as usize]
    }
}

impl<T> IndexMut<u32> for KeyTable<T> {
    fn index_mut(&mut self, at: u32) -> &mut T {
        &mut self.all[at as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Named for Vec<u8> {
        fn name(&self) -> &[u8] {
            self
        }
    }

    #[test]
    fn a_place_is_given_again_once_its_value_was_removed() {
        let mut table: KeyTable<Vec<u8>> = KeyTable::new();
        let places: Vec<u32> = [b"a", b"b", b"c"].iter().map(|name| table.enter(name.to_vec())).collect();
        assert_eq!(
            (places, table.places(&[b"c", b"a"]), table.places(&[b"d"])),
            (vec![0, 1, 2], Some(vec![2, 0]), None)
        );
        assert_eq!((table.remove(b"b"), table.remove(b"b"), table.len()), (Some(b"b".to_vec()), None, 2));
        assert_eq!((table.missing(&[b"a", b"b"]), table.enter(b"d".to_vec())), (vec![1], 1));
        table.retain(|name| name == b"d");
        assert_eq!((table.len(), table.find(b"d"), table.find(b"a")), (1, Some(1), None));
        table[1].clear();
        assert_eq!((table.take_all().len(), table.len(), table.iter().count()), (3, 0, 0));
    }
}
