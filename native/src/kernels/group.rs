//! Rows by small integers: groups in the order of first appearance, and what is worked out per group.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use super::buffers::{Held, filled, to_bytes};
use super::interner::check_rows;

/// With so many times more possible groups than rows, groups are found by hashing, else in a table of all of them.
const SPARSE: usize = 4;

/// Codes as numpy holds them: of a dictionary, or worked out from several.
#[derive(FromPyObject)]
pub enum Codes {
    Narrow(Held<i32>),
    Wide(Held<i64>),
}

#[derive(Default)]
struct Groups {
    numbers: Vec<i64>,
    codes: Vec<i64>,
    firsts: Vec<i64>,
}

impl Groups {
    fn begin(&mut self, code: usize, row: usize) -> u32 {
        self.codes.push(code as i64);
        self.firsts.push(row as i64);
        self.codes.len() as u32 - 1
    }
}

/// `None` for a code that is not below `bound`.
fn grouped(codes: impl ExactSizeIterator<Item = i64>, bound: usize) -> Option<Groups> {
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

/// The groups of codes from 0 to `bound - 1`, all int64: `(number of each row's group, code of each group, its first row)`.
#[pyfunction]
pub fn group_rows<'py>(py: Python<'py>, codes: Codes, bound: usize) -> PyResult<Bound<'py, PyTuple>> {
    let found = match &codes {
        Codes::Narrow(codes) => {
            let codes = codes.slice();
            check_rows(codes.len())?;
            py.detach(|| grouped(codes.iter().map(|&code| i64::from(code)), bound))
        }
        Codes::Wide(codes) => {
            let codes = codes.slice();
            check_rows(codes.len())?;
            py.detach(|| grouped(codes.iter().copied(), bound))
        }
    };
    let groups = found.ok_or_else(|| PyValueError::new_err(format!("a code is not between 0 and {bound}")))?;
    (to_bytes(py, &groups.numbers), to_bytes(py, &groups.codes), to_bytes(py, &groups.firsts)).into_pyobject(py)
}

/// Checks that each row has a number and a value, and that numbers are below `count`.
fn check_numbers(numbers: &[i64], count: usize, values: usize) -> PyResult<()> {
    let within = numbers.iter().fold(true, |so_far, &number| so_far & ((number as u64) < count as u64));
    if !within || numbers.len() != values {
        return Err(PyValueError::new_err("there is not one group number and one value per row"));
    }
    Ok(())
}

/// Of each group (`whole`), or of each row up to it (`running`), the `fold` of its values.
fn folded<const RUNNING: bool>(
    numbers: &[i64],
    values: &[i64],
    count: usize,
    start: i64,
    fold: impl Fn(i64, i64) -> i64,
) -> PyResult<Vec<i64>> {
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

/// int64: the highest value of each group, or with `running` of each row's group up to that row.
#[pyfunction]
pub fn highest_rows<'py>(
    py: Python<'py>,
    numbers: Held<i64>,
    count: usize,
    values: Held<i64>,
    running: bool,
) -> PyResult<Bound<'py, PyBytes>> {
    let (numbers, values) = (numbers.slice(), values.slice());
    check_numbers(numbers, count, values.len())?;
    let found = py.detach(|| match running {
        true => folded::<true>(numbers, values, count, i64::MIN, i64::max),
        false => folded::<false>(numbers, values, count, i64::MIN, i64::max),
    })?;
    Ok(to_bytes(py, &found))
}

/// int64: how many rows each row's group has up to that row, itself included.
#[pyfunction]
pub fn count_rows_so_far<'py>(py: Python<'py>, numbers: Held<i64>, count: usize) -> PyResult<Bound<'py, PyBytes>> {
    let numbers = numbers.slice();
    check_numbers(numbers, count, numbers.len())?;
    let found = py.detach(|| folded::<true>(numbers, numbers, count, 0, |so_far, _| so_far + 1))?;
    Ok(to_bytes(py, &found))
}

/// int64: the sum of each group's values; `None` where one is out of int64's range.
#[pyfunction]
pub fn sum_rows<'py>(
    py: Python<'py>,
    numbers: Held<i64>,
    count: usize,
    values: Held<i64>,
) -> PyResult<Option<Bound<'py, PyBytes>>> {
    let (numbers, values) = (numbers.slice(), values.slice());
    check_numbers(numbers, count, values.len())?;
    let sums = py.detach(|| {
        let mut sums = filled(0i128, count)?;
        for (&number, &value) in numbers.iter().zip(values) {
            sums[number as usize] += i128::from(value);
        }
        Ok::<Option<Vec<i64>>, PyErr>(sums.into_iter().map(|sum| i64::try_from(sum).ok()).collect())
    })?;
    Ok(sums.map(|sums| to_bytes(py, &sums)))
}
