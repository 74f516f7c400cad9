//! Entries of one store in memory: see `kernels::entry_map`.

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use super::buffers::{Held, rows_of, to_bytes};
use crate::kernels::entry_map::{AHEAD, Entered};
use crate::kernels::entry_rows::find;
use crate::kernels::segments::{KEY_LENGTH, WRITTEN};

/// See `penstock.state.stores.entry_cache.EntryMap`.
#[pyclass]
pub struct EntryMap {
    pub(super) entered: Entered,
}

const LENGTH_MAX: usize = KEY_LENGTH as usize;

fn bytes_of<'a>(item: &'a Bound<'_, PyAny>) -> PyResult<&'a [u8]> {
    checked(item.cast::<PyBytes>().map_err(|_| PyTypeError::new_err("keys are bytes"))?.as_bytes())
}

#[inline(always)]
fn checked(bytes: &[u8]) -> PyResult<&[u8]> {
    if bytes.len() >= LENGTH_MAX { Err(too_long()) } else { Ok(bytes) }
}

fn too_long() -> PyErr {
    PyValueError::new_err("a key or a value has 512 MiB or more")
}

impl EntryMap {
    fn each(
        &mut self,
        keys: &Bound<'_, PyAny>,
        values: &Bound<'_, PyAny>,
        mut put: impl FnMut(&mut Entered, &[u8], Option<&[u8]>),
    ) -> PyResult<()> {
        if keys.len()? != values.len()? {
            return Err(PyValueError::new_err("there are not as many keys as values"));
        }
        self.entered.unsort();
        let keys: Vec<Bound<'_, PyAny>> = keys.try_iter()?.collect::<PyResult<_>>()?;
        let values: Vec<Bound<'_, PyAny>> = values.try_iter()?.collect::<PyResult<_>>()?;
        for (keys, values) in keys.chunks(AHEAD).zip(values.chunks(AHEAD)) {
            for key in keys {
                self.entered.expect(self.entered.hash(bytes_of(key)?));
            }
            for (key, value) in keys.iter().zip(values) {
                let other;
                let value = if value.is_none() {
                    None
                } else if let Ok(bytes) = value.cast::<PyBytes>() {
                    Some(checked(bytes.as_bytes())?)
                } else {
                    // A value is copied in any case, so whatever has a buffer of bytes will do.
                    other = PyBuffer::<u8>::get(value)?.to_vec(value.py())?;
                    Some(checked(&other)?)
                };
                put(&mut self.entered, bytes_of(key)?, value);
            }
        }
        Ok(())
    }
}

#[pymethods]
impl EntryMap {
    #[new]
    fn new() -> Self {
        EntryMap { entered: Entered::default() }
    }

    fn __len__(&self) -> usize {
        self.entered.written
    }

    #[getter]
    fn used_bytes(&self) -> usize {
        self.entered.used_bytes()
    }

    #[getter]
    fn written_bytes(&self) -> usize {
        self.entered.written_bytes()
    }

    #[getter]
    fn forgot(&self) -> bool {
        self.entered.forgot
    }

    fn get_many<'py>(
        &mut self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
    ) -> PyResult<(Bound<'py, PyList>, Vec<usize>)> {
        let keys: Vec<Bound<'py, PyAny>> = keys.try_iter()?.collect::<PyResult<_>>()?;
        let mut values: Vec<Option<Bound<'py, PyBytes>>> = Vec::with_capacity(keys.len());
        let mut unknown = vec![];
        let mut hashes = [0; AHEAD];
        for (part, keys) in keys.chunks(AHEAD).enumerate() {
            for (hash, key) in hashes.iter_mut().zip(keys) {
                *hash = self.entered.hash(bytes_of(key)?);
                self.entered.expect(*hash);
            }
            for (i, (&hash, key)) in hashes.iter().zip(keys).enumerate() {
                let Some(place) = self.entered.find_hashed(hash, bytes_of(key)?) else {
                    unknown.push(part * AHEAD + i);
                    values.push(None);
                    continue;
                };
                self.entered.mark_used(place);
                values.push(self.entered.log.value(place).map(|v| PyBytes::new(py, v)));
            }
        }
        Ok((PyList::new(py, values)?, unknown))
    }

    /// `(data, int64 ends from 0 on, a byte per row, 1 where there is no value, or None, int64 places of the unknown keys)`.
    fn find_rows<'py>(
        &mut self,
        py: Python<'py>,
        data: Held<u8>,
        offsets: Held<i64>,
        skip: usize,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let rows = rows_of(&data, &offsets, None)?;
        let entered = &mut self.entered;
        let found = py.detach(|| find(entered, &rows, skip));
        let absent = found.absent.contains(&1).then(|| to_bytes(py, &found.absent));
        (PyBytes::new(py, &found.data), to_bytes(py, &found.ends), absent, to_bytes(py, &found.unknown))
            .into_pyobject(py)
    }

    fn put_many(&mut self, keys: &Bound<'_, PyAny>, values: &Bound<'_, PyAny>) -> PyResult<()> {
        self.each(keys, values, |entered, key, value| entered.put(key, value, WRITTEN))
    }

    /// `put_many` of a column of keys without nulls and one of values.
    #[pyo3(signature = (data, offsets, value_data, value_offsets, value_nulls = None))]
    fn put_rows(
        &mut self,
        py: Python<'_>,
        data: Held<u8>,
        offsets: Held<i64>,
        value_data: Held<u8>,
        value_offsets: Held<i64>,
        value_nulls: Option<Held<u8>>,
    ) -> PyResult<()> {
        let keys = rows_of(&data, &offsets, None)?;
        let values = rows_of(&value_data, &value_offsets, value_nulls.as_ref())?;
        if keys.len() != values.len() {
            return Err(PyValueError::new_err("there are not as many keys as values"));
        }
        for rows in [&keys, &values] {
            if rows.data.len() >= LENGTH_MAX && (0..rows.len()).any(|row| rows.bytes(row).len() >= LENGTH_MAX) {
                return Err(too_long());
            }
        }
        let entered = &mut self.entered;
        py.detach(|| entered.put_rows(&keys, &values));
        Ok(())
    }

    /// `put_rows` of keys behind prefixes and values behind times.
    #[allow(clippy::too_many_arguments)]
    fn put_stamped(
        &mut self,
        py: Python<'_>,
        prefixes: Option<Held<i64>>,
        data: Held<u8>,
        offsets: Held<i64>,
        times: Held<i64>,
        value_data: Held<u8>,
        value_offsets: Held<i64>,
    ) -> PyResult<()> {
        let (keys, values) = (rows_of(&data, &offsets, None)?, rows_of(&value_data, &value_offsets, None)?);
        let (prefixes, times) = (prefixes.as_ref().map(Held::slice), times.slice());
        let many = prefixes.map_or(keys.len(), <[i64]>::len);
        if [many, times.len(), values.len()].iter().any(|&length| length != keys.len()) {
            return Err(PyValueError::new_err("there is not one prefix, time and value per key"));
        }
        if keys.longest() + 8 >= LENGTH_MAX || values.longest() + 8 >= LENGTH_MAX {
            return Err(too_long());
        }
        let entered = &mut self.entered;
        py.detach(|| entered.put_stamped(prefixes, &keys, times, &values));
        Ok(())
    }

    fn keep_many(&mut self, keys: &Bound<'_, PyAny>, values: &Bound<'_, PyAny>) -> PyResult<()> {
        self.each(keys, values, Entered::keep)
    }

    fn forget_below(&mut self, bound: &[u8]) {
        self.entered.forget_below(bound);
    }

    fn sort_written(&mut self, py: Python<'_>) -> usize {
        let entered = &mut self.entered;
        py.detach(|| entered.sort().len())
    }

    fn written_part<'py>(
        &mut self,
        py: Python<'py>,
        prefix: &[u8],
        start: usize,
        stop: usize,
    ) -> PyResult<(Bound<'py, PyList>, Bound<'py, PyList>)> {
        let (keys, values): (Vec<_>, Vec<_>) = self
            .entered
            .written_part(start, stop)
            .map(|(key, value)| {
                let whole = PyBytes::new_with(py, prefix.len() + key.len(), |room| {
                    room[..prefix.len()].copy_from_slice(prefix);
                    room[prefix.len()..].copy_from_slice(key);
                    Ok(())
                });
                (whole, value.map(|v| PyBytes::new(py, v)))
            })
            .unzip();
        let keys: PyResult<Vec<_>> = keys.into_iter().collect();
        Ok((PyList::new(py, keys?)?, PyList::new(py, values)?))
    }

    fn written_between<'py>(
        &mut self,
        py: Python<'py>,
        low: &[u8],
        high: Option<&[u8]>,
        most: usize,
        last: bool,
    ) -> PyResult<(Bound<'py, PyList>, Bound<'py, PyList>)> {
        let entered = &mut self.entered;
        let places = py.detach(|| entered.written_between(low, high, most, last));
        let (keys, values): (Vec<_>, Vec<_>) = places.iter().map(|&place| entered.entry(place)).unzip();
        let keys = PyList::new(py, keys.into_iter().map(|key| PyBytes::new(py, key)))?;
        let values = PyList::new(py, values.into_iter().map(|value| value.map(|value| PyBytes::new(py, value))))?;
        Ok((keys, values))
    }

    fn settle(&mut self) {
        self.entered.settle();
    }

    fn shrink(&mut self, py: Python<'_>, max_bytes: usize) {
        let entered = &mut self.entered;
        py.detach(|| entered.shrink(max_bytes));
    }

    fn clear(&mut self) {
        self.entered = Entered::default();
    }
}
