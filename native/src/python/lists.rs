//! Entries of list stores: see `kernels::lists`.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use super::buffers::{Held, large_bytes, rows_of, to_bytes};
use crate::kernels::lists::{Lists, Values};
use crate::kernels::rows::Rows;

/// See `penstock_native.pyi`.
#[pyclass]
pub struct ListEntries(Lists);

fn each<'a>(rows: &Rows<'a>) -> impl Iterator<Item = &'a [u8]> {
    (0..rows.len()).map(|row| rows.bytes(row))
}

fn values_of<'py>(py: Python<'py>, found: &Values) -> PyResult<Bound<'py, PyTuple>> {
    (
        large_bytes(py, &found.data)?,
        to_bytes(py, &found.ends),
        to_bytes(py, &found.missing),
        large_bytes(py, &found.keys)?,
        to_bytes(py, &found.key_ends),
    )
        .into_pyobject(py)
}

#[pymethods]
impl ListEntries {
    #[new]
    fn new(segment_ms: i64) -> Self {
        ListEntries(Lists::new(segment_ms))
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    #[getter]
    fn uncommitted_bytes(&self) -> usize {
        self.0.uncommitted_bytes()
    }

    #[getter]
    fn used_bytes(&self) -> usize {
        self.0.used_bytes()
    }

    #[getter]
    fn latest_ms(&self) -> i64 {
        self.0.latest_ms()
    }

    fn begin(&mut self, first: i64, latest_ms: i64) {
        self.0.begin(first, latest_ms);
    }

    /// `(int64 counts, int64 times, [(segment, key)])`.
    fn within<'py>(
        &mut self,
        py: Python<'py>,
        data: Held<u8>,
        offsets: Held<i64>,
        from_ms: i64,
        to_ms: i64,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let keys = rows_of(&data, &offsets, None)?;
        let lists = &mut self.0;
        let found = py.detach(|| lists.within(each(&keys), from_ms, to_ms));
        let unknown: Vec<_> = found.unknown.iter().map(|(segment, key)| (*segment, PyBytes::new(py, key))).collect();
        (to_bytes(py, &found.counts), to_bytes(py, &found.times), PyList::new(py, unknown)?).into_pyobject(py)
    }

    /// `(data, int64 ends, int64 places of the missing, keys' data, int64 ends)`.
    fn values<'py>(&self, py: Python<'py>, places: Held<i64>) -> PyResult<Bound<'py, PyTuple>> {
        let (lists, places) = (&self.0, places.slice());
        let found = py.detach(|| lists.values(places))?;
        values_of(py, &found)
    }

    /// As `values`.
    fn named<'py>(&self, py: Python<'py>, data: Held<u8>, offsets: Held<i64>) -> PyResult<Bound<'py, PyTuple>> {
        let names = rows_of(&data, &offsets, None)?;
        let lists = &self.0;
        let found = py.detach(|| lists.named(each(&names)))?;
        values_of(py, &found)
    }

    /// Data and int64 ends.
    fn names<'py>(&self, py: Python<'py>, places: Held<i64>) -> PyResult<Bound<'py, PyTuple>> {
        let (data, ends) = self.0.names(places.slice())?;
        (large_bytes(py, &data)?, to_bytes(py, &ends)).into_pyobject(py)
    }

    /// uint32 numbers.
    fn numbers<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        to_bytes(py, self.0.numbers())
    }

    fn load(&mut self, segment: i64, key: &[u8], entries: &Bound<'_, PyList>) -> PyResult<()> {
        let listed: Vec<Bound<'_, PyAny>> = entries.iter().collect();
        let entries: Vec<&[u8]> = listed
            .iter()
            .map(|entry| entry.cast::<PyBytes>().map(|bytes| bytes.as_bytes()))
            .collect::<Result<_, _>>()
            .map_err(|_| PyTypeError::new_err("entries are bytes"))?;
        Ok(self.0.load(segment, key, entries.into_iter())?)
    }

    /// int64 places of the rows of which the numbers are unknown.
    #[allow(clippy::too_many_arguments)]
    #[pyo3(signature = (data, offsets, numbers, times, value_data, value_offsets, expired, checked))]
    fn append<'py>(
        &mut self,
        py: Python<'py>,
        data: Held<u8>,
        offsets: Held<i64>,
        numbers: Held<i64>,
        times: Held<i64>,
        value_data: Held<u8>,
        value_offsets: Held<i64>,
        expired: Option<Held<u8>>,
        checked: bool,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let keys = rows_of(&data, &offsets, None)?;
        let values = rows_of(&value_data, &value_offsets, None)?;
        let expired = expired.as_ref().map_or(&[][..], Held::slice);
        let (lists, numbers, times) = (&mut self.0, numbers.slice(), times.slice());
        let unknown = py.detach(|| {
            let keys: Vec<&[u8]> = each(&keys).collect();
            lists.append(&keys, numbers, times, &values, expired, checked)
        })?;
        Ok(to_bytes(py, &unknown))
    }

    /// Columns of what the next commit writes, less the entries before `from_ms`: int64 segments, keys without them, values;
    /// and int64 times.
    fn appends<'py>(&self, py: Python<'py>, from_ms: i64) -> PyResult<Bound<'py, PyTuple>> {
        let lists = &self.0;
        let found = py.detach(|| lists.appends(from_ms));
        (
            to_bytes(py, &found.segments),
            large_bytes(py, &found.keys)?,
            to_bytes(py, &found.key_ends),
            large_bytes(py, &found.values)?,
            to_bytes(py, &found.value_ends),
            to_bytes(py, &found.times),
        )
            .into_pyobject(py)
    }

    fn committed(&mut self, floor: i64) {
        self.0.committed(floor);
    }

    fn trim(&mut self, max_bytes: usize) -> bool {
        self.0.trim(max_bytes)
    }
}
