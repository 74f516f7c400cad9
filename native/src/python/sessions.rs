//! Sessions with their aggregates: see `kernels::sessions`.

use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use super::buffers::{Held, bytes_of, large_bytes, rows_of, to_bytes};
use crate::kernels::rows::Rows;
use crate::kernels::sessions::counts::Counted;
use crate::kernels::sessions::parts::{PartSessions, Slot, Values};
use crate::kernels::sessions::{Batch, Changes, Closed, Held as Aggregates, Names, Rules, Sessions, Stored, Taken};

/// Of a part numbers, or codes of its values; a byte that is 1 where there is none; the values' data and offsets.
type Column = (Option<Held<i64>>, Option<Held<u8>>, Option<(Held<u8>, Held<i64>)>);
type Places<'py> = Vec<(i64, Bound<'py, PyBytes>)>;

/// See `penstock_native.pyi`.
#[pyclass]
pub struct SessionCounts(Sessions<i64>);

/// See `penstock_native.pyi`.
#[pyclass]
pub struct SessionParts(PartSessions);

fn list_of<'py>(py: Python<'py>, names: &Names) -> PyResult<Bound<'py, PyList>> {
    PyList::new(py, names.iter().map(|name| PyBytes::new(py, name)))
}

fn missing_of<H: Aggregates>(sessions: &Sessions<H>, names: &Bound<'_, PyList>) -> PyResult<Vec<usize>> {
    let listed: Vec<_> = names.iter().collect();
    Ok(sessions.missing(&bytes_of(&listed)?))
}

/// `(int64 late records, int64 positions, ends, starts and last times, columns of what is shown, keys, their int64 offsets)`,
/// with `width` numbers of each session that are shown.
fn taken_of<'py, H: Aggregates>(
    py: Python<'py>,
    sessions: &Sessions<H>,
    taken: &Taken,
    width: usize,
) -> PyResult<Bound<'py, PyTuple>> {
    let column = |of: &dyn Fn(&Closed) -> i64| to_bytes(py, &taken.closed.iter().map(of).collect::<Vec<_>>());
    let mut keys = Vec::new();
    let mut offsets = vec![0i64];
    for one in &taken.closed {
        keys.extend_from_slice(sessions.name(one));
        offsets.push(keys.len() as i64);
    }
    (
        to_bytes(py, &taken.late),
        column(&|c| c.position),
        column(&|c| c.end),
        column(&|c| c.start),
        column(&|c| c.last),
        PyList::new(py, (0..width).map(|place| column(&|c| taken.shown[c.shown + place])))?,
        large_bytes(py, &keys)?,
        to_bytes(py, &offsets),
    )
        .into_pyobject(py)
}

/// `(gone, their times, new, their entries, known, their entries, timers gone, timers set)`.
fn changes_of<'py, E>(
    py: Python<'py>,
    found: Changes<E>,
    listed: impl Fn(Vec<E>) -> PyResult<Bound<'py, PyList>>,
) -> PyResult<Bound<'py, PyTuple>> {
    (
        list_of(py, &found.gone)?,
        found.gone_times,
        list_of(py, &found.new)?,
        listed(found.new_entries)?,
        list_of(py, &found.known)?,
        listed(found.known_entries)?,
        list_of(py, &found.timers_gone)?,
        list_of(py, &found.timers_set)?,
    )
        .into_pyobject(py)
}

/// `[(end, start as 8 bytes)]`.
fn places_of(py: Python<'_>, places: Vec<(i64, i64)>) -> Places<'_> {
    places.into_iter().map(|(end, start)| (end, PyBytes::new(py, &start.to_be_bytes()))).collect()
}

#[pymethods]
impl SessionCounts {
    #[new]
    fn new(gap: i64, touching: bool, behind: i64, closes_after: i64, keep: i64, segment_ms: i64) -> Self {
        SessionCounts(Sessions::new(Rules { gap, touching, behind, closes_after, keep, segment_ms }))
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    #[getter]
    fn pending(&self) -> usize {
        self.0.pending()
    }

    #[getter]
    fn used_bytes(&self) -> usize {
        0
    }

    fn missing(&self, names: &Bound<'_, PyList>) -> PyResult<Vec<usize>> {
        missing_of(&self.0, names)
    }

    fn hold(&mut self, name: &[u8], stored: Vec<(i64, i64, (i64, i64))>) -> bool {
        let of = |(start, end, (held, last))| Stored { start, end, last, held };
        self.0.hold(name, stored.into_iter().map(of).collect());
        true
    }

    #[allow(clippy::too_many_arguments)]
    fn take<'py>(
        &mut self,
        py: Python<'py>,
        names: &Bound<'py, PyList>,
        numbers: Held<i64>,
        times: Held<i64>,
        at: Held<i64>,
        levels: Held<i64>,
        moved_by_records: bool,
        counts: Option<Held<i64>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let listed: Vec<_> = names.iter().collect();
        let batch = Batch {
            names: &bytes_of(&listed)?,
            numbers: numbers.slice(),
            times: times.slice(),
            at: at.slice(),
            levels: levels.slice(),
            moved_by_records,
        };
        let fold = Counted(counts.as_ref().map(Held::slice));
        let sessions = &mut self.0;
        let taken = py.detach(|| sessions.take(&batch, &fold))?;
        taken_of(py, &self.0, &taken, 1)
    }

    fn changes<'py>(&mut self, py: Python<'py>, floor: i64) -> PyResult<Bound<'py, PyTuple>> {
        let found = self.0.changes(floor, |&count, last| (count, last));
        changes_of(py, found, |entries| PyList::new(py, entries))
    }

    fn release<'py>(&mut self, py: Python<'py>, name: &[u8]) -> Option<Places<'py>> {
        self.0.release(name).map(|places| places_of(py, places))
    }

    fn shrink(&mut self, floor: i64, most: usize) -> Option<i64> {
        self.0.shrink(floor, most)
    }
}

#[pymethods]
impl SessionParts {
    #[new]
    #[allow(clippy::too_many_arguments)]
    fn new(
        gap: i64,
        touching: bool,
        behind: i64,
        closes_after: i64,
        keep: i64,
        segment_ms: i64,
        parts: &[u8],
    ) -> PyResult<Self> {
        let slots: Option<Vec<Slot>> = parts.iter().map(|&letter| Slot::of(letter)).collect();
        let rules = Rules { gap, touching, behind, closes_after, keep, segment_ms };
        match slots {
            Some(slots) if !slots.is_empty() => Ok(SessionParts(PartSessions::new(rules, slots))),
            _ => Err(PyValueError::new_err("name at least one part, each by its letter: n, s, r, l, g or d")),
        }
    }

    fn __len__(&self) -> usize {
        self.0.sessions().len()
    }

    #[getter]
    fn pending(&self) -> usize {
        self.0.sessions().pending()
    }

    #[getter]
    fn used_bytes(&self) -> usize {
        self.0.used_bytes()
    }

    fn missing(&self, names: &Bound<'_, PyList>) -> PyResult<Vec<usize>> {
        missing_of(self.0.sessions(), names)
    }

    fn hold(&mut self, name: &[u8], stored: Vec<(i64, i64, Bound<'_, PyBytes>)>) -> bool {
        let stored: Vec<_> = stored.iter().map(|(start, end, entry)| (*start, *end, entry.as_bytes())).collect();
        self.0.hold(name, &stored)
    }

    #[allow(clippy::too_many_arguments)]
    fn take<'py>(
        &mut self,
        py: Python<'py>,
        names: &Bound<'py, PyList>,
        numbers: Held<i64>,
        times: Held<i64>,
        at: Held<i64>,
        levels: Held<i64>,
        moved_by_records: bool,
        columns: Vec<Column>,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let listed: Vec<_> = names.iter().collect();
        let batch = Batch {
            names: &bytes_of(&listed)?,
            numbers: numbers.slice(),
            times: times.slice(),
            at: at.slice(),
            levels: levels.slice(),
            moved_by_records,
        };
        let columns = columns.iter().map(values_of).collect::<PyResult<Vec<_>>>()?;
        let sessions = &mut self.0;
        let Some(taken) = py.detach(|| sessions.take(&batch, &columns))? else {
            return Ok(None);
        };
        taken_of(py, self.0.sessions(), &taken, self.0.width()).map(Some)
    }

    fn changes<'py>(&mut self, py: Python<'py>, floor: i64) -> PyResult<Bound<'py, PyTuple>> {
        changes_of(py, self.0.changes(floor), |entries| {
            let whole: Option<Vec<_>> = entries.iter().map(|entry| Some(PyBytes::new(py, entry.as_ref()?))).collect();
            PyList::new(py, whole.ok_or_else(|| PyOverflowError::new_err("an aggregate is longer than 4 GiB"))?)
        })
    }

    fn release<'py>(&mut self, py: Python<'py>, name: &[u8]) -> Option<Places<'py>> {
        self.0.release(name).map(|places| places_of(py, places))
    }

    fn shrink(&mut self, floor: i64, most: usize) -> Option<i64> {
        self.0.shrink(floor, most)
    }
}

fn values_of(column: &Column) -> PyResult<Values<'_>> {
    let (numbers, nulls, known) = column;
    let nulls = nulls.as_ref().map(Held::slice);
    Ok(match (numbers, known) {
        (None, _) => Values::Rows(nulls),
        (Some(numbers), None) => Values::Numbers(numbers.slice(), nulls),
        (Some(codes), Some((data, offsets))) => {
            let known: Rows = rows_of(data, offsets, None)?;
            Values::Coded(codes.slice(), known)
        }
    })
}
