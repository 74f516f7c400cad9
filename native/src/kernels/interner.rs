//! Dictionary coding: byte strings to small integers, with the distinct values' Python objects kept from batch to batch.
//!
//! Codes are dense per batch, in the order of first appearance in it, so that what is worked out per distinct value is
//! worked out for the values of the batch only. Between batches a value keeps its object, until the interner has grown
//! over its limit and begins anew.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};

use super::buffers::{Held, Rows, to_bytes};

/// Roughly what the interner keeps per value beside its bytes: entry, index and the Python object with its header.
const ENTRY_BYTES: usize = 128;

struct Entry {
    start: usize,
    length: usize,
    hash: u64,
    batch: u64,
    code: i32,
}

/// The part that works without the GIL.
pub struct Codes {
    hasher: RandomState,
    index: HashTable<u32>,
    entries: Vec<Entry>,
    arena: Vec<u8>,
    batch: u64,
    /// Of the batch's distinct values by code: their entries; `None` is null.
    used: Vec<Option<u32>>,
    null_code: Option<i32>,
}

impl Codes {
    pub fn new() -> Self {
        Codes {
            hasher: RandomState::default(),
            index: HashTable::new(),
            entries: vec![],
            arena: vec![],
            batch: 0,
            used: vec![],
            null_code: None,
        }
    }

    pub fn bytes_held(&self) -> usize {
        self.arena.len() + self.entries.len() * ENTRY_BYTES
    }

    fn clear(&mut self) {
        self.index.clear();
        self.entries.clear();
        self.arena.clear();
    }

    pub fn begin_batch(&mut self) {
        self.batch += 1;
        self.used.clear();
        self.null_code = None;
    }

    /// The batch's code of null.
    pub fn null(&mut self) -> i32 {
        let next = self.used.len() as i32;
        *self.null_code.get_or_insert_with(|| {
            self.used.push(None);
            next
        })
    }

    /// The batch's code of a value. Codes are below the number of rows, which `encode` holds below 2^31.
    #[inline(always)]
    pub fn code(&mut self, value: &[u8]) -> i32 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(value);
        let hash = hasher.finish();
        let (entries, arena) = (&self.entries, &self.arena);
        let same = |&place: &u32| {
            let entry = &entries[place as usize];
            entry.hash == hash && arena[entry.start..entry.start + entry.length] == *value
        };
        match self.index.find(hash, same) {
            Some(&place) => {
                let entry = &mut self.entries[place as usize];
                if entry.batch != self.batch {
                    entry.batch = self.batch;
                    entry.code = self.used.len() as i32;
                    self.used.push(Some(place));
                }
                entry.code
            }
            None => self.add(value, hash),
        }
    }

    fn add(&mut self, value: &[u8], hash: u64) -> i32 {
        let place = self.entries.len() as u32;
        let code = self.used.len() as i32;
        let start = self.arena.len();
        self.arena.extend_from_slice(value);
        self.entries.push(Entry { start, length: value.len(), hash, batch: self.batch, code });
        let entries = &self.entries;
        self.index.insert_unique(hash, place, |&other| entries[other as usize].hash);
        self.used.push(Some(place));
        code
    }

    fn bytes_of(&self, place: usize) -> &[u8] {
        let entry = &self.entries[place];
        &self.arena[entry.start..entry.start + entry.length]
    }

    fn encode(&mut self, rows: &Rows) -> Vec<i32> {
        (0..rows.len())
            .map(|row| match rows.get(row) {
                Some(value) => self.code(value),
                None => self.null(),
            })
            .collect()
    }
}

/// What the distinct values are to Python.
#[derive(Clone, Copy, PartialEq)]
pub enum Shape {
    Bytes,
    Str,
}

/// `Codes` with the Python objects of its entries.
pub struct Interned {
    pub codes: Codes,
    objects: Vec<Py<PyAny>>,
    shape: Shape,
    bytes_max: usize,
}

impl Interned {
    pub fn new(shape: Shape, bytes_max: usize) -> Self {
        Interned { codes: Codes::new(), objects: vec![], shape, bytes_max }
    }

    /// Before the rows of a batch. What one batch adds is not limited, only what stays for the next.
    pub fn begin_batch(&mut self) {
        if self.codes.bytes_held() > self.bytes_max || self.codes.entries.len() > i32::MAX as usize / 2 {
            self.clear();
        }
        self.codes.begin_batch();
    }

    /// After them: the batch's distinct values in the order of their codes. Raises `UnicodeDecodeError` where they are to
    /// be `str` and one is not UTF-8; the interner begins anew then.
    pub fn values<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        for place in self.objects.len()..self.codes.entries.len() {
            let bytes = self.codes.bytes_of(place);
            let object = match self.shape {
                Shape::Bytes => Ok(PyBytes::new(py, bytes).into_any().unbind()),
                Shape::Str => PyString::from_bytes(py, bytes).map(|text| text.into_any().unbind()),
            };
            match object {
                Ok(object) => self.objects.push(object),
                Err(error) => {
                    self.clear();
                    return Err(error);
                }
            }
        }
        let used = &self.codes.used;
        PyList::new(py, used.iter().map(|place| place.map(|p| self.objects[p as usize].clone_ref(py))))
    }

    fn clear(&mut self) {
        self.codes.clear();
        self.objects.clear();
    }
}

/// Raises `ValueError` for more rows than codes can count.
pub fn check_rows(rows: usize) -> PyResult<()> {
    if rows >= i32::MAX as usize {
        return Err(PyValueError::new_err(format!(
            "{rows} rows are too many for one column of codes; take fewer at a time"
        )));
    }
    Ok(())
}

/// Codes columns of byte strings and remembers the values.
#[pyclass(module = "penstock_native")]
pub struct Interner(Interned);

#[pymethods]
impl Interner {
    #[new]
    fn new(bytes_max: usize, text: bool) -> Self {
        Interner(Interned::new(if text { Shape::Str } else { Shape::Bytes }, bytes_max))
    }

    /// `(codes: int32 bytes, values)`.
    fn encode<'py>(
        &mut self,
        py: Python<'py>,
        data: Held<u8>,
        offsets: Held<i64>,
        nulls: Option<Held<u8>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let rows = Rows::of(&data, &offsets, &nulls)?;
        check_rows(rows.len())?;
        self.0.begin_batch();
        let interned = &mut self.0.codes;
        let codes = py.detach(|| interned.encode(&rows));
        let values = self.0.values(py)?;
        (to_bytes(py, &codes), values).into_pyobject(py)
    }
}
