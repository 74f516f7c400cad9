//! Rows by small integers: groups in the order of first appearance, and values computed per group.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use crate::refused::{Refused, filled};

/// With this many times more possible groups than rows, hash to find the groups, else use a table of all.
const SPARSE: usize = 4;

#[derive(Default)]
pub struct Groups {
    /// For each row: the number of its group.
    pub numbers: Vec<i64>,
    /// For each group: its code.
    pub codes: Vec<i64>,
    /// For each group: its first row.
    pub firsts: Vec<i64>,
}

impl Groups {
    fn begin(&mut self, code: usize, row: usize) -> u32 {
        self.codes.push(code as i64);
        self.firsts.push(row as i64);
        self.codes.len() as u32 - 1
    }
}

/// The groups of codes from 0 to `bound - 1`; refuses other codes.
pub fn grouped(codes: impl ExactSizeIterator<Item = i64>, bound: usize) -> Result<Groups, Refused> {
    found(codes, bound).ok_or_else(|| Refused::Value(format!("a code is not between 0 and {bound}")))
}

fn found(codes: impl ExactSizeIterator<Item = i64>, bound: usize) -> Option<Groups> {
    let rows = codes.len();
    let mut groups = Groups { numbers: Vec::with_capacity(rows), ..Groups::default() };
    let checked = codes.map(|code| usize::try_from(code).ok().filter(|&code| code < bound));
    if bound <= SPARSE * rows + 1024 {
        let mut table = vec![u32::MAX; bound];
        for (row, code) in checked.enumerate() {
            let number = &mut table[code?];
            if *number == u32::MAX {
                *number = groups.begin(code?, row);
            }
            groups.numbers.push(i64::from(*number));
        }
        return Some(groups);
    }
    let state = RandomState::default();
    let hash_of = |code: usize| {
        let mut hasher = state.build_hasher();
        hasher.write_u64(code as u64);
        hasher.finish()
    };
    let mut index: HashTable<u32> = HashTable::new();
    for (row, code) in checked.enumerate() {
        let (code, hash) = (code?, hash_of(code?));
        let number = match index.find(hash, |&number| groups.codes[number as usize] == code as i64) {
            Some(&number) => number,
            None => {
                let number = groups.begin(code, row);
                let of = |&number: &u32| hash_of(groups.codes[number as usize] as usize);
                index.insert_unique(hash, number, of);
                number
            }
        };
        groups.numbers.push(i64::from(number));
    }
    Some(groups)
}

/// Refuses arguments that do not have one number and one value per row, or a number that is not below `count`.
pub fn check_numbers(numbers: &[i64], count: usize, values: usize) -> Result<(), Refused> {
    let within = numbers.iter().fold(true, |so_far, &number| so_far & ((number as u64) < count as u64));
    if !within || numbers.len() != values {
        return Err(Refused::Value("there is not one group number and one value per row".into()));
    }
    Ok(())
}

/// The `fold` of the values of each group (`whole`), or of each row's group up to the row (`running`).
pub fn folded<const RUNNING: bool>(
    numbers: &[i64],
    values: &[i64],
    count: usize,
    start: i64,
    fold: impl Fn(i64, i64) -> i64,
) -> Result<Vec<i64>, Refused> {
    let mut groups = filled(start, count)?;
    let mut rows = Vec::with_capacity(if RUNNING { numbers.len() } else { 0 });
    for (&number, &value) in numbers.iter().zip(values) {
        let group = &mut groups[number as usize];
        *group = fold(*group, value);
        if RUNNING {
            rows.push(*group);
        }
    }
    Ok(if RUNNING { rows } else { groups })
}

/// The sum of each group's values; `None` where one is out of int64's range.
pub fn sums(numbers: &[i64], values: &[i64], count: usize) -> Result<Option<Vec<i64>>, Refused> {
    let mut sums = filled(0i128, count)?;
    for (&number, &value) in numbers.iter().zip(values) {
        sums[number as usize] += i128::from(value);
    }
    Ok(sums.into_iter().map(|sum| i64::try_from(sum).ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(codes: &[i64], bound: usize) -> Result<Groups, Refused> {
        grouped(codes.iter().copied(), bound)
    }

    /// With a table if codes are dense, by hashing if they are sparse: the same groups.
    #[test]
    fn groups_are_numbered_by_first_appearance() {
        for bound in [10, 1 << 40] {
            let groups = of(&[7, 2, 7, 9, 2], bound).unwrap();
            assert_eq!(
                (groups.numbers, groups.codes, groups.firsts),
                (vec![0, 1, 0, 2, 1], vec![7, 2, 9], vec![0, 1, 3])
            );
        }
        assert!(of(&[], 0).is_ok_and(|groups| groups.numbers.is_empty()));
    }

    #[test]
    fn codes_outside_of_the_bound_are_refused() {
        for (code, bound) in [(10, 10), (-1, 10), (0, 0), (-1, 1 << 40), (1 << 40, 1 << 40)] {
            let why = format!("a code is not between 0 and {bound}");
            assert_eq!(of(&[code], bound).err(), Some(Refused::Value(why)));
        }
    }

    #[test]
    fn values_are_folded_per_group_or_up_to_each_row() {
        let (numbers, values) = ([0, 1, 0, 1], [5, 1, 3, 2]);
        assert_eq!(folded::<false>(&numbers, &values, 3, i64::MIN, i64::max), Ok(vec![5, 2, i64::MIN]));
        assert_eq!(folded::<true>(&numbers, &values, 2, i64::MIN, i64::max), Ok(vec![5, 1, 5, 2]));
    }

    #[test]
    fn sums_that_are_out_of_range_are_none() {
        assert_eq!(sums(&[0, 0, 1], &[i64::MAX, -1, 4], 2), Ok(Some(vec![i64::MAX - 1, 4])));
        assert_eq!(sums(&[0, 0, 0], &[i64::MAX, 1, -1], 1), Ok(Some(vec![i64::MAX])));
        assert_eq!(sums(&[0, 0], &[i64::MAX, 1], 1), Ok(None));
        assert_eq!(sums(&[0, 0], &[i64::MIN, -1], 1), Ok(None));
    }

    #[test]
    fn numbers_without_a_group_are_refused() {
        assert_eq!(check_numbers(&[0, 1], 2, 2), Ok(()));
        for (numbers, count, values) in [(&[0, 2][..], 2, 2), (&[-1], 2, 1), (&[0], 2, 2)] {
            assert!(check_numbers(numbers, count, values).is_err());
        }
    }
}
