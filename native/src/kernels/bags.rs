//! Distinct values with their numbers, by group and count, as partial aggregates hold them: `penstock.topologies.aggregators.bag`.
//!
//! A bag is an array of arrays of two in MessagePack, by the values' bytes: the value, and how often it was added.

use super::distinct::Distinct;
use super::rows::Rows;
use super::tuples::{Scalar, Unread, put, put_array};

/// More bytes than these are left to Python: places in `Distinct` have 31 bits.
const BYTES_MAX: usize = 1 << 30;
const NUMBER_BYTES_MAX: usize = 9;
const COUNT_BITS: u32 = 16;

#[derive(Clone, Copy, Debug, PartialEq)]
struct Added {
    /// The group, and the number of its count in the lower bits.
    place: u64,
    value: u32,
    times: i64,
}

/// Values that were added to the bags of groups.
pub struct Bags {
    values: Distinct,
    added: Vec<Added>,
    /// Whether `added` is in the order of bags, each value once.
    sorted: bool,
}

impl Default for Bags {
    fn default() -> Self {
        Bags { values: Distinct::new(), added: vec![], sorted: true }
    }
}

fn place_of(group: i64, count: u16) -> u64 {
    (group as u64) << COUNT_BITS | u64::from(count)
}

impl Bags {
    pub fn is_empty(&self) -> bool {
        self.added.is_empty()
    }

    /// Whether values with this many bytes more can be kept.
    pub fn has_room(&self, bytes: usize) -> bool {
        bytes <= BYTES_MAX && self.values.bytes() <= BYTES_MAX - bytes
    }

    /// Whether this many numbers more can be kept.
    pub fn has_room_for_numbers(&self, numbers: usize) -> bool {
        self.has_room(numbers.saturating_mul(NUMBER_BYTES_MAX))
    }

    /// Adds a value to the bag of a group, as often as `times` says, at least once.
    pub fn add(&mut self, count: u16, group: i64, value: &[u8], times: i64) {
        self.sorted = false;
        let value = self.values.code(value) as u32;
        self.added.push(Added { place: place_of(group, count), value, times });
    }

    /// Adds whole numbers, as MessagePack has them, each to the bag of its group.
    pub fn add_numbers(&mut self, count: u16, groups: &[i64], numbers: &[i64]) {
        let mut data = vec![];
        for (&group, &number) in groups.iter().zip(numbers) {
            data.clear();
            put(&mut data, Scalar::Int(number));
            self.add(count, group, &data, 1);
        }
    }

    /// Adds values by their codes, all of which `values` has, each to the bag of its group.
    pub fn add_coded(&mut self, count: u16, groups: &[i64], codes: &[i64], values: &Rows) {
        self.sorted = false;
        let known: Vec<u32> = (0..values.len()).map(|row| self.values.code(values.bytes(row)) as u32).collect();
        let added = groups.iter().zip(codes);
        self.added.extend(added.map(|(&group, &code)| Added {
            place: place_of(group, count),
            value: known[code as usize],
            times: 1,
        }));
    }

    /// Brings what was added into the order of bags, each value once.
    pub fn sort(&mut self) {
        if std::mem::replace(&mut self.sorted, true) {
            return;
        }
        let mut by_bytes: Vec<u32> = (0..self.values.len() as u32).collect();
        by_bytes.sort_unstable_by_key(|&value| self.values.get(value as usize));
        let mut ranks = vec![0u32; by_bytes.len()];
        for (rank, &value) in by_bytes.iter().enumerate() {
            ranks[value as usize] = rank as u32;
        }
        self.added.sort_unstable_by_key(|one| (one.place, ranks[one.value as usize]));
        self.added.dedup_by(|later, first| {
            let same = (later.place, later.value) == (first.place, first.value);
            first.times += if same { later.times } else { 0 };
            same
        });
    }

    /// The values of a bag, with their numbers; only after `sort`.
    pub fn pairs(&self, group: i64, count: u16) -> impl ExactSizeIterator<Item = (&[u8], i64)> {
        let place = place_of(group, count);
        let start = self.added.partition_point(|one| one.place < place);
        let many = self.added[start..].partition_point(|one| one.place == place);
        self.added[start..start + many].iter().map(|one| (self.values.get(one.value as usize), one.times))
    }

    /// Adds the bytes of a bag; only after `sort`. `None`: it is longer than MessagePack has lengths.
    pub fn put(&self, out: &mut Vec<u8>, group: i64, count: u16) -> Option<()> {
        let pairs = self.pairs(group, count);
        put_array(out, pairs.len())?;
        for (value, times) in pairs {
            put_array(out, 2)?;
            put(out, Scalar::Bytes(value))?;
            put(out, Scalar::Int(times))?;
        }
        Some(())
    }
}

/// Calls `each` with every value of a bag, of which these are the bytes. `None`: Python must read it.
pub fn each_value<'a>(data: &'a [u8], mut each: impl FnMut(&'a [u8])) -> Option<()> {
    let mut unread = Unread(data);
    let mut before: Option<&[u8]> = None;
    for _ in 0..unread.array()? {
        if unread.array()? != 2 {
            return None;
        }
        let value = unread.bytes()?;
        let counted = matches!(unread.scalar()?, Scalar::Int(1..));
        if !counted || before.is_some_and(|before| before >= value) {
            return None;
        }
        before = Some(value);
        each(value);
    }
    unread.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values_of(data: &[u8]) -> Option<Vec<&[u8]>> {
        let mut found = vec![];
        each_value(data, |value| found.push(value)).map(|()| found)
    }

    fn bag(bags: &Bags, group: i64, count: u16) -> Vec<(Vec<u8>, i64)> {
        bags.pairs(group, count).map(|(value, times)| (value.to_vec(), times)).collect()
    }

    #[test]
    fn values_are_counted_by_group_and_count_in_the_order_of_their_bytes() {
        let mut bags = Bags::default();
        assert!(bags.is_empty());
        bags.add_numbers(0, &[1, 0, 1], &[300, 5, 5]);
        bags.add_coded(1, &[1, 1, 0], &[1, 0, 1], &Rows::of(b"ba", &[0, 1, 2], None).unwrap());
        bags.add(0, 1, &[5], 40);
        bags.sort();
        assert_eq!(bag(&bags, 1, 0), [(vec![5], 41), (vec![0xcd, 1, 44], 1)]);
        assert_eq!(bag(&bags, 0, 0), [(vec![5], 1)]);
        assert_eq!(bag(&bags, 1, 1), [(b"a".to_vec(), 1), (b"b".to_vec(), 1)]);
        assert_eq!(bag(&bags, 0, 1), [(b"a".to_vec(), 1)]);
        assert_eq!(bag(&bags, 2, 0), []);
        bags.add_numbers(0, &[2], &[5]);
        bags.sort();
        assert_eq!(bag(&bags, 2, 0), [(vec![5], 1)]);
        assert!(!bags.is_empty());
    }

    #[test]
    fn a_bag_is_read_as_it_is_written() {
        let mut bags = Bags::default();
        bags.add_numbers(3, &[0, 0, 0], &[7, -1, 7]);
        bags.sort();
        let mut data = vec![];
        bags.put(&mut data, 0, 3).unwrap();
        assert_eq!(data, [0x92, 0x92, 0xc4, 1, 7, 2, 0x92, 0xc4, 1, 0xff, 1]);
        assert_eq!(values_of(&data), Some(vec![&[7][..], &[0xff]]));
        data.clear();
        bags.put(&mut data, 1, 3).unwrap();
        assert_eq!((values_of(&data), &data[..]), (Some(vec![]), &[0x90][..]));
    }

    #[test]
    fn other_bytes_are_left_to_python() {
        for data in [
            &[][..],
            &[0x90, 0],
            &[0x91, 0x91, 0xc4, 0],
            &[0x91, 0x92, 0xa0, 1],
            &[0x91, 0x92, 0xc4, 0, 0],
            &[0x91, 0x92, 0xc4, 0, 0xff],
            &[0x91, 0x92, 0xc4, 0, 0xc0],
            &[0x92, 0x92, 0xc4, 1, 5, 1, 0x92, 0xc4, 1, 5, 1],
            &[0x92, 0x92, 0xc4, 1, 5, 1, 0x92, 0xc4, 1, 4, 1],
        ] {
            assert_eq!(values_of(data), None, "{data:?}");
        }
    }

    #[test]
    fn more_bytes_than_places_have_are_refused() {
        let bags = Bags::default();
        assert!(bags.has_room(BYTES_MAX) && !bags.has_room(BYTES_MAX + 1) && !bags.has_room_for_numbers(usize::MAX));
    }
}
