//! JSON objects out of columns: the same text of every row around the texts of its values.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple};

use super::scan::special;
use crate::kernels::buffers::{Held, Rows, large_bytes, no_room, room_for, to_bytes};

const NULL: &[u8] = b"null";
/// Digits of the longest int64, its sign included.
const INT_BYTES_MAX: usize = 20;
/// So much is reserved ahead at most.
const AHEAD_BYTES_MAX: usize = 16 << 20;

/// A column as Python hands it over.
#[derive(FromPyObject)]
enum Given<'py> {
    /// Codes, values, and whether those are texts to be quoted, or JSON.
    Coded(Held<i32>, Bound<'py, PyList>, bool),
    /// JSON: data, offsets, nulls.
    Raw(Held<u8>, Held<i64>, Option<Held<u8>>),
    /// Numbers and nulls.
    Ints(Held<i64>, Option<Held<u8>>),
}

enum Part<'a> {
    Ints(&'a [i64], Option<&'a [u8]>),
    Coded(&'a [i32], Vec<&'a [u8]>, bool),
    Raw(Rows<'a>),
}

/// The values that codes use, others empty. `None`: one that is to be quoted needs more than quotes.
fn used<'a>(codes: &[i32], values: &'a [Bound<'_, PyAny>], quoted: bool) -> PyResult<Option<Vec<&'a [u8]>>> {
    let mut texts: Vec<&[u8]> = vec![&[]; values.len()];
    let mut seen = vec![false; values.len()];
    for &code in codes {
        let code = code as usize;
        if *seen.get(code).ok_or_else(|| PyValueError::new_err(format!("no value has code {code}")))? {
            continue;
        }
        seen[code] = true;
        let Ok(text) = values[code].cast::<PyString>() else { return Ok(None) };
        texts[code] = text.to_str()?.as_bytes();
        if quoted && (special::<true>(texts[code], 0) < texts[code].len() || texts[code].contains(&0x7f)) {
            return Ok(None);
        }
    }
    Ok(Some(texts))
}

impl Part<'_> {
    fn len(&self) -> usize {
        match self {
            Part::Ints(numbers, _) => numbers.len(),
            Part::Coded(codes, _, _) => codes.len(),
            Part::Raw(rows) => rows.len(),
        }
    }

    /// How many bytes a value takes at most.
    fn one_max(&self) -> usize {
        match self {
            Part::Ints(..) => INT_BYTES_MAX,
            Part::Coded(_, texts, _) => texts.iter().map(|text| text.len()).max().unwrap_or(0) + 2,
            Part::Raw(rows) => rows.longest().max(NULL.len()),
        }
    }

    /// How many bytes all values take at most.
    fn all_max(&self, count: usize) -> usize {
        match self {
            Part::Raw(rows) => count.saturating_mul(NULL.len()).saturating_add(rows.extent()),
            _ => count.saturating_mul(self.one_max()),
        }
    }

    #[inline(always)]
    fn write(&self, row: usize, out: &mut Vec<u8>) {
        match self {
            Part::Ints(_, Some(nulls)) if nulls[row] != 0 => out.extend_from_slice(NULL),
            Part::Ints(numbers, _) => write_int(numbers[row], out),
            Part::Coded(codes, texts, true) => {
                out.push(b'"');
                out.extend_from_slice(texts[codes[row] as usize]);
                out.push(b'"');
            }
            Part::Coded(codes, texts, false) => out.extend_from_slice(texts[codes[row] as usize]),
            Part::Raw(rows) => out.extend_from_slice(rows.get(row).unwrap_or(NULL)),
        }
    }
}

#[inline(always)]
fn write_int(number: i64, out: &mut Vec<u8>) {
    let mut digits = [0; INT_BYTES_MAX];
    let mut at = INT_BYTES_MAX;
    let mut rest = number.unsigned_abs();
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if number < 0 {
        at -= 1;
        digits[at] = b'-';
    }
    out.extend_from_slice(&digits[at..]);
}

/// `befores[i]` and the i-th column's value, for each column, and a closing brace, for each row: `(data, int64 ends from 0
/// on)`. `None`: a text that is to be quoted is none, or is not all printable ASCII without quotes and backslashes.
#[pyfunction]
pub fn write_records<'py>(
    py: Python<'py>,
    befores: Vec<Vec<u8>>,
    columns: Vec<Bound<'py, PyAny>>,
    count: usize,
) -> PyResult<Option<Bound<'py, PyTuple>>> {
    let given: Vec<Given> = columns.iter().map(|column| column.extract()).collect::<PyResult<_>>()?;
    let lists: Vec<Vec<Bound<'_, PyAny>>> = given
        .iter()
        .map(|one| if let Given::Coded(_, values, _) = one { values.iter().collect() } else { vec![] })
        .collect();
    let mut parts = vec![];
    for (one, values) in given.iter().zip(&lists) {
        let part = match one {
            Given::Ints(numbers, nulls) => Part::Ints(numbers.slice(), nulls.as_ref().map(Held::slice)),
            Given::Raw(data, offsets, nulls) => Part::Raw(Rows::of(data, offsets, nulls)?),
            Given::Coded(codes, _, quoted) => {
                let Some(texts) = used(codes.slice(), values, *quoted)? else { return Ok(None) };
                Part::Coded(codes.slice(), texts, *quoted)
            }
        };
        let nulls = if let Part::Ints(_, Some(nulls)) = &part { nulls.len() } else { count };
        if part.len() != count || nulls != count {
            return Err(PyValueError::new_err(format!("a column has {} values, not {count}", part.len())));
        }
        parts.push(part);
    }
    if parts.len() != befores.len() {
        return Err(PyValueError::new_err("there are not as many columns as names"));
    }
    let (data, ends) = py.detach(|| write(&befores, &parts, count))?;
    Ok(Some((large_bytes(py, &data)?, to_bytes(py, &ends)).into_pyobject(py)?))
}

/// One text may be long and used by every row, so that all rows together have no room although their columns do.
fn write(befores: &[Vec<u8>], parts: &[Part], count: usize) -> PyResult<(Vec<u8>, Vec<i64>)> {
    let mut data: Vec<u8> = vec![];
    let mut ends = room_for(count.saturating_add(1))?;
    ends.push(0);
    let around = befores.iter().map(Vec::len).sum::<usize>() + 1;
    let most = parts.iter().fold(around.saturating_mul(count), |sum, part| sum.saturating_add(part.all_max(count)));
    let roomy = data.try_reserve(most.min(AHEAD_BYTES_MAX)).is_ok() && most <= AHEAD_BYTES_MAX;
    let longest = if roomy { 0 } else { around + parts.iter().map(Part::one_max).sum::<usize>() };
    for row in 0..count {
        if data.capacity() - data.len() < longest {
            data.try_reserve(longest).map_err(no_room)?;
        }
        for (before, part) in befores.iter().zip(parts) {
            data.extend_from_slice(before);
            part.write(row, &mut data);
        }
        data.push(b'}');
        ends.push(data.len() as i64);
    }
    Ok((data, ends))
}
