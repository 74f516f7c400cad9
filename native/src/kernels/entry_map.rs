//! Entries of one store in memory: what is written and not in the database yet, and what was read or written lately.
//!
//! A log of segments with an index. An entry is a header of 12 bytes, its key and its value; a value that fits is changed
//! in place, another one is appended, and the old place is dead. To forget, the oldest segment is taken apart: what is
//! written, and what was asked for since it was last moved, goes to the end, the rest is dropped. So memory is that of
//! the segments and the index, with no header of an allocator or of Python per entry.

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher};

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use super::buffers::{Held, Rows, to_bytes};
use super::entry_rows::find;

const HEADER: usize = 12;
const SEGMENT_BYTES: usize = 1 << 20;
const FIRST_SEGMENT_BYTES: usize = 4 << 10;
const WRITTEN: u32 = 1 << 31;
const USED: u32 = 1 << 30;
const DEAD: u32 = 1 << 29;
const KEY_LENGTH: u32 = DEAD - 1;
/// As the length of a value: the key is not in the store.
const ABSENT: u32 = u32::MAX;
/// What the written entries leave of the log is worth no pass over all of it, if it is less than this part.
const LITTLE: usize = 8;
/// A bucket of the index and its control byte.
const BUCKET_BYTES: usize = 9;

/// How many keys are looked for together.
pub(super) const AHEAD: usize = 32;

/// Where an entry lies: number of its segment, offset in it.
pub(super) type Place = u64;

/// Header: the entry's whole length, flags and the key's length, the value's length or `ABSENT`.
struct Header {
    total: usize,
    flags: u32,
    key: usize,
    value: u32,
}

#[inline(always)]
fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[inline(always)]
fn header(segment: &[u8], at: usize) -> Header {
    let word = number(segment, at + 4);
    Header {
        total: number(segment, at) as usize,
        flags: word & !KEY_LENGTH,
        key: (word & KEY_LENGTH) as usize,
        value: number(segment, at + 8),
    }
}

#[derive(Default)]
pub(super) struct Log {
    segments: VecDeque<Vec<u8>>,
    /// The number of the first segment.
    first: u64,
    bytes: usize,
}

impl Log {
    #[inline(always)]
    fn at(&self, place: Place) -> (&[u8], usize) {
        (&self.segments[((place >> 32) - self.first) as usize], place as u32 as usize)
    }

    #[inline(always)]
    fn at_mut(&mut self, place: Place) -> (&mut [u8], usize) {
        (&mut self.segments[((place >> 32) - self.first) as usize], place as u32 as usize)
    }

    fn key(&self, place: Place) -> &[u8] {
        let (segment, at) = self.at(place);
        &segment[at + HEADER..at + HEADER + header(segment, at).key]
    }

    pub(super) fn value(&self, place: Place) -> Option<&[u8]> {
        let (segment, at) = self.at(place);
        let head = header(segment, at);
        let start = at + HEADER + head.key;
        (head.value != ABSENT).then(|| &segment[start..start + head.value as usize])
    }

    fn flags(&self, place: Place) -> u32 {
        let (segment, at) = self.at(place);
        number(segment, at + 4) & !KEY_LENGTH
    }

    fn set_flags(&mut self, place: Place, flags: u32) {
        let (segment, at) = self.at_mut(place);
        let word = number(segment, at + 4) & KEY_LENGTH | flags;
        segment[at + 4..at + 8].copy_from_slice(&word.to_le_bytes());
    }

    fn append(&mut self, key: &[u8], value: Option<&[u8]>, flags: u32) -> Place {
        let room = value.map_or(0, <[u8]>::len);
        let total = HEADER + key.len() + room;
        let full = self.segments.back().is_none_or(|s| s.len() + total > s.capacity());
        if full {
            let size = (self.bytes / 4).clamp(FIRST_SEGMENT_BYTES, SEGMENT_BYTES).max(total);
            self.segments.push_back(Vec::with_capacity(size));
            self.bytes += self.segments.back().map_or(0, Vec::capacity);
        }
        let number = self.first + self.segments.len() as u64 - 1;
        let segment = self.segments.back_mut().expect("one was pushed when there was none");
        let at = segment.len();
        segment.extend_from_slice(&(total as u32).to_le_bytes());
        segment.extend_from_slice(&(key.len() as u32 | flags).to_le_bytes());
        segment.extend_from_slice(&value.map_or(ABSENT, |v| v.len() as u32).to_le_bytes());
        segment.extend_from_slice(key);
        segment.extend_from_slice(value.unwrap_or(&[]));
        number << 32 | at as u64
    }

    /// Writes the value into the entry's own place, if it fits there.
    fn replace(&mut self, place: Place, value: Option<&[u8]>, flags: u32) -> bool {
        let (segment, at) = self.at_mut(place);
        let head = header(segment, at);
        let start = at + HEADER + head.key;
        if value.is_some_and(|v| v.len() > head.total - HEADER - head.key) {
            return false;
        }
        segment[at + 4..at + 8].copy_from_slice(&(head.key as u32 | flags).to_le_bytes());
        segment[at + 8..at + 12].copy_from_slice(&value.map_or(ABSENT, |v| v.len() as u32).to_le_bytes());
        if let Some(value) = value {
            segment[start..start + value.len()].copy_from_slice(value);
        }
        true
    }

    fn places(&self) -> impl Iterator<Item = (Place, u32)> + '_ {
        self.segments.iter().enumerate().flat_map(move |(i, segment)| {
            let number = self.first + i as u64;
            Entries { segment, at: 0 }.map(move |(at, flags)| (number << 32 | at as u64, flags))
        })
    }
}

struct Entries<'a> {
    segment: &'a [u8],
    at: usize,
}

impl Iterator for Entries<'_> {
    type Item = (usize, u32);

    fn next(&mut self) -> Option<(usize, u32)> {
        if self.at >= self.segment.len() {
            return None;
        }
        let (at, head) = (self.at, header(self.segment, self.at));
        self.at += head.total;
        Some((at, head.flags))
    }
}

/// The part that knows nothing of Python.
#[derive(Default)]
pub(super) struct Entered {
    hasher: RandomState,
    index: HashTable<Place>,
    pub(super) log: Log,
    written: usize,
    written_bytes: usize,
    /// Where entries lie that were written, and some that are dead.
    places: Vec<Place>,
    /// Whether a written entry was moved, so that `places` is to be made anew.
    moved: bool,
    /// The written entries by key, while nothing changes them.
    sorted: Option<Vec<Place>>,
    /// Whether an entry that the database holds was forgotten.
    forgot: bool,
    /// What the written entries left of the log when that was all that a pass could not free.
    kept_spare: usize,
}

impl Entered {
    #[inline(always)]
    pub(super) fn hash(&self, key: &[u8]) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(key);
        hasher.finish()
    }

    fn find(&self, key: &[u8]) -> Option<Place> {
        self.find_hashed(self.hash(key), key)
    }

    pub(super) fn find_hashed(&self, hash: u64, key: &[u8]) -> Option<Place> {
        self.index.find(hash, |&p| self.log.key(p) == key).copied()
    }

    /// Lets the processor fetch, while it does other things, what a search for a key of this hash will read.
    #[inline(always)]
    pub(super) fn expect(&self, hash: u64) {
        if let Some(&place) = self.index.find(hash, |_| true) {
            let (segment, at) = self.log.at(place);
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a prefetch reads nothing, and the address lies within the segment.
            unsafe {
                use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
                _mm_prefetch::<_MM_HINT_T0>(segment.as_ptr().add(at).cast());
            }
            #[cfg(not(target_arch = "x86_64"))]
            let _ = (segment, at);
        }
    }

    /// Somebody asked for the entry.
    #[inline(always)]
    pub(super) fn mark_used(&mut self, place: Place) {
        let flags = self.log.flags(place);
        if flags & USED == 0 {
            self.log.set_flags(place, flags | USED);
        }
    }

    fn size(&self, place: Place) -> usize {
        let (segment, at) = self.log.at(place);
        header(segment, at).total
    }

    fn put(&mut self, key: &[u8], value: Option<&[u8]>, flags: u32) {
        self.put_hashed(self.hash(key), key, value, flags);
    }

    fn put_hashed(&mut self, hash: u64, key: &[u8], value: Option<&[u8]>, flags: u32) {
        let log = &mut self.log;
        if let Some(found) = self.index.find_mut(hash, |&p| log.key(p) == key) {
            let (there, before) = (*found, log.flags(*found));
            let (segment, at) = log.at(*found);
            let size = header(segment, at).total;
            if before & WRITTEN != 0 {
                self.written -= 1;
                self.written_bytes -= size;
            }
            // Who is written again is asked for.
            let flags = flags | USED;
            if !log.replace(*found, value, flags) {
                log.set_flags(*found, DEAD);
                *found = log.append(key, value, flags);
            }
            let (segment, at) = log.at(*found);
            if flags & WRITTEN != 0 {
                self.written += 1;
                self.written_bytes += header(segment, at).total;
                if before & WRITTEN == 0 || *found != there {
                    self.places.push(*found);
                }
            }
            return;
        }
        let place = self.log.append(key, value, flags);
        let (log, hasher) = (&self.log, &self.hasher);
        self.index.insert_unique(hash, place, |&p| {
            let mut state = hasher.build_hasher();
            state.write(log.key(p));
            state.finish()
        });
        if flags & WRITTEN != 0 {
            self.written += 1;
            self.written_bytes += self.size(place);
            self.places.push(place);
        }
    }

    /// The written entries, in no order.
    fn all_written(&mut self) -> Vec<Place> {
        if self.moved {
            self.moved = false;
            self.places = self.log.places().filter(|(_, f)| f & (WRITTEN | DEAD) == WRITTEN).map(|(p, _)| p).collect();
        }
        let log = &self.log;
        self.places.retain(|&p| p >> 32 >= log.first && log.flags(p) & (WRITTEN | DEAD) == WRITTEN);
        self.places.clone()
    }

    fn forget(&mut self, place: Place) {
        let hash = self.hash(self.log.key(place));
        if let Ok(found) = self.index.find_entry(hash, |&p| p == place) {
            found.remove();
        }
        if self.log.flags(place) & WRITTEN != 0 {
            self.written -= 1;
            self.written_bytes -= self.size(place);
        }
        self.log.set_flags(place, DEAD);
    }

    fn used_bytes(&self) -> usize {
        let buckets = match self.index.capacity() {
            0 => 0,
            room => (room * 8).div_ceil(7).next_power_of_two(),
        };
        self.log.bytes
            + buckets * BUCKET_BYTES
            + (self.sorted.as_ref().map_or(0, Vec::capacity) + self.places.capacity()) * 8
    }

    /// Takes the oldest segment apart.
    fn rotate(&mut self) {
        let Some(oldest) = self.log.segments.pop_front() else { return };
        let number = self.log.first;
        self.log.first += 1;
        self.log.bytes -= oldest.capacity();
        for (at, flags) in (Entries { segment: &oldest, at: 0 }) {
            if flags & DEAD != 0 {
                continue;
            }
            let head = header(&oldest, at);
            let key = &oldest[at + HEADER..at + HEADER + head.key];
            let place = number << 32 | at as u64;
            let hash = self.hash(key);
            let Ok(mut found) = self.index.find_entry(hash, |&p| p == place) else { continue };
            if flags & (WRITTEN | USED) == 0 {
                found.remove();
                self.forgot = true;
                continue;
            }
            let start = at + HEADER + head.key;
            let value = (head.value != ABSENT).then(|| &oldest[start..start + head.value as usize]);
            if flags & WRITTEN != 0 {
                self.moved = true;
                self.written_bytes -= head.total - HEADER - head.key - value.map_or(0, <[u8]>::len);
            }
            *found.get_mut() = self.log.append(key, value, flags & !USED);
        }
    }

    /// What of the log no written entry takes.
    fn spare(&self) -> usize {
        self.log.bytes.saturating_sub(self.written_bytes)
    }

    /// Forgets until no more than `max_bytes` are used, as far as that is worth it, looking at each entry twice at most: what was asked for goes when
    /// nothing else is left to go. Written entries stay, and each pass copies them: so there is none where they leave
    /// little, or little more than a pass before had to leave.
    fn shrink(&mut self, max_bytes: usize) {
        if self.spare().saturating_sub(self.kept_spare) < self.log.bytes / LITTLE {
            return;
        }
        self.sorted = None;
        self.kept_spare = 0;
        for _ in 0..2 * self.log.segments.len() {
            if self.used_bytes() <= max_bytes {
                return;
            }
            self.rotate();
        }
        self.kept_spare = self.spare();
        if self.index.len() * 4 < self.index.capacity() {
            let (log, hasher) = (&self.log, &self.hasher);
            self.index.shrink_to_fit(|&p| {
                let mut state = hasher.build_hasher();
                state.write(log.key(p));
                state.finish()
            });
        }
    }

    /// `visit` with each row of a column of keys and its hash; what a search for it reads is fetched ahead.
    #[inline(always)]
    pub(super) fn each_row(&mut self, keys: &Rows, mut visit: impl FnMut(&mut Self, usize, u64)) {
        let mut hashes = [0; AHEAD];
        for first in (0..keys.len()).step_by(AHEAD) {
            let part = first..keys.len().min(first + AHEAD);
            for (hash, row) in hashes.iter_mut().zip(part.clone()) {
                *hash = self.hash(keys.bytes(row));
                self.expect(*hash);
            }
            for (&hash, row) in hashes.iter().zip(part) {
                visit(self, row, hash);
            }
        }
    }

    /// Writes a column of keys with as many values.
    fn put_rows(&mut self, keys: &Rows, values: &Rows) {
        self.sorted = None;
        self.each_row(keys, |entered, row, hash| {
            entered.put_hashed(hash, keys.bytes(row), Some(values.bytes(row)), WRITTEN);
        });
    }

    fn sort(&mut self) -> &[Place] {
        if self.sorted.is_none() {
            let places = self.all_written();
            let log = &self.log;
            // The first bytes of a key decide most comparisons, without a look at the log.
            let mut found: Vec<(u64, Place)> = places
                .into_iter()
                .map(|place| {
                    let key = log.key(place);
                    let mut first = [0; 8];
                    let some = key.len().min(8);
                    first[..some].copy_from_slice(&key[..some]);
                    (u64::from_be_bytes(first), place)
                })
                .collect();
            found.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| log.key(a.1).cmp(log.key(b.1))));
            self.sorted = Some(found.into_iter().map(|(_, place)| place).collect());
        }
        self.sorted.get_or_insert_default()
    }

    fn settle(&mut self) {
        let places = match self.sorted.take() {
            Some(sorted) => sorted,
            None => self.all_written(),
        };
        for place in places {
            let flags = self.log.flags(place);
            self.log.set_flags(place, flags & !WRITTEN);
        }
        self.places = vec![];
        self.moved = false;
        self.written = 0;
        self.written_bytes = 0;
    }
}

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
        self.entered.sorted = None;
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
        self.entered.written_bytes + self.entered.written * BUCKET_BYTES
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
        let none = None;
        let rows = Rows::of(&data, &offsets, &none)?;
        let entered = &mut self.entered;
        let found = py.detach(|| find(entered, &rows, skip));
        let absent = found.absent.contains(&1).then(|| to_bytes(py, &found.absent));
        (PyBytes::new(py, &found.data), to_bytes(py, &found.ends), absent, to_bytes(py, &found.unknown))
            .into_pyobject(py)
    }

    fn put_many(&mut self, keys: &Bound<'_, PyAny>, values: &Bound<'_, PyAny>) -> PyResult<()> {
        self.each(keys, values, |entered, key, value| entered.put(key, value, WRITTEN))
    }

    /// `put_many` of a column of keys and one of values, both without nulls.
    fn put_rows(
        &mut self,
        py: Python<'_>,
        data: Held<u8>,
        offsets: Held<i64>,
        value_data: Held<u8>,
        value_offsets: Held<i64>,
    ) -> PyResult<()> {
        let none = None;
        let (keys, values) = (Rows::of(&data, &offsets, &none)?, Rows::of(&value_data, &value_offsets, &none)?);
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

    fn keep_many(&mut self, keys: &Bound<'_, PyAny>, values: &Bound<'_, PyAny>) -> PyResult<()> {
        self.each(keys, values, |entered, key, value| {
            if entered.find(key).is_none() {
                entered.put(key, value, 0);
            }
        })
    }

    fn forget_below(&mut self, bound: &[u8]) {
        let entered = &mut self.entered;
        entered.sorted = None;
        let log = &entered.log;
        let gone: Vec<Place> =
            log.places().filter(|&(p, flags)| flags & DEAD == 0 && log.key(p) < bound).map(|(p, _)| p).collect();
        for place in gone {
            entered.forget(place);
        }
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
        self.entered.sort();
        let log = &self.entered.log;
        let sorted = self.entered.sorted.as_deref().unwrap_or(&[]);
        let part = &sorted[start.min(sorted.len())..stop.min(sorted.len()).max(start.min(sorted.len()))];
        let keys: PyResult<Vec<_>> = part
            .iter()
            .map(|&place| {
                let key = log.key(place);
                PyBytes::new_with(py, prefix.len() + key.len(), |room| {
                    room[..prefix.len()].copy_from_slice(prefix);
                    room[prefix.len()..].copy_from_slice(key);
                    Ok(())
                })
            })
            .collect();
        let values: Vec<_> = part.iter().map(|&place| log.value(place).map(|v| PyBytes::new(py, v))).collect();
        Ok((PyList::new(py, keys?)?, PyList::new(py, values)?))
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
