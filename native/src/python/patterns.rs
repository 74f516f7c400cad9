//! Patterns: see `kernels::patterns`.

use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use super::buffers::{Held, bytes_of, rows_of, to_bytes};
use crate::kernels::patterns::automaton::{Action, Automaton, Condition, Edge, Kind, Skip, State};
use crate::kernels::patterns::{self, Batch};

/// Action, target, condition.
type GivenEdge = (String, usize, Vec<u8>);
/// Stage, kind, gap, patience, edges.
type GivenState = (u32, String, Option<i64>, Option<i64>, Vec<GivenEdge>);

/// See `penstock_native.pyi`.
#[pyclass]
pub struct Patterns(patterns::Patterns);

fn action_of(name: &str) -> Option<Action> {
    match name {
        "take" => Some(Action::Take),
        "ignore" => Some(Action::Ignore),
        "proceed" => Some(Action::Proceed),
        _ => None,
    }
}

fn kind_of(name: &str) -> Option<Kind> {
    match name {
        "normal" => Some(Kind::Normal),
        "final" => Some(Kind::Final),
        "stop" => Some(Kind::Stop),
        "pending" => Some(Kind::Pending),
        "ending" => Some(Kind::Ending),
        _ => None,
    }
}

fn skip_of(strategy: &str, stage: u32) -> Option<Skip> {
    match strategy {
        "no_skip" => Some(Skip::No),
        "skip_to_next" => Some(Skip::ToNext),
        "skip_past_last_event" => Some(Skip::PastLast),
        "skip_to_first" => Some(Skip::ToFirst(stage)),
        "skip_to_last" => Some(Skip::ToLast(stage)),
        _ => None,
    }
}

fn state_of((stage, kind, gap, patience, edges): GivenState) -> Option<State> {
    let edge = |(action, target, code): GivenEdge| {
        Some(Edge { action: action_of(&action)?, target, condition: Condition::of(&code)? })
    };
    let edges = edges.into_iter().map(edge).collect::<Option<_>>()?;
    Some(State { stage, kind: kind_of(&kind)?, gap, patience, edges })
}

fn bytes_list<'py>(py: Python<'py>, all: &[Vec<u8>]) -> PyResult<Bound<'py, PyList>> {
    PyList::new(py, all.iter().map(|one| PyBytes::new(py, one)))
}

#[pymethods]
impl Patterns {
    #[new]
    fn new(
        states: Vec<GivenState>,
        start: usize,
        within: Option<i64>,
        skip: (String, u32),
        shape: i64,
        stages: usize,
    ) -> PyResult<Self> {
        let states: Option<Vec<State>> = states.into_iter().map(state_of).collect();
        let made = states.zip(skip_of(&skip.0, skip.1));
        let automaton = made.and_then(|(states, skip)| Automaton::new(states, start, within, skip));
        match automaton {
            Some(automaton) => Ok(Patterns(patterns::Patterns::new(automaton, shape, stages))),
            None => Err(PyValueError::new_err("a state or an edge is wrong")),
        }
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
        self.0.used_bytes()
    }

    fn begin(&mut self, watermark: i64, next_number: u64) {
        self.0.begin(watermark, next_number);
    }

    fn missing(&self, names: &Bound<'_, PyList>) -> PyResult<Vec<usize>> {
        let listed: Vec<_> = names.iter().collect();
        Ok(self.0.missing(&bytes_of(&listed)?))
    }

    fn hold(&mut self, name: &[u8], entry: Option<&[u8]>) -> bool {
        self.0.hold(name, entry)
    }

    fn wait(&mut self, name: &[u8], time: i64, number: u64, bits: u64, data: &[u8]) -> PyResult<()> {
        Ok(self.0.wait(name, time, number, bits, data)?)
    }

    /// `(int64 late records, [(position, key, time, timed out, [(stage, event)])], added, removed)`.
    #[allow(clippy::too_many_arguments)]
    fn take<'py>(
        &mut self,
        py: Python<'py>,
        names: &Bound<'py, PyList>,
        numbers: Held<i64>,
        times: Held<i64>,
        bits: Held<u64>,
        at: Held<i64>,
        marks: Held<i64>,
        data: Held<u8>,
        offsets: Held<i64>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let listed: Vec<_> = names.iter().collect();
        let batch = Batch {
            names: &bytes_of(&listed)?,
            numbers: numbers.slice(),
            times: times.slice(),
            bits: bits.slice(),
            at: at.slice(),
            marks: marks.slice(),
            data: rows_of(&data, &offsets, None)?,
        };
        let patterns = &mut self.0;
        let taken = py.detach(|| patterns.take(&batch))?;
        let out = PyList::empty(py);
        for one in &taken.out {
            let events = one.events.iter().map(|(stage, data)| (*stage, PyBytes::new(py, data)));
            let events = PyList::new(py, events)?;
            out.append((one.position, PyBytes::new(py, &one.name), one.ts, one.timed_out, events))?;
        }
        (to_bytes(py, &taken.late), out, taken.added, taken.removed).into_pyobject(py)
    }

    /// `(states, their entries, their times, alarms gone, alarms set, [(event gone, its time)], new events, their bytes, their
    /// times, (next number, time) or None)`.
    fn changes<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let Some(found) = self.0.changes() else {
            return Err(PyOverflowError::new_err("a partial match is longer than 4 GiB"));
        };
        let entries = found.states.iter().map(|(_, entry, _)| entry.as_ref().map(|entry| PyBytes::new(py, entry)));
        let new = found.waiting_new.iter();
        (
            PyList::new(py, found.states.iter().map(|(name, ..)| PyBytes::new(py, name)))?,
            PyList::new(py, entries)?,
            PyList::new(py, found.states.iter().map(|one| one.2))?,
            bytes_list(py, &found.alarms_gone)?,
            bytes_list(py, &found.alarms_set)?,
            PyList::new(py, found.waiting_gone.iter().map(|one| (PyBytes::new(py, &one.0), one.1)))?,
            PyList::new(py, new.clone().map(|one| PyBytes::new(py, &one.0)))?,
            PyList::new(py, new.clone().map(|one| PyBytes::new(py, &one.1)))?,
            PyList::new(py, new.map(|one| one.2))?,
            found.number,
        )
            .into_pyobject(py)
    }

    fn shrink(&mut self) {
        self.0.shrink();
    }
}
