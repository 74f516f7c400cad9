//! The latest, or the earliest, text of each key since the last commit and in the store: see
//! `penstock.topologies.aggregators.keeping`.

use super::entry_map::Entered;
use super::key_index::{Based, KeyIndex};
use super::rows::{Rows, Taken};
use super::tuples::{Scalar, Unread, put, put_array};
use crate::refused::Refused;

/// What a stored value begins with.
const STAMP_BYTES: usize = 8;
const UNREADABLE: &str = "a stored value is not a time and bytes";

struct Kept {
    /// Of the text.
    time: i64,
    /// The highest of all records of the key.
    highest: i64,
    start: usize,
    length: usize,
}

struct Texts {
    later: bool,
    data: Vec<u8>,
    /// Whether a text is the store's, and not of a record.
    stored: bool,
}

impl Texts {
    fn append(&mut self, text: &[u8]) -> usize {
        self.data.extend_from_slice(text);
        self.data.len() - text.len()
    }

    /// Puts a text in the place of the one that is kept.
    fn replace(&mut self, kept: &mut Kept, time: i64, text: &[u8]) {
        if text.len() <= kept.length {
            self.data[kept.start..kept.start + text.len()].copy_from_slice(text);
        } else {
            kept.start = self.append(text);
        }
        (kept.time, kept.length) = (time, text.len());
    }
}

impl Based<Kept> for Texts {
    /// What is stored is from before all records.
    fn add_stored(&mut self, kept: &mut Kept, stored: &[u8]) -> Result<(), &'static str> {
        let (stamp, tuple) = stored.split_first_chunk::<STAMP_BYTES>().ok_or(UNREADABLE)?;
        let (time, text) = read(tuple).ok_or(UNREADABLE)?;
        kept.highest = kept.highest.max(i64::from_be_bytes(*stamp));
        let stays = if self.later { time > kept.time } else { time <= kept.time };
        if stays {
            self.replace(kept, time, text);
            self.stored = true;
        }
        Ok(())
    }
}

fn read(tuple: &[u8]) -> Option<(i64, &[u8])> {
    let mut unread = Unread(tuple);
    if unread.array()? != 2 {
        return None;
    }
    let Scalar::Int(time) = unread.scalar()? else { return None };
    let text = unread.bytes()?;
    unread.end()?;
    Some((time, text))
}

pub struct Latest {
    index: KeyIndex<Kept>,
    texts: Texts,
}

impl Latest {
    /// `later`: keeps the latest, of several the last one; else the earliest, of several the first one.
    pub fn new(later: bool) -> Self {
        Latest { index: KeyIndex::new(), texts: Texts { later, data: vec![], stored: false } }
    }

    pub fn len(&self) -> usize {
        self.index.len()
    }

    pub fn clear(&mut self) {
        self.index.clear();
        self.texts = Texts { later: self.texts.later, data: vec![], stored: false };
    }

    pub fn used_bytes(&self) -> usize {
        self.index.used_bytes() + self.texts.data.len()
    }

    /// Whether a text comes from the store.
    pub fn any_stored(&self) -> bool {
        self.texts.stored
    }

    /// Adds records in their order; each column has one row for each.
    pub fn add(&mut self, keys: &Rows, times: &[i64], texts: &Rows) {
        let first = |all: &mut Texts, i: usize| {
            let text = texts.bytes(i);
            Kept { time: times[i], highest: times[i], start: all.append(text), length: text.len() }
        };
        let add = |all: &mut Texts, kept: &mut Kept, i: usize| {
            let time = times[i];
            kept.highest = kept.highest.max(time);
            if if all.later { time >= kept.time } else { time < kept.time } {
                all.replace(kept, time, texts.bytes(i));
            }
        };
        self.index.add(keys, keys.len(), &mut self.texts, |i| i, first, add);
    }

    /// The keys without the store's value.
    pub fn unbased_keys(&self) -> impl Iterator<Item = &[u8]> + '_ {
        self.index.unbased_keys()
    }

    /// See `KeyIndex::base_from`.
    pub fn base_from(&mut self, known: &mut Entered, whole: bool) -> Result<(), &'static str> {
        self.index.base_from(known, whole, &mut self.texts)
    }

    /// See `KeyIndex::base`.
    pub fn base<'a>(&mut self, stored: impl Iterator<Item = Option<&'a [u8]>>) -> Result<(), &'static str> {
        self.index.base(stored, &mut self.texts)
    }

    /// See `KeyIndex::check_room`.
    pub fn check_room(&self, more: usize) -> Result<(), Refused> {
        self.index.check_room(more)
    }

    /// All keys one after the other, and where each begins and ends.
    pub fn keys(&self) -> (&[u8], Vec<i64>) {
        self.index.keys()
    }

    /// For each key the highest time of its records.
    pub fn times(&self) -> Vec<i64> {
        self.index.values().map(|kept| kept.highest).collect()
    }

    /// For each key its text.
    pub fn texts(&self) -> Result<Taken, Refused> {
        let mut all = Taken::with_room(self.len(), self.index.values().map(|kept| kept.length).sum())?;
        for kept in self.index.values() {
            all.push(Some([&self.texts.data[kept.start..kept.start + kept.length], &[]]));
        }
        Ok(all)
    }

    /// For each key its time and text, as the store has them behind the stamp.
    pub fn tuples(&self) -> Result<Taken, Refused> {
        const MORE: usize = 16;
        let mut all = Taken::with_room(self.len(), self.index.values().map(|kept| kept.length + MORE).sum())?;
        for kept in self.index.values() {
            let text = &self.texts.data[kept.start..kept.start + kept.length];
            let out = &mut all.data;
            put_array(out, 2)
                .and_then(|()| put(out, Scalar::Int(kept.time)))
                .and_then(|()| put(out, Scalar::Bytes(text)))
                .ok_or_else(|| Refused::Value("a text is too long".into()))?;
            all.ends.push(all.data.len() as i64);
            all.nulls.push(0);
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::segments::WRITTEN;

    /// A key of one letter, a time and a text each.
    fn add(latest: &mut Latest, records: &[(u8, i64, &[u8])]) {
        let keys: Vec<u8> = records.iter().map(|record| record.0).collect();
        let offsets: Vec<i64> = (0..=keys.len() as i64).collect();
        let times: Vec<i64> = records.iter().map(|record| record.1).collect();
        let mut texts = Taken::with_room(0, 0).unwrap();
        for record in records {
            texts.push(Some([record.2, &[]]));
        }
        let texts = Rows::of(&texts.data, &texts.ends, None).unwrap();
        latest.add(&Rows::of(&keys, &offsets, None).unwrap(), &times, &texts);
    }

    fn of(later: bool, records: &[(u8, i64, &[u8])]) -> Latest {
        let mut latest = Latest::new(later);
        add(&mut latest, records);
        latest
    }

    fn stored(stamp: i64, time: i64, text: &[u8]) -> Vec<u8> {
        let mut out = stamp.to_be_bytes().to_vec();
        put_array(&mut out, 2).unwrap();
        put(&mut out, Scalar::Int(time)).unwrap();
        put(&mut out, Scalar::Bytes(text)).unwrap();
        out
    }

    fn row(taken: &Taken, i: usize) -> &[u8] {
        &taken.data[taken.ends[i] as usize..taken.ends[i + 1] as usize]
    }

    #[test]
    fn of_equal_times_the_last_is_latest_and_the_first_is_earliest() {
        let records: [(u8, i64, &[u8]); 5] =
            [(b'a', 5, b"one"), (b'b', 1, b"two"), (b'a', 5, b"longer"), (b'a', 4, b"x"), (b'b', 1, b"t")];
        for (later, texts) in [(true, [&b"longer"[..], b"t"]), (false, [&b"x"[..], b"two"])] {
            let latest = of(later, &records);
            let found = latest.texts().unwrap();
            assert_eq!([row(&found, 0), row(&found, 1)], texts);
            assert_eq!((latest.keys(), latest.times()), ((&b"ab"[..], vec![0, 1, 2]), vec![5, 1]));
            assert!(!latest.any_stored());
        }
    }

    #[test]
    fn what_is_stored_counts_as_the_first_record() {
        for (later, own, stays) in [(true, 5, false), (true, 4, true), (false, 5, true), (false, 4, false)] {
            let mut latest = of(later, &[(b'a', own, b"new")]);
            assert_eq!(latest.base([Some(&stored(9, 5, b"older")[..])].into_iter()), Ok(()));
            let expected: &[u8] = if stays { b"older" } else { b"new" };
            assert_eq!(row(&latest.texts().unwrap(), 0), expected, "{later} {own}");
            assert_eq!((latest.times(), latest.any_stored()), (vec![9], stays));
        }
    }

    #[test]
    fn a_text_that_is_shorter_takes_the_place_of_the_former() {
        let mut latest = of(true, &[(b'a', 1, b"longest"), (b'b', 1, b"b")]);
        let before = latest.used_bytes();
        add(&mut latest, &[(b'a', 2, b"short"), (b'b', 2, b"c"), (b'a', 3, b"")]);
        let found = latest.texts().unwrap();
        assert_eq!((row(&found, 0), row(&found, 1), latest.used_bytes()), (&b""[..], &b"c"[..], before));
    }

    #[test]
    fn tuples_are_written_as_they_are_stored() {
        let long = vec![7; 70_000];
        for (time, text) in [(0, &b""[..]), (-1, b"a"), (i64::MIN, b"b"), (i64::MAX, &long)] {
            let latest = of(true, &[(b'a', time, text)]);
            assert_eq!(row(&latest.tuples().unwrap(), 0), &stored(0, time, text)[STAMP_BYTES..]);
        }
    }

    #[test]
    fn a_stored_value_of_another_form_leaves_its_key_unbased() {
        let whole = stored(1, 2, b"text");
        let of_three = [&[0; STAMP_BYTES][..], &[0x93, 1, 0xc4, 0, 1]].concat();
        let of_texts = [&[0; STAMP_BYTES][..], &[0x92, 0xa1, b'1', 0xc4, 0]].concat();
        let longer = [&whole[..], &[0]].concat();
        for bad in [&b"short"[..], &[0; STAMP_BYTES], &whole[..whole.len() - 1], &of_three, &of_texts, &longer] {
            let mut latest = of(true, &[(b'a', 1, b"new"), (b'b', 1, b"new")]);
            assert!(latest.base([Some(bad), Some(&whole[..])].into_iter()).is_err());
            assert_eq!(latest.unbased_keys().collect::<Vec<_>>(), [b"a"]);
            assert_eq!(row(&latest.texts().unwrap(), 1), b"text");
        }
    }

    #[test]
    fn the_memory_of_a_store_answers_for_the_keys_that_it_knows() {
        for whole in [false, true] {
            let mut known = Entered::default();
            known.put(b"a", Some(&stored(7, 10, b"stored")), WRITTEN);
            known.put(b"b", None, WRITTEN);
            let mut latest = of(true, &[(b'a', 1, b"new"), (b'b', 1, b"new"), (b'c', 1, b"new")]);
            assert_eq!(latest.base_from(&mut known, whole), Ok(()));
            assert_eq!(row(&latest.texts().unwrap(), 0), b"stored");
            assert_eq!(latest.unbased_keys().count(), usize::from(!whole));
            latest.clear();
            assert!(latest.len() == 0 && latest.used_bytes() == 0 && !latest.any_stored());
            assert_eq!(latest.check_room(5), Ok(()));
        }
    }
}
