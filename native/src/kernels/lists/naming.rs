//! Entries by their names: key, time and sequence number.

use super::groups::{COMMITTED, Generation, Item};
use super::writing::Texts;
use super::{Lists, Values};
use crate::refused::Refused;

impl Lists {
    /// The names, key, time and sequence number, of entries that `within` found last.
    pub fn names(&self, places: &[i64]) -> Result<(Vec<u8>, Vec<i64>), Refused> {
        let mut names = Texts::default();
        for &place in places {
            let (group, item) = self.found_at(place)?;
            names.push(&[&group.key, &item.time.to_be_bytes(), &item.sequence.to_be_bytes()]);
        }
        Ok((names.data, names.ends))
    }

    /// The values of entries by their names. Of those that are not known here, the store may have none.
    pub fn named<'a>(&self, names: impl Iterator<Item = &'a [u8]>) -> Result<Values, Refused> {
        let mut out = Values::default();
        for name in names {
            let behind = name.split_last_chunk::<4>();
            let split = behind.and_then(|(rest, sequence)| Some((rest.split_last_chunk::<8>()?, sequence)));
            let Some(((key, time), sequence)) = split else {
                return Err(Refused::Value("a name has no time and number behind its key".into()));
            };
            let (time, sequence) = (i64::from_be_bytes(*time), u32::from_be_bytes(*sequence));
            let segment = time.div_euclid(self.segment_ms);
            let stored = Item { time, append: COMMITTED, sequence };
            let item = self.item(segment, key, time, sequence).unwrap_or(&stored);
            self.add_value(&mut out, segment, key, item);
        }
        Ok(out)
    }

    fn item(&self, segment: i64, key: &[u8], time: i64, sequence: u32) -> Option<&Item> {
        let hash = self.hash(segment, key);
        let of = |generation: &Generation| generation.find(hash, segment, key);
        let group = match of(&self.young) {
            Some(at) => &self.young.groups[at as usize],
            None => &self.old.groups[of(&self.old)? as usize],
        };
        let at = group.items.binary_search_by_key(&(time, sequence), |item| (item.time, item.sequence)).ok()?;
        Some(&group.items[at])
    }

    /// The sequence numbers of the entries of the last append, in their order.
    pub fn numbers(&self) -> &[u32] {
        &self.numbers
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{append, name, times};
    use super::*;

    #[test]
    fn entries_have_names_by_which_their_values_are_found() {
        let mut lists = Lists::new(10);
        lists.begin(i64::MAX, -1);
        append(&mut lists, &[(b"a", 5, b"1"), (b"a", 15, b"2")], &[], false);
        lists.committed(0);
        append(&mut lists, &[(b"b", 5, b"3"), (b"a", 5, b"4"), (b"a", 2, b"late")], &[0, 0, 1], false);
        assert_eq!(lists.numbers(), [0, 1, 0]);
        assert_eq!(times(&mut lists, b"a", 4, 20), [5, 5, 15]);
        let (data, ends) = lists.names(&[1, 2]).unwrap();
        assert_eq!((data, ends), ([name(b"a", 5, 1), name(b"a", 15, 0)].concat(), vec![0, 13, 26]));
        assert!(matches!(lists.names(&[3]), Err(Refused::Index(_))));
        let names = [name(b"a", 5, 1), name(b"a", 5, 0), name(b"b", 5, 0), name(b"nobody", 25, 3)];
        let found = lists.named(names.iter().map(|name| &name[..])).unwrap();
        assert_eq!((found.data, found.ends, found.missing), (b"43".to_vec(), vec![0, 1, 1, 2, 2], vec![1, 3]));
        let stored = [&0i64.to_be_bytes()[..], &names[1], &2i64.to_be_bytes()[..], &names[3]].concat();
        assert_eq!((found.keys, found.key_ends), (stored, vec![0, 21, 47]));
        assert!(matches!(lists.named([&b"too short"[..]].into_iter()), Err(Refused::Value(_))));
        // groups that were not used lately are found, too
        lists.committed(0);
        append(&mut lists, &[(b"c", 7, b"5")], &[], false);
        lists.old = std::mem::take(&mut lists.young);
        assert_eq!(lists.named([&name(b"c", 7, 0)[..]].into_iter()).unwrap().data, b"5");
    }
}
