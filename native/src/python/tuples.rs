//! Lists of tuples of scalars, to and from the bytes that their serdes write: see `kernels::tuples`.
//!
//! Whatever is not certain to come out as the serde in Python has it is left to that: the answer is then `None`. Only objects
//! of built-in types are looked at, so that none of their own code runs.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyFloat, PyInt, PyList, PyString, PyTuple};

use super::buffers::large_bytes;
use super::rows::taken_column;
use crate::kernels::rows::Taken;
use crate::kernels::tuples::{Form, Found, Scalar, put, put_array, put_framed, put_long};

const STAMP_BYTES: usize = 8;
/// Room for each tuple at first.
const USUAL_BYTES: usize = 64;

/// The forms of a tuple's parts. `None`: it is flat itself.
pub(super) fn forms_of(letters: Option<&[u8]>) -> PyResult<Option<Vec<Form>>> {
    let known =
        |&letter: &u8| Form::of(letter).ok_or_else(|| PyValueError::new_err(format!("no part has the form {letter}")));
    letters.map(|all| all.iter().map(known).collect()).transpose()
}

/// A whole number of 64 bits with a sign.
fn long(value: &Bound<'_, PyAny>) -> Option<i64> {
    value.cast_exact::<PyInt>().ok()?.extract().ok()
}

fn scalar<'a>(value: &'a Bound<'_, PyAny>) -> Option<Scalar<'a>> {
    if let Ok(number) = value.cast_exact::<PyInt>() {
        return number.extract().map(Scalar::Int).or_else(|_| number.extract().map(Scalar::Above)).ok();
    }
    if value.is_none() {
        return Some(Scalar::Null);
    }
    if let Ok(number) = value.cast_exact::<PyFloat>() {
        return Some(Scalar::Float(number.value()));
    }
    if let Ok(text) = value.cast_exact::<PyString>() {
        return text.to_str().ok().map(Scalar::Text);
    }
    if let Ok(flag) = value.cast_exact::<PyBool>() {
        return Some(Scalar::Flag(flag.is_true()));
    }
    value.cast_exact::<PyBytes>().ok().map(|bytes| Scalar::Bytes(bytes.as_bytes()))
}

fn put_flat(out: &mut Vec<u8>, value: &Bound<'_, PyAny>) -> Option<()> {
    let items = value.cast_exact::<PyTuple>().ok()?;
    put_array(out, items.len())?;
    for item in items.iter_borrowed() {
        put(out, scalar(&item)?)?;
    }
    Some(())
}

/// Adds a tuple of such parts. `put_bag` adds what stands in the place of a bag.
pub(super) fn put_parts(
    out: &mut Vec<u8>,
    value: &Bound<'_, PyAny>,
    forms: &[Form],
    mut put_bag: impl FnMut(&mut Vec<u8>) -> Option<()>,
) -> Option<()> {
    let parts = value.cast_exact::<PyTuple>().ok()?;
    if parts.len() != forms.len() {
        return None;
    }
    put_array(out, forms.len())?;
    for (part, form) in parts.iter_borrowed().zip(forms) {
        match form {
            Form::Long => put_long(out, long(&part)?),
            Form::Flat => put_framed(out, |inner| put_flat(inner, &part))?,
            Form::Bag => put_bag(out)?,
            Form::Number => {
                part.cast_exact::<PyInt>().ok()?;
                put_framed(out, |inner| put(inner, scalar(&part)?))?;
            }
        }
    }
    Some(())
}

/// All tuples, with `stamped` each as `(tuple, time)`, behind its time.
fn written(values: &Bound<'_, PyList>, forms: Option<&[Form]>, stamped: bool) -> PyResult<Option<Taken>> {
    let count = values.len();
    let mut all = Taken::with_room(count, count.saturating_mul(USUAL_BYTES))?;
    for value in values.iter() {
        if value.is_none() {
            all.push(None);
            continue;
        }
        let out = &mut all.data;
        let put_tuple = |out: &mut Vec<u8>, tuple: &Bound<'_, PyAny>| match forms {
            None => put_flat(out, tuple),
            Some(forms) => put_parts(out, tuple, forms, |_| None),
        };
        let done = if stamped { put_entry(out, &value, put_tuple) } else { put_tuple(out, &value) };
        if done.is_none() {
            return Ok(None);
        }
        all.ends.push(all.data.len() as i64);
        all.nulls.push(0);
    }
    Ok(Some(all))
}

fn put_entry(
    out: &mut Vec<u8>,
    entry: &Bound<'_, PyAny>,
    put_tuple: impl FnOnce(&mut Vec<u8>, &Bound<'_, PyAny>) -> Option<()>,
) -> Option<()> {
    let pair = entry.cast_exact::<PyTuple>().ok()?;
    let [tuple, time] = [pair.get_borrowed_item(0).ok()?, pair.get_borrowed_item(1).ok()?];
    if pair.len() != 2 {
        return None;
    }
    out.extend_from_slice(&long(&time)?.to_be_bytes());
    put_tuple(out, &tuple)
}

/// The bytes of tuples, with `stamped` behind the time of each `(tuple, time)`; nulls are kept.
#[pyfunction]
#[pyo3(signature = (values, forms, stamped))]
pub fn write_tuples<'py>(
    py: Python<'py>,
    values: &Bound<'py, PyList>,
    forms: Option<&[u8]>,
    stamped: bool,
) -> PyResult<Option<Bound<'py, PyList>>> {
    let Some(all) = written(values, forms_of(forms)?.as_deref(), stamped)? else { return Ok(None) };
    let row = |(ends, &null): (&[i64], &u8)| {
        let data = &all.data[ends[0] as usize..ends[1] as usize];
        if null == 0 { large_bytes(py, data).map(Some) } else { Ok(None) }
    };
    let rows: Vec<_> = all.ends.windows(2).zip(&all.nulls).map(row).collect::<PyResult<_>>()?;
    PyList::new(py, rows).map(Some)
}

/// The bytes of tuples as a column; nulls are kept.
#[pyfunction]
#[pyo3(signature = (values, forms))]
pub fn pack_tuples<'py>(
    py: Python<'py>,
    values: &Bound<'py, PyList>,
    forms: Option<&[u8]>,
) -> PyResult<Option<Bound<'py, PyTuple>>> {
    let Some(all) = written(values, forms_of(forms)?.as_deref(), false)? else { return Ok(None) };
    let nullable = all.nulls.contains(&1);
    taken_column(py, &all, nullable).map(Some)
}

/// A part of a tuple that was read.
enum Part<'a> {
    One(Scalar<'a>),
    Flat(&'a [Scalar<'a>]),
}

impl<'py> IntoPyObject<'py> for Scalar<'_> {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(match self {
            Scalar::Null => py.None().into_bound(py),
            Scalar::Flag(flag) => PyBool::new(py, flag).to_owned().into_any(),
            Scalar::Int(number) => number.into_pyobject(py)?.into_any(),
            Scalar::Above(number) => number.into_pyobject(py)?.into_any(),
            Scalar::Float(number) => PyFloat::new(py, number).into_any(),
            Scalar::Text(text) => PyString::new(py, text).into_any(),
            Scalar::Bytes(bytes) => large_bytes(py, bytes)?.into_any(),
        })
    }
}

impl<'py> IntoPyObject<'py> for Part<'_> {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self {
            Part::One(scalar) => scalar.into_pyobject(py),
            Part::Flat(scalars) => Ok(PyTuple::new(py, scalars.iter().copied())?.into_any()),
        }
    }
}

/// Reads rows of one kind, one after the other.
struct Reading<'a> {
    forms: Option<&'a [Form]>,
    stamped: bool,
}

impl Reading<'_> {
    /// The row as a tuple, or as `(tuple, time)`. `None`: Python must read it.
    fn row<'a, 'py>(
        &self,
        py: Python<'py>,
        data: &'a [u8],
        found: &mut Found<'a>,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let stamp = if self.stamped { STAMP_BYTES } else { 0 };
        let Some((stamp, data)) = data.split_at_checked(stamp) else { return Ok(None) };
        found.clear();
        let done = match self.forms {
            None => found.add_flat(data),
            Some(forms) => found.add_parts(data, forms),
        };
        if done.is_none() {
            return Ok(None);
        }
        let tuple = tuple_of(py, found, self.forms)?;
        let Ok(time) = stamp.try_into().map(i64::from_be_bytes) else { return Ok(Some(tuple)) };
        (tuple, time).into_pyobject(py).map(Some)
    }
}

/// The tuple of one row; `forms`: as in `forms_of`.
pub(super) fn tuple_of<'py>(
    py: Python<'py>,
    found: &Found<'_>,
    forms: Option<&[Form]>,
) -> PyResult<Bound<'py, PyTuple>> {
    let Some(forms) = forms else { return PyTuple::new(py, found.scalars.iter().copied()) };
    let (mut rest, mut sizes) = (&found.scalars[..], found.sizes.iter());
    let mut part = |form: &Form| {
        let flat = *form == Form::Flat;
        let (part, others) = rest.split_at(if flat { *sizes.next().unwrap_or(&0) } else { 1 });
        rest = others;
        if flat { Part::Flat(part) } else { Part::One(part[0]) }
    };
    let parts: Vec<Part<'_>> = forms.iter().map(&mut part).collect();
    PyTuple::new(py, parts)
}

/// The tuples of these bytes, with `stamped` as `(tuple, time)`; nulls are kept.
#[pyfunction]
#[pyo3(signature = (values, forms, stamped))]
pub fn read_tuples<'py>(
    py: Python<'py>,
    values: &Bound<'py, PyList>,
    forms: Option<&[u8]>,
    stamped: bool,
) -> PyResult<Option<Bound<'py, PyList>>> {
    let forms = forms_of(forms)?;
    let reading = Reading { forms: forms.as_deref(), stamped };
    let listed: Vec<Bound<'py, PyAny>> = values.iter().collect();
    let (mut found, mut rows) = (Found::default(), Vec::with_capacity(listed.len()));
    for value in &listed {
        if value.is_none() {
            rows.push(None);
            continue;
        }
        let Ok(bytes) = value.cast_exact::<PyBytes>() else { return Ok(None) };
        let Some(row) = reading.row(py, bytes.as_bytes(), &mut found)? else { return Ok(None) };
        rows.push(Some(row));
    }
    PyList::new(py, rows).map(Some)
}
