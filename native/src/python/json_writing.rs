//! JSON out of columns: see `kernels::json::writing`.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple};

use super::buffers::{Held, large_bytes, rows_of, to_bytes};
use crate::kernels::json::writing::{PLACES_MAX, Part, all_plain, is_plain, write};

/// A column as Python hands it over.
#[derive(FromPyObject)]
enum Given<'py> {
    /// Data, offsets, nulls, and whether those are texts to be quoted, or JSON.
    Texts(Held<u8>, Held<i64>, Option<Held<u8>>, bool),
    /// Codes, values, and whether those are texts to be quoted, or JSON.
    Coded(Held<i32>, Bound<'py, PyList>, bool),
    /// JSON: data, offsets, nulls.
    Raw(Held<u8>, Held<i64>, Option<Held<u8>>),
    /// Decimals: numbers without their point, nulls, places behind the point, and whether they are quoted.
    Decimals(Held<i64>, Option<Held<u8>>, u32, bool),
    /// Numbers and nulls.
    Ints(Held<i64>, Option<Held<u8>>),
}

/// The values that codes use. `None`: one of them is not a text, or must be quoted and needs more
/// than quotes.
fn used<'a>(codes: &[i32], values: &'a [Bound<'_, PyAny>], quoted: bool) -> PyResult<Option<Vec<Option<&'a [u8]>>>> {
    let mut texts: Vec<Option<&[u8]>> = vec![None; values.len()];
    let mut seen = vec![false; values.len()];
    for &code in codes {
        let code = code as usize;
        if *seen.get(code).ok_or_else(|| PyValueError::new_err(format!("no value has code {code}")))? {
            continue;
        }
        seen[code] = true;
        if quoted && values[code].is_none() {
            continue;
        }
        let Ok(text) = values[code].cast_exact::<PyString>() else { return Ok(None) };
        let text = text.to_str()?.as_bytes();
        if quoted && !is_plain(text) {
            return Ok(None);
        }
        texts[code] = Some(text);
    }
    Ok(Some(texts))
}

/// `befores[i]` and the i-th column's value, for each column, and a closing brace, for each row: `(data, int64 ends from 0
/// on)`. `None`: a text that must be quoted is none, or has quotes, backslashes or control characters.
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
            Given::Decimals(numbers, nulls, places, quoted) => {
                if *places > PLACES_MAX {
                    let said =
                        format!("decimals of {places} places may need an exponent; at most {PLACES_MAX} are written");
                    return Err(PyValueError::new_err(said));
                }
                Part::Decimals(numbers.slice(), nulls.as_ref().map(Held::slice), *places, *quoted)
            }
            Given::Ints(numbers, nulls) => Part::Ints(numbers.slice(), nulls.as_ref().map(Held::slice)),
            Given::Texts(data, offsets, nulls, quoted) => {
                let rows = rows_of(data, offsets, nulls.as_ref())?;
                if *quoted && !all_plain(&rows) {
                    return Ok(None);
                }
                if *quoted { Part::Texts(rows) } else { Part::Raw(rows) }
            }
            Given::Raw(data, offsets, nulls) => Part::Raw(rows_of(data, offsets, nulls.as_ref())?),
            Given::Coded(codes, _, quoted) => {
                let Some(texts) = used(codes.slice(), values, *quoted)? else { return Ok(None) };
                Part::Coded(codes.slice(), texts, *quoted)
            }
        };
        parts.push(part);
    }
    let (data, ends) = py.detach(|| write(&befores, &parts, count))?;
    Ok(Some((large_bytes(py, &data)?, to_bytes(py, &ends)).into_pyobject(py)?))
}
