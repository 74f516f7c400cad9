//! Writing columns to a client: see `writing`.

use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::sync::Mutex;

use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};

use super::client::Client;
use super::strings::{Strings, numbers};
use crate::librdkafka::{Functions, Kind, ZERO_NAME, ZERO_VALUE};
use crate::writing::{HeaderLists, Run, queue};

/// The header lists of records `[start, stop)`; `None` where no record has one.
fn header_lists(
    call: &Functions,
    headers: &Bound<'_, PyAny>,
    timestamps: &[i64],
    start: usize,
    stop: usize,
) -> PyResult<Option<HeaderLists>> {
    if headers.is_none() && !timestamps.contains(&0) {
        return Ok(None);
    }
    let given = if headers.is_none() { None } else { Some(headers.cast::<PyList>()?) };
    let refused = |err| PyRuntimeError::new_err(format!("the client refused a header ({err})"));
    let mut lists = HeaderLists::new(call, stop - start);
    for (i, &at) in (start..stop).zip(timestamps) {
        lists.begin();
        if let Some(given) = given {
            for header in given.get_item(i)?.cast::<PyTuple>()?.iter() {
                let (name, value): (Bound<'_, PyString>, Option<Bound<'_, PyBytes>>) = header.extract()?;
                let name =
                    CString::new(name.to_str()?).map_err(|_| PyValueError::new_err("a header's name holds a 0"))?;
                let value = value.as_ref().map(|v| v.as_bytes());
                if name.as_c_str() != ZERO_NAME || value != Some(ZERO_VALUE) {
                    lists.add(call, &name, value).map_err(refused)?;
                }
            }
        }
        if at == 0 {
            lists.add(call, ZERO_NAME, Some(ZERO_VALUE)).map_err(refused)?;
        }
    }
    Ok(Some(lists))
}

/// The topic handles of a producer.
struct Topics(HashMap<String, *mut c_void>);

// SAFETY: topic handles may be used by any thread.
unsafe impl Send for Topics {}

/// Queues records of a producer. Used by one thread at a time, which is the client's.
#[pyclass(frozen, module = "penstock_native")]
pub struct Writer {
    topics: Mutex<Option<Topics>>,
    client: Client,
}

#[pymethods]
impl Writer {
    #[new]
    fn new(producer: &Bound<'_, PyAny>, library: &str, version: i32, client_id: &str) -> PyResult<Self> {
        let client = Client::of(producer, Kind::Producer, library, version, client_id)?;
        Ok(Self { topics: Mutex::new(Some(Topics(HashMap::new()))), client })
    }

    /// Queues the records `[start, stop)`; how many were taken. The first that was not ends the call.
    #[allow(clippy::too_many_arguments)]
    fn send(
        &self,
        py: Python<'_>,
        topic: &str,
        keys: &Bound<'_, PyAny>,
        values: &Bound<'_, PyAny>,
        timestamps: &Bound<'_, PyAny>,
        headers: &Bound<'_, PyAny>,
        partition: &Bound<'_, PyAny>,
        start: usize,
        stop: usize,
    ) -> PyResult<usize> {
        let mut guard =
            self.topics.try_lock().map_err(|_| PyRuntimeError::new_err("the writer is in use by another thread"))?;
        let topics = guard.as_mut().ok_or_else(|| PyRuntimeError::new_err("the writer is closed"))?;
        if start >= stop {
            return Ok(0);
        }
        let name = CString::new(topic).map_err(|_| PyValueError::new_err("a topic's name holds a 0"))?;
        let timestamps = numbers::<i64>(timestamps, start, stop)?;
        let (partition, partitions) = match partition.extract::<i32>() {
            Ok(one) => (one, Vec::new()),
            Err(_) => (-1, numbers::<i32>(partition, start, stop)?),
        };
        let handle = self.client.opened(py)?;
        let (mut keys, mut values) = (Strings::of(keys, start, stop)?, Strings::of(values, start, stop)?);
        if keys.places.len() != stop - start || values.places.len() != stop - start {
            return Err(PyTypeError::new_err("columns of different lengths"));
        }
        let mut run = Run {
            keys: std::mem::take(&mut keys.places),
            values: std::mem::take(&mut values.places),
            headers: header_lists(&handle.call, headers, &timestamps, start, stop)?,
            timestamps,
            partitions,
            partition,
            name,
            topic: topics.0.get(topic).copied().unwrap_or(std::ptr::null_mut()),
        };
        let queued = &mut run;
        // SAFETY: the handle is open, and stays so: the thread that waits here is the client's. `keys` and `values` hold
        // what the places name.
        let taken = py.detach(move || unsafe { queue(handle, queued) });
        if !run.topic.is_null() {
            topics.0.entry(topic.to_string()).or_insert(run.topic);
        }
        Ok(taken)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.client.traverse(&visit)
    }

    /// Gives back the topic handles. Call it before the client is closed. Idempotent.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let mut guard =
            self.topics.try_lock().map_err(|_| PyRuntimeError::new_err("the writer is in use by another thread"))?;
        self.destroy(py, guard.take());
        Ok(())
    }
}

impl Writer {
    /// Gives back the topic handles. Those of a closed client cannot be: what little they take is lost.
    fn destroy(&self, py: Python<'_>, topics: Option<Topics>) {
        let Ok(handle) = self.client.opened(py) else { return };
        for topic in topics.into_iter().flat_map(|t| t.0.into_values()) {
            // SAFETY: the handle is open; the topic handle is this writer's and is used no more.
            unsafe { (handle.call.topic_destroy)(topic) };
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let topics = self.topics.get_mut().map_or(None, Option::take);
        Python::attach(|py| self.destroy(py, topics));
    }
}
