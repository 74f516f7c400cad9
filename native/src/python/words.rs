//! Words of texts: see `kernels::words`.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use super::buffers::{Held, rows_of, to_bytes};
use crate::kernels::interner::check_rows;
use crate::kernels::words::split;

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
    let rows = rows_of(&data, &offsets, nulls.as_ref())?;
    check_rows(rows.extent())?; // a word has a byte at least
    let split = py.detach(|| split(&rows, lower));
    let unsure: Option<Bound<'py, PyBytes>> = split.any_unsure.then(|| to_bytes(py, &split.unsure));
    let (words, ends) = split.words.column();
    (to_bytes(py, &split.counts), to_bytes(py, &split.codes), PyBytes::new(py, words), to_bytes(py, &ends), unsure)
        .into_pyobject(py)
}
