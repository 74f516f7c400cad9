//! Counts of records by key since the last commit, with the stored counts: see `kernels::key_index`.

use super::entry_map::Entered;
use super::key_index::{Based, KeyIndex};
use super::rows::Rows;
use crate::refused::Refused;

/// The store's value: a timestamp and a count.
const STORED_BYTES: usize = 16;

struct Count {
    records: i64,
    latest: i64,
}

pub struct Counts {
    index: KeyIndex<Count>,
    /// The number of counted records, which is at least any count that is not based.
    total: i64,
    highest_stored: Highest,
}

/// The highest stored count of any key: with the total, at least any of the counts.
struct Highest(i64);

impl Based<Count> for Highest {
    fn add_stored(&mut self, value: &mut Count, stored: &[u8]) -> Result<(), &'static str> {
        let (time, count) = (stored.first_chunk::<8>(), stored.last_chunk::<8>());
        let (Some(time), Some(count), STORED_BYTES) = (time, count, stored.len()) else {
            return Err("a stored count is not a timestamp and a long");
        };
        let count = i64::from_be_bytes(*count);
        value.records = value.records.checked_add(count).ok_or("a count does not fit into 64 bits")?;
        value.latest = value.latest.max(i64::from_be_bytes(*time));
        self.0 = self.0.max(count);
        Ok(())
    }
}

impl Counts {
    pub fn new() -> Self {
        Counts { index: KeyIndex::new(), total: 0, highest_stored: Highest(0) }
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// See `KeyIndex::clear`.
    pub fn clear(&mut self) {
        self.index.clear();
        self.total = 0;
        self.highest_stored = Highest(0);
    }

    pub fn used_bytes(&self) -> usize {
        self.index.used_bytes()
    }

    /// Counts `many` times: `item` returns the row of a key, how often to count it, and its time.
    pub fn add(&mut self, rows: &Rows, many: usize, item: impl Fn(usize) -> (usize, i64, i64)) {
        let first = |_: &mut (), i| {
            let (_, records, latest) = item(i);
            Count { records, latest }
        };
        let add = |_: &mut (), value: &mut Count, i| {
            let (_, records, time) = item(i);
            value.records += records;
            value.latest = value.latest.max(time);
        };
        self.index.add(rows, many, &mut (), |i| item(i).0, first, add);
    }

    /// Counts rows whose `codes` point to their keys, where every key occurs once; keys in the order in which they
    /// first have a row. Every code is valid.
    pub fn add_coded(&mut self, keys: &Rows, codes: &[i32], times: &[i64]) {
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

    /// Whether counts increased by this many would still fit into 64 bits.
    pub fn fits(&mut self, counts: &[i64]) -> bool {
        let mut total = self.total;
        for &count in counts {
            match total.checked_add(count) {
                Some(more) if count >= 0 => total = more,
                _ => return false,
            }
        }
        if total.checked_add(self.highest_stored.0).is_none() {
            return false;
        }
        self.total = total;
        true
    }

    /// The keys without the store's count.
    pub fn unbased_keys(&self) -> impl Iterator<Item = &[u8]> + '_ {
        self.index.unbased_keys()
    }

    /// See `KeyIndex::base_from`.
    pub fn base_from(&mut self, known: &mut Entered, whole: bool) -> Result<(), &'static str> {
        self.index.base_from(known, whole, &mut self.highest_stored)
    }

    /// See `KeyIndex::base`.
    pub fn base<'a>(&mut self, stored: impl Iterator<Item = Option<&'a [u8]>>) -> Result<(), &'static str> {
        self.index.base(stored, &mut self.highest_stored)
    }

    /// All keys one after the other, and where each begins and ends.
    pub fn keys(&self) -> (&[u8], Vec<i64>) {
        self.index.keys()
    }

    /// For each key: its count and its latest time.
    pub fn numbers(&self) -> (Vec<i64>, Vec<i64>) {
        self.index.values().map(|value| (value.records, value.latest)).unzip()
    }

    /// See `KeyIndex::check_room`.
    pub fn check_room(&self, more: usize) -> Result<(), Refused> {
        self.index.check_room(more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::segments::WRITTEN;

    fn stored(time: i64, count: i64) -> Vec<u8> {
        [time.to_be_bytes(), count.to_be_bytes()].concat()
    }

    fn counted(counts: &Counts) -> Vec<(Vec<u8>, i64, i64)> {
        let ((keys, ends), (numbers, times)) = (counts.keys(), counts.numbers());
        let key = |i: usize| keys[ends[i] as usize..ends[i + 1] as usize].to_vec();
        (0..counts.len()).map(|i| (key(i), numbers[i], times[i])).collect()
    }

    fn of(keys: &[u8], times: &[i64]) -> Counts {
        let mut counts = Counts::new();
        let offsets: Vec<i64> = (0..=keys.len() as i64).collect();
        counts.add(&Rows::of(keys, &offsets, None).unwrap(), keys.len(), |row| (row, 1, times[row]));
        counts
    }

    #[test]
    fn records_are_counted_by_key_with_the_latest_time() {
        let counts = of(b"abab", &[5, 1, 3, 9]);
        assert_eq!(counted(&counts), [(b"a".to_vec(), 2, 5), (b"b".to_vec(), 2, 9)]);
        assert_eq!(counts.unbased_keys().collect::<Vec<_>>(), [b"a", b"b"]);
    }

    #[test]
    fn coded_rows_are_counted_as_the_rows_themselves() {
        let mut counts = Counts::new();
        let keys = Rows::of(b"abc", &[0, 1, 2, 3], None).unwrap();
        counts.add_coded(&keys, &[2, 0, 2, 2], &[4, -1, 8, 6]);
        assert_eq!(counted(&counts), [(b"c".to_vec(), 3, 8), (b"a".to_vec(), 1, -1)]);
    }

    #[test]
    fn what_the_store_holds_is_added_once() {
        let mut counts = of(b"ab", &[5, 5]);
        assert_eq!(counts.base([Some(&stored(9, 40)[..]), None].into_iter()), Ok(()));
        assert_eq!(counted(&counts), [(b"a".to_vec(), 41, 9), (b"b".to_vec(), 1, 5)]);
        assert_eq!(counts.unbased_keys().count(), 0);
    }

    #[test]
    fn a_stored_value_that_is_no_count_leaves_its_key_unbased() {
        let mut counts = of(b"abc", &[5, 5, 5]);
        let values = [Some(&b"short"[..]), Some(&stored(1, 2)[..]), Some(&stored(1, i64::MAX)[..])];
        assert!(counts.base(values.into_iter()).is_err());
        assert_eq!(counts.unbased_keys().collect::<Vec<_>>(), [b"a", b"c"]);
        assert_eq!(counted(&counts)[1], (b"b".to_vec(), 3, 5));
    }

    #[test]
    fn the_memory_of_a_store_answers_for_the_keys_that_it_knows() {
        for whole in [false, true] {
            let mut known = Entered::default();
            known.put(b"a", Some(&stored(7, 10)), WRITTEN);
            known.put(b"b", None, WRITTEN);
            let mut counts = of(b"abc", &[1, 2, 3]);
            assert_eq!(counts.base_from(&mut known, whole), Ok(()));
            assert_eq!(counted(&counts), [(b"a".to_vec(), 11, 7), (b"b".to_vec(), 1, 2), (b"c".to_vec(), 1, 3)]);
            assert_eq!(counts.unbased_keys().count(), usize::from(!whole));
        }
    }

    #[test]
    fn counts_that_may_not_fit_are_refused() {
        let mut counts = of(b"a", &[1]);
        assert!(counts.fits(&[i64::MAX - 1]));
        assert!(!counts.fits(&[2]) && !counts.fits(&[-1]) && !counts.fits(&[i64::MAX, 1]));
        counts.base([Some(&stored(1, 5)[..])].into_iter()).unwrap();
        assert!(!counts.fits(&[0]), "the stored count and all that was counted exceed 64 bits");
        counts.clear();
        assert!(counts.fits(&[i64::MAX]) && counts.len() == 0 && counts.used_bytes() == 0);
    }

    #[test]
    fn keys_stay_apart_while_the_index_grows() {
        let mut counts = Counts::new();
        let (data, offsets): (Vec<u8>, Vec<i64>) =
            ((0..5_000u32).flat_map(u32::to_be_bytes).collect(), (0..=5_000).map(|i| 4 * i).collect());
        let rows = Rows::of(&data, &offsets, None).unwrap();
        for _ in 0..3 {
            counts.add(&rows, rows.len(), |row| (row, 2, row as i64));
        }
        assert_eq!(counts.len(), 5_000);
        assert!(counted(&counts).iter().enumerate().all(|(i, (_, count, time))| (*count, *time) == (6, i as i64)));
        assert_eq!(counts.check_room(10), Ok(()));
        assert!(counts.check_room(u32::MAX as usize).is_err());
    }
}
