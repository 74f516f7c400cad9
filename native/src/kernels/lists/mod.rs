//! Which entries each key of a list store has, and those entries that no commit has stored yet.
//!
//! A group is the entries of one key in one segment of time, by time and sequence number. A group is whole, or it holds
//! what was appended since the group was made here. Of every entry from `known_from` on, the group is here: so one that is
//! not, of a segment that begins then or later, has no entries; and what is appended from then on has its number without
//! a read. To free memory, the groups that were not used lately go, and are noted as forgotten; when there are too many of
//! these, `known_from` moves behind all entries.

mod forgotten;
mod groups;
mod naming;
mod writing;

use std::collections::{BTreeSet, HashMap};

use foldhash::fast::RandomState;

use self::forgotten::Forgotten;
use self::groups::{COMMITTED, Generation, Group, Item, hash_of};
use self::writing::Texts;
use crate::refused::Refused;

/// What follows a key in the name of an entry: time and sequence number.
const BEHIND_KEY: usize = 12;

/// The entries of some keys in a range of time.
#[derive(Default)]
pub struct Within {
    pub counts: Vec<i64>,
    pub times: Vec<i64>,
    /// The groups, by segment and key, that must be loaded before anything can be said.
    pub unknown: Vec<(i64, Vec<u8>)>,
}

/// Values that no commit has stored yet, in the order in which they were asked for, and the stored keys of the others.
pub struct Values {
    pub data: Vec<u8>,
    pub ends: Vec<i64>,
    pub missing: Vec<i64>,
    pub keys: Vec<u8>,
    pub key_ends: Vec<i64>,
}

impl Default for Values {
    fn default() -> Self {
        Values { data: vec![], ends: vec![0], missing: vec![], keys: vec![], key_ends: vec![0] }
    }
}

pub struct Lists {
    hasher: RandomState,
    segment_ms: i64,
    young: Generation,
    old: Generation,
    forgotten: Forgotten,
    known_from_ms: i64,
    latest_ms: i64,
    /// No segment below it has entries.
    first: i64,
    /// The segments that were appended to.
    segments: BTreeSet<i64>,
    /// How many entries commits have stored.
    stored: u64,
    keys: Texts,
    values: Texts,
    times: Vec<i64>,
    /// By key, where entries stand that had expired when they came.
    expired: HashMap<Box<[u8]>, usize>,
    /// Values that took the place of others.
    replaced: HashMap<usize, Box<[u8]>>,
    /// The items that were last found, with their groups.
    found: Vec<(u32, Item)>,
    /// The sequence numbers of the entries of the last append.
    numbers: Vec<u32>,
}

impl Lists {
    pub fn new(segment_ms: i64) -> Self {
        Lists {
            hasher: RandomState::default(),
            segment_ms: segment_ms.max(1),
            young: Generation::default(),
            old: Generation::default(),
            forgotten: Forgotten::default(),
            known_from_ms: 0,
            latest_ms: -1,
            first: i64::MAX,
            segments: BTreeSet::new(),
            stored: 0,
            keys: Texts::default(),
            values: Texts::default(),
            times: vec![],
            expired: HashMap::new(),
            replaced: HashMap::new(),
            found: vec![],
            numbers: vec![],
        }
    }

    /// Forgets everything, and begins over a store that has no entries in a segment below `first`, and none after `latest_ms`.
    pub fn begin(&mut self, first: i64, latest_ms: i64) {
        *self = Lists::new(self.segment_ms);
        self.first = first;
        self.latest_ms = latest_ms;
        self.known_from_ms = latest_ms.saturating_add(1);
    }

    pub fn latest_ms(&self) -> i64 {
        self.latest_ms
    }

    /// How many entries no commit has stored yet.
    pub fn len(&self) -> usize {
        self.times.len()
    }

    pub fn uncommitted_bytes(&self) -> usize {
        if self.times.is_empty() { 0 } else { self.buffered_bytes() }
    }

    fn buffered_bytes(&self) -> usize {
        self.keys.bytes() + self.values.bytes() + 8 * self.times.capacity()
    }

    pub fn used_bytes(&self) -> usize {
        let groups = self.young.bytes + self.old.bytes + self.forgotten.bytes();
        let last = self.found.capacity() * size_of::<(u32, Item)>() + 4 * self.numbers.capacity();
        groups + self.buffered_bytes() + last
    }

    fn hash(&self, segment: i64, key: &[u8]) -> u64 {
        hash_of(&self.hasher, segment, key)
    }

    /// Whether all entries of a group that is not here, from `time` on, are known: there are none.
    fn is_known(&self, segment: i64, key: &[u8], time: i64) -> bool {
        let begun = time.max(segment.saturating_mul(self.segment_ms)) >= self.known_from_ms;
        begun && !self.forgotten.has(self.hash(segment, key))
    }

    /// The place of a group among the young ones, if it is here.
    fn group(&mut self, segment: i64, key: &[u8]) -> Option<u32> {
        let hash = self.hash(segment, key);
        if let Some(at) = self.young.find(hash, segment, key) {
            return Some(at);
        }
        let group = self.old.take(hash, segment, key)?;
        Some(self.add(hash, group))
    }

    fn add(&mut self, hash: u64, group: Group) -> u32 {
        self.young.add(&self.hasher, hash, group)
    }

    fn new_group(&mut self, segment: i64, key: &[u8], whole: bool) -> u32 {
        let group = Group { segment, key: key.into(), items: vec![], whole };
        self.add(self.hash(segment, key), group)
    }

    // -- reading -------------------------------------------------------------------------------------------------

    /// The segments between two that may have entries.
    fn occupied(&self, from: i64, to: i64) -> Vec<i64> {
        let unknown_end = self.known_from_ms.div_euclid(self.segment_ms) + 1;
        let mut some: Vec<i64> = (from.max(self.first)..=to.min(unknown_end)).collect();
        let behind = from.max(unknown_end + 1);
        if behind <= to {
            some.extend(self.segments.range(behind..=to));
        }
        some
    }

    /// The entries of each key with `from_ms <= time <= to_ms`, by key, time and number. `values` reads them.
    pub fn within<'a>(&mut self, keys: impl Iterator<Item = &'a [u8]>, from_ms: i64, to_ms: i64) -> Within {
        let mut out = Within::default();
        self.found.clear();
        let segments = self.occupied(from_ms.div_euclid(self.segment_ms), to_ms.div_euclid(self.segment_ms));
        for key in keys {
            let before = self.found.len();
            for &segment in &segments {
                let Some(at) = self.group(segment, key) else {
                    if !self.is_known(segment, key, i64::MIN) {
                        out.unknown.push((segment, key.into()));
                    }
                    continue;
                };
                let group = &self.young.groups[at as usize];
                if !group.whole {
                    out.unknown.push((segment, key.into()));
                    continue;
                }
                let start = group.items.partition_point(|item| item.time < from_ms);
                for item in group.items[start..].iter().take_while(|item| item.time <= to_ms) {
                    self.found.push((at, *item));
                    out.times.push(item.time);
                }
            }
            out.counts.push((self.found.len() - before) as i64);
        }
        if !out.unknown.is_empty() {
            self.found.clear();
        }
        out
    }

    /// The values of entries that `within` found last, by their places in its answer.
    pub fn values(&self, places: &[i64]) -> Result<Values, Refused> {
        let mut out = Values::default();
        for &place in places {
            let (group, item) = self.found_at(place)?;
            self.add_value(&mut out, group.segment, &group.key, item);
        }
        Ok(out)
    }

    fn found_at(&self, place: i64) -> Result<(&Group, &Item), Refused> {
        let found = usize::try_from(place).ok().and_then(|place| self.found.get(place));
        let Some((at, item)) = found else {
            return Err(Refused::Index(format!("entry {place} of {}", self.found.len())));
        };
        Ok((&self.young.groups[*at as usize], item))
    }

    fn add_value(&self, to: &mut Values, segment: i64, key: &[u8], item: &Item) {
        if item.append > self.stored {
            to.data.extend_from_slice(self.values.get((item.append - self.stored) as usize - 1));
        } else {
            to.missing.push(to.ends.len() as i64 - 1);
            to.keys.extend_from_slice(&segment.to_be_bytes());
            to.keys.extend_from_slice(key);
            to.keys.extend_from_slice(&item.time.to_be_bytes());
            to.keys.extend_from_slice(&item.sequence.to_be_bytes());
            to.key_ends.push(to.keys.len() as i64);
        }
        to.ends.push(to.data.len() as i64);
    }

    /// The entries of a group that the store holds, ascending, each as what follows the key in its name. Afterwards the
    /// group is whole.
    pub fn load<'a>(
        &mut self,
        segment: i64,
        key: &[u8],
        entries: impl Iterator<Item = &'a [u8]>,
    ) -> Result<(), Refused> {
        let mut read: Vec<Item> = vec![];
        for entry in entries {
            let (Some(time), Some(sequence), BEHIND_KEY) =
                (entry.first_chunk::<8>(), entry.last_chunk::<4>(), entry.len())
            else {
                return Err(Refused::Value("an entry of a list has no time and number behind its key".into()));
            };
            let (time, sequence) = (i64::from_be_bytes(*time), u32::from_be_bytes(*sequence));
            read.push(Item { time, append: COMMITTED, sequence });
        }
        let at = self.group(segment, key).unwrap_or_else(|| self.new_group(segment, key, true));
        let group = &mut self.young.groups[at as usize];
        let before = group.bytes();
        group.whole = true;
        // what was appended here counts: it knows its append
        let own = std::mem::take(&mut group.items);
        group.items = Vec::with_capacity(own.len() + read.len());
        let mut own = own.into_iter().peekable();
        for item in read {
            while let Some(first) = own.next_if(|own| (own.time, own.sequence) < (item.time, item.sequence)) {
                group.items.push(first);
            }
            let same = own.peek().is_some_and(|own| (own.time, own.sequence) == (item.time, item.sequence));
            if !same {
                group.items.push(item);
            }
        }
        group.items.extend(own);
        self.young.bytes = self.young.bytes - before + group.bytes();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::rows::Rows;

    pub(super) fn append(to: &mut Lists, rows: &[(&[u8], i64, &[u8])], expired: &[u8], checked: bool) -> Vec<i64> {
        let keys: Vec<&[u8]> = rows.iter().map(|row| row.0).collect();
        let numbers: Vec<i64> = (0..rows.len() as i64).collect();
        let times: Vec<i64> = rows.iter().map(|row| row.1).collect();
        let (mut data, mut ends) = (vec![], vec![0]);
        for row in rows {
            data.extend_from_slice(row.2);
            ends.push(data.len() as i64);
        }
        let values = Rows::of(&data, &ends, None).unwrap();
        to.append(&keys, &numbers, &times, &values, expired, checked).unwrap()
    }

    pub(super) fn times(of: &mut Lists, key: &[u8], from_ms: i64, to_ms: i64) -> Vec<i64> {
        let within = of.within([key].into_iter(), from_ms, to_ms);
        assert!(within.unknown.is_empty());
        within.times
    }

    /// Keys of the changelog and values.
    fn written(of: &Lists, from_ms: i64) -> Vec<(Vec<u8>, Vec<u8>)> {
        let found = of.appends(from_ms);
        let cut = |data: &[u8], ends: &[i64]| -> Vec<Vec<u8>> {
            ends.windows(2).map(|pair| data[pair[0] as usize..pair[1] as usize].to_vec()).collect()
        };
        assert_eq!((found.segments.len(), found.times.len()), (found.key_ends.len() - 1, found.key_ends.len() - 1));
        cut(&found.keys, &found.key_ends).into_iter().zip(cut(&found.values, &found.value_ends)).collect()
    }

    pub(super) fn name(key: &[u8], time: i64, sequence: u32) -> Vec<u8> {
        [key, &time.to_be_bytes()[..], &sequence.to_be_bytes()[..]].concat()
    }

    #[test]
    fn entries_are_found_by_time_before_and_after_a_commit() {
        let mut lists = Lists::new(10);
        lists.begin(i64::MAX, -1);
        assert!(
            append(&mut lists, &[(b"a", 5, b"1"), (b"b", 5, b"2"), (b"a", 3, b"3"), (b"a", 25, b"4")], &[], false)
                .is_empty()
        );
        assert_eq!(times(&mut lists, b"a", 0, 100), [3, 5, 25]);
        let found = lists.values(&[2, 0]).unwrap();
        assert_eq!((found.data, found.ends, found.missing), (b"43".to_vec(), vec![0, 1, 2], vec![]));
        assert_eq!(times(&mut lists, b"a", 4, 24), [5]);
        lists.committed(0);
        assert_eq!((lists.len(), times(&mut lists, b"a", 0, 100)), (0, vec![3, 5, 25]));
        let found = lists.values(&[1]).unwrap();
        assert_eq!((found.ends, found.missing), (vec![0, 0], vec![0]));
        assert_eq!(found.keys, [&0i64.to_be_bytes()[..], &name(b"a", 5, 0)].concat());
        assert!(matches!(lists.values(&[3]), Err(Refused::Index(_))));
    }

    #[test]
    fn equal_times_are_numbered() {
        let mut lists = Lists::new(10);
        lists.begin(i64::MAX, -1);
        append(&mut lists, &[(b"a", 5, b"1"), (b"a", 5, b"2"), (b"a", 4, b"3")], &[], false);
        lists.committed(0);
        append(&mut lists, &[(b"a", 5, b"4")], &[], false);
        assert_eq!(written(&lists, 0), [(name(b"a", 5, 2), b"4".to_vec())]);
    }

    #[test]
    fn what_is_not_here_must_be_loaded() {
        let mut lists = Lists::new(10);
        lists.begin(0, 19);
        assert_eq!(lists.within([&b"a"[..]].into_iter(), 0, 100).unknown, [(0, b"a".to_vec()), (1, b"a".to_vec())]);
        assert!(append(&mut lists, &[(b"a", 20, b"1")], &[], false).is_empty());
        assert_eq!(append(&mut lists, &[(b"a", 20, b"2"), (b"a", 15, b"3")], &[], false), [1]);
        assert!(append(&mut lists, &[(b"a", 15, b"3")], &[], true).is_empty());
        assert!(append(&mut lists, &[(b"a", 15, b"4")], &[], false).is_empty());
        let behind = |time: i64, sequence: u32| name(b"", time, sequence);
        lists.load(0, b"a", [].into_iter()).unwrap();
        lists.load(1, b"a", [behind(12, 0), behind(12, 1), behind(19, 0)].iter().map(|entry| &entry[..])).unwrap();
        assert_eq!(times(&mut lists, b"a", 0, 100), [12, 12, 15, 15, 19, 20]);
        assert!(append(&mut lists, &[(b"a", 12, b"5")], &[], false).is_empty());
        assert_eq!(written(&lists, 0)[3].0, name(b"a", 12, 2));
        assert!(matches!(lists.load(0, b"a", [&b"short"[..]].into_iter()), Err(Refused::Value(_))));
    }

    #[test]
    fn what_is_forgotten_is_unknown_and_what_comes_later_is_not() {
        let mut lists = Lists::new(1_000);
        lists.begin(i64::MAX, -1);
        append(&mut lists, &[(b"a", 5, b"1"), (b"b", 6, b"2")], &[], false);
        assert!(!lists.trim(0));
        lists.committed(0);
        assert!(lists.trim(0));
        assert_eq!(lists.used_bytes(), 0);
        assert_eq!(lists.within([&b"a"[..]].into_iter(), 0, 10).unknown.len(), 1);
        assert_eq!(append(&mut lists, &[(b"a", 6, b"3"), (b"c", 7, b"4")], &[], false), [0]);
        assert!(append(&mut lists, &[(b"c", 7, b"4")], &[], false).is_empty());
        assert_eq!(lists.within([&b"c"[..]].into_iter(), 0, 10).unknown.len(), 1);
    }

    #[test]
    fn only_what_is_forgotten_must_be_loaded() {
        let mut lists = Lists::new(1_000);
        lists.begin(i64::MAX, -1);
        let keys: Vec<Vec<u8>> = (0..200).map(|i| format!("key {i}").into_bytes()).collect();
        let rows: Vec<(&[u8], i64, &[u8])> = keys.iter().map(|key| (&key[..], 5, &b"1"[..])).collect();
        append(&mut lists, &rows, &[], false);
        lists.committed(0);
        assert!(lists.trim(16_384));
        assert!(lists.young.groups.is_empty() && lists.old.groups.is_empty() && lists.used_bytes() <= 2_048);
        assert_eq!(lists.within(keys.iter().map(|key| &key[..]), 0, 10).unknown.len(), 200);
        let others: Vec<Vec<u8>> = (200..400).map(|i| format!("key {i}").into_bytes()).collect();
        let read = lists.within(others.iter().map(|key| &key[..]), 0, 10).unknown.len();
        assert!(read < 20, "{read} of 200 are read for nothing");
        let (old, new) = (&keys[7][..], others.iter().find(|key| !lists.forgotten.has(lists.hash(0, key))).unwrap());
        assert_eq!(append(&mut lists, &[(new, 5, b"2"), (old, 5, b"3"), (old, 900, b"4")], &[], false), [1, 2]);
        lists.load(0, old, [&name(b"", 5, 0)[..]].into_iter()).unwrap();
        assert!(append(&mut lists, &[(new, 5, b"2"), (old, 5, b"3"), (old, 900, b"4")], &[], false).is_empty());
        let expected = [(&new[..], 5, 0), (old, 5, 1), (old, 900, 0)];
        let expected: Vec<Vec<u8>> = expected.iter().map(|(key, time, number)| name(key, *time, *number)).collect();
        assert_eq!(written(&lists, 0).into_iter().map(|(key, _)| key).collect::<Vec<_>>(), expected);
        assert_eq!(times(&mut lists, old, 0, 1_000), [5, 5, 900]);
    }

    #[test]
    fn too_much_forgotten_is_unknown_as_a_whole() {
        let mut lists = Lists::new(1_000);
        lists.begin(i64::MAX, -1);
        for part in 0..20 {
            let keys: Vec<Vec<u8>> = (0..200).map(|i| format!("key {part} {i}").into_bytes()).collect();
            let rows: Vec<(&[u8], i64, &[u8])> = keys.iter().map(|key| (&key[..], 5, &b"1"[..])).collect();
            append(&mut lists, &rows, &[], true);
            lists.committed(0);
            assert!(lists.trim(16_384));
            assert!(lists.used_bytes() <= 16_384);
        }
        assert_eq!(lists.known_from_ms, 6);
        assert_eq!(lists.within([&b"new"[..]].into_iter(), 0, 10).unknown.len(), 1);
    }

    #[test]
    fn what_was_used_lately_stays() {
        let mut lists = Lists::new(1_000);
        lists.begin(i64::MAX, -1);
        append(&mut lists, &[(b"a", 5, b"1"), (b"b", 6, b"2")], &[], false);
        lists.committed(0);
        assert!(lists.trim(4 * lists.young.bytes - 1));
        assert_eq!(times(&mut lists, b"a", 0, 10), [5]);
        assert!(lists.trim(4 * lists.young.bytes - 1));
        assert_eq!(times(&mut lists, b"a", 0, 10), [5]);
        assert_eq!(lists.within([&b"b"[..]].into_iter(), 0, 10).unknown.len(), 1);
    }

    #[test]
    fn what_came_too_late_is_written_for_no_reader() {
        let mut lists = Lists::new(10);
        lists.begin(i64::MAX, -1);
        append(
            &mut lists,
            &[(b"a", 5, b"1"), (b"a", 6, b"2"), (b"a", 6, b"3"), (b"a", 5, b"longer")],
            &[0, 1, 1, 1],
            false,
        );
        let expected = [(name(b"a", 5, 0), b"longer".to_vec()), (name(b"a", 6, 0), b"3".to_vec())];
        assert_eq!(written(&lists, 0), expected);
        append(&mut lists, &[(b"a", 15, b"4")], &[], false);
        assert_eq!(written(&lists, 6)[1..], [(name(b"a", 15, 0), b"4".to_vec())]);
        assert_eq!(written(&lists, 7), [(name(b"a", 15, 0), b"4".to_vec())]);
        lists.committed(1);
        assert_eq!(times(&mut lists, b"a", 10, 100), [15]);
    }

    #[test]
    fn columns_that_do_not_fit_are_refused() {
        let mut lists = Lists::new(10);
        let values = Rows::of(b"x", &[0, 1], None).unwrap();
        for (numbers, times) in [(&[0][..], &[][..]), (&[1], &[5]), (&[-1], &[5]), (&[0], &[-5])] {
            assert!(matches!(lists.append(&[b"a"], numbers, times, &values, &[], true), Err(Refused::Value(_))));
        }
        assert_eq!(lists.len(), 0);
    }
}
