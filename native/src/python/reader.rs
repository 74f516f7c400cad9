//! Reading a client's records: see `reading`.

use std::any::Any;
use std::ffi::c_int;
use std::sync::{Arc, Mutex, MutexGuard};

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};

use super::buffers::to_bytes;
use super::client::Client;
use super::handed::handed;
use super::json_reading::{JsonProjector, results_ahead};
use crate::kernels::json::ahead::{Kept, ReadsAhead};
use crate::librdkafka::Kind;
use crate::reading::{AheadQueues, Chunk, Queues, Strings, Unfollowed};

/// The code of the event for a record that cannot be passed on: `RD_KAFKA_RESP_ERR__VALUE_DESERIALIZATION`, which the
/// library itself never uses.
const UNREADABLE: c_int = -159;

/// The column; its bytes may be gone from here then.
fn handed_strings<'py>(py: Python<'py>, strings: &mut Strings) -> PyResult<Bound<'py, PyTuple>> {
    let nulls = strings.any_null.then(|| to_bytes(py, &strings.nulls));
    (handed(py, &mut strings.data)?, to_bytes(py, &strings.ends), nulls).into_pyobject(py)
}

/// `(topic, partition, first offset, last offset, offsets or None where none is missing, timestamps, keys, values,
/// headers or None, the epoch of the last record's leader, what was read ahead of the values or None, whether the offsets
/// ascend)`.
fn handed_chunk<'py>(py: Python<'py>, chunk: &mut Chunk) -> PyResult<Bound<'py, PyTuple>> {
    let (first, last) = (chunk.offsets[0], chunk.offsets[chunk.offsets.len() - 1]);
    let dense = chunk.ascending && (last - first) as usize + 1 == chunk.offsets.len();
    (
        chunk.name.as_str(),
        chunk.partition,
        first,
        last,
        (!dense).then(|| to_bytes(py, &chunk.offsets)),
        to_bytes(py, &chunk.timestamps),
        handed_strings(py, &mut chunk.keys)?,
        handed_strings(py, &mut chunk.values)?,
        headers_of(py, chunk)?,
        chunk.epoch,
        chunk.projected.take().map(|kept| handed_ahead(py, kept)).transpose()?.flatten(),
        chunk.ascending,
    )
        .into_pyobject(py)
}

/// `(the projector, what its project would return)`.
fn handed_ahead<'py>(py: Python<'py>, kept: Box<dyn Any + Send>) -> PyResult<Option<Bound<'py, PyTuple>>> {
    let Ok(kept) = kept.downcast::<Kept<Py<PyAny>>>() else { return Ok(None) };
    Ok(Some((Arc::as_ptr(&kept.by) as usize, results_ahead(py, &kept)?).into_pyobject(py)?))
}

fn headers_of<'py>(py: Python<'py>, chunk: &Chunk) -> PyResult<Option<Bound<'py, PyList>>> {
    if chunk.headers.is_empty() {
        return Ok(None);
    }
    let none = PyTuple::empty(py);
    let column = PyList::empty(py);
    let mut rest = chunk.headers.iter().peekable();
    for place in 0..chunk.offsets.len() {
        let mut own = Vec::new();
        while let Some(header) = rest.next_if(|h| h.place == place) {
            own.push((PyString::new(py, &header.name), header.value.as_ref().map(|v| PyBytes::new(py, v))));
        }
        if own.is_empty() { column.append(&none)? } else { column.append(PyTuple::new(py, own)?)? }
    }
    Ok(Some(column))
}

/// The records of a consumer's partitions. Used by one thread at a time, which is the client's.
#[pyclass(frozen, module = "penstock_native")]
pub struct Reader {
    queues: Mutex<Option<AheadQueues>>,
    client: Client,
}

impl Reader {
    fn queues(&self) -> PyResult<MutexGuard<'_, Option<AheadQueues>>> {
        self.queues.try_lock().map_err(|_| PyRuntimeError::new_err("the reader is in use by another thread"))
    }

    /// Gives back the queues. Those of a closed client cannot be: what little they take is lost.
    fn destroy(&self, py: Python<'_>, queues: Option<AheadQueues>) {
        let queues = py.detach(|| queues.and_then(AheadQueues::close));
        if let (Some(queues), Ok(handle)) = (queues, self.client.opened(py)) {
            // SAFETY: the handle is open.
            unsafe { queues.destroy(handle) };
        }
    }
}

/// The queues, after waiting for what is read ahead.
fn opened<'q>(py: Python<'_>, queues: &'q mut Option<AheadQueues>) -> PyResult<&'q mut Queues> {
    match queues.as_mut() {
        None => Err(PyRuntimeError::new_err("the reader is closed")),
        Some(ahead) => py
            .detach(|| ahead.back())
            .ok_or_else(|| PyRuntimeError::new_err("the thread that reads ahead has failed; open another consumer")),
    }
}

#[pymethods]
impl Reader {
    #[new]
    fn new(
        py: Python<'_>,
        consumer: &Bound<'_, PyAny>,
        library: &str,
        version: i32,
        client_id: &str,
    ) -> PyResult<Self> {
        let client = Client::of(consumer, Kind::Consumer, library, version, client_id)?;
        // SAFETY: the handle is open.
        let queues = unsafe { Queues::open(client.opened(py)?) };
        match queues {
            Some(queues) => Ok(Self { queues: Mutex::new(Some(AheadQueues::new(queues))), client }),
            None => Err(PyRuntimeError::new_err("the client gave no queue")),
        }
    }

    /// Forwards a partition that is about to be started or restarted. Call it before the client starts it.
    fn follow(&self, py: Python<'_>, topic: &str, partition: i32) -> PyResult<()> {
        let mut guard = self.queues()?;
        let queues = opened(py, &mut guard)?;
        // SAFETY: the handle is open.
        unsafe { queues.follow(self.client.opened(py)?, topic, partition) }.map_err(|why| match why {
            Unfollowed::BadName => PyValueError::new_err("a topic's name holds a 0"),
            Unfollowed::NoQueue => {
                PyRuntimeError::new_err(format!("the client gave no queue for {topic} [{partition}]"))
            }
        })
    }

    /// Lets go of a partition that is read no more.
    fn leave(&self, py: Python<'_>, topic: &str, partition: i32) -> PyResult<()> {
        let mut guard = self.queues()?;
        let queues = opened(py, &mut guard)?;
        // SAFETY: the handle is open.
        unsafe { queues.leave(self.client.opened(py)?, topic, partition) };
        Ok(())
    }

    /// Has the values of a partition's records read ahead by this projector, which is used for nothing else; `None`: no more.
    fn project(
        &self,
        py: Python<'_>,
        topic: &str,
        partition: i32,
        by: Option<&Bound<'_, JsonProjector>>,
    ) -> PyResult<()> {
        let by = by.map(|by| by.get().0.clone() as Arc<dyn ReadsAhead>);
        opened(py, &mut *self.queues()?)?.project_by(topic, partition, by);
        Ok(())
    }

    /// Drops what was read ahead of a partition. Call it before the client seeks or pauses it.
    fn discard(&self, py: Python<'_>, topic: &str, partition: i32) -> PyResult<()> {
        opened(py, &mut *self.queues()?)?.ready.discard(topic, partition);
        Ok(())
    }

    /// Up to `max_records` records (and events), waiting up to `timeout_ms` for the first.
    fn drain<'py>(
        &self,
        py: Python<'py>,
        max_records: usize,
        timeout_ms: i32,
    ) -> PyResult<(Bound<'py, PyList>, Bound<'py, PyList>)> {
        let mut guard = self.queues()?;
        let queues = opened(py, &mut guard)?;
        let handle = self.client.opened(py)?;
        let mut is_full = false;
        let (mut given, events) = py.detach(|| {
            if !queues.ready.is_enough(max_records) {
                let wait_ms = if queues.ready.len() == 0 { timeout_ms.max(0) } else { 0 };
                // SAFETY: the handle is open, and stays so: the thread that waits here is the client's.
                unsafe { queues.fill(handle, max_records, usize::MAX, wait_ms) };
            }
            is_full = queues.ready.is_enough(max_records);
            queues.ready.take(max_records)
        });
        let chunks = PyList::empty(py);
        let told = PyList::empty(py);
        for chunk in &mut given {
            if !chunk.offsets.is_empty() {
                chunks.append(handed_chunk(py, chunk)?)?;
            }
            if let Some(offset) = chunk.unreadable {
                let text = "a header has a name that is not UTF-8";
                told.append((chunk.name.as_str(), chunk.partition, UNREADABLE, offset, text))?;
            }
        }
        for event in events {
            told.append((event.topic, event.partition, event.code, event.offset, event.text))?;
        }
        queues.ready.reuse(given);
        if let (true, Some(ahead)) = (is_full, guard.as_mut()) {
            // SAFETY: the handle is open; who closes the client closes the reader before.
            unsafe { ahead.read_on(handle, max_records) };
        }
        Ok((chunks, told))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.client.traverse(&visit)
    }

    /// Gives back all queues; what lies in them is dropped. Call it before the client is closed. Idempotent.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let queues = self.queues()?.take();
        self.destroy(py, queues);
        Ok(())
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let queues = self.queues.get_mut().map_or(None, Option::take);
        Python::attach(|py| self.destroy(py, queues));
    }
}
