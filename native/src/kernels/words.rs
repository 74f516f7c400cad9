//! Texts split at white space, as Python's `str.split()` does it, with the words coded.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use super::buffers::{Held, Rows, to_bytes};
use super::distinct::Distinct;
use super::interner::check_rows;

struct Split {
    words: Distinct,
    counts: Vec<i64>,
    codes: Vec<i32>,
    unsure: Vec<u8>,
    any_unsure: bool,
}

/// ASCII of which `str.isspace` is true; it has four more than Rust's `is_ascii_whitespace`.
fn is_space(byte: u8) -> bool {
    matches!(byte, b'\t'..=b'\r' | 0x1c..=0x1f | b' ')
}

/// `(words per row: int64, codes of all words: int32, data and int64 offsets of the words, flag per row, or None)`. A row
/// with a flag is not pure ASCII, has no words here and is left to Python; a null has none. `lower`: of the text as
/// `str.lower` makes it.
#[pyfunction]
#[pyo3(signature = (data, offsets, nulls, lower))]
pub fn split_words<'py>(
    py: Python<'py>,
    data: Held<u8>,
    offsets: Held<i64>,
    nulls: Option<Held<u8>>,
    lower: bool,
) -> PyResult<Bound<'py, PyTuple>> {
    let rows = Rows::of(&data, &offsets, &nulls)?;
    check_rows(rows.extent())?; // a word has a byte at least
    let split = py.detach(|| read(&rows, lower));
    let unsure: Option<Bound<'py, PyBytes>> = split.any_unsure.then(|| to_bytes(py, &split.unsure));
    let (words, ends) = split.words.column();
    (to_bytes(py, &split.counts), to_bytes(py, &split.codes), PyBytes::new(py, words), to_bytes(py, &ends), unsure)
        .into_pyobject(py)
}

fn read(rows: &Rows, lower: bool) -> Split {
    let count = rows.len();
    let mut split = Split {
        words: Distinct::new(),
        counts: vec![0; count],
        codes: vec![],
        unsure: vec![0; count],
        any_unsure: false,
    };
    let mut text = vec![];
    for row in 0..count {
        let Some(value) = rows.get(row) else {
            continue;
        };
        if !value.is_ascii() {
            split.unsure[row] = 1;
            split.any_unsure = true;
            continue;
        }
        text.clear();
        text.extend_from_slice(value);
        if lower {
            text.make_ascii_lowercase();
        }
        let before = split.codes.len();
        let words = text.split(|&byte| is_space(byte)).filter(|word| !word.is_empty());
        split.codes.extend(words.map(|word| split.words.code(word)));
        split.counts[row] = (split.codes.len() - before) as i64;
    }
    split
}
