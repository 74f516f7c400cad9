//! Writing: columns into the client's queue, record by record inside the library and without the GIL.
//!
//! What the library does with a record is what it does for the client's own `produce`: the same partitioner, limits,
//! transaction and copies. Records are queued without an opaque, so the client's delivery callback passes them by. The
//! first record that is not taken ends the call; its caller sends that one through the client, which then tells why.

use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::sync::Mutex;

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};

use crate::librdkafka::{Argument, Functions, Handle, Kind};
use crate::reader::{ZERO_NAME, ZERO_VALUE};

/// A run of byte strings: `(start, length)` of each, null for none, and what keeps them alive.
struct Strings<'py> {
    places: Vec<(*const u8, usize)>,
    _objects: Vec<Bound<'py, PyAny>>,
    _data: Option<PyBuffer<u8>>,
}

/// Any address that is not null: the library tells an empty string from none by it.
const EMPTY: *const u8 = b"".as_ptr();

impl<'py> Strings<'py> {
    /// Of a list of `bytes | None`, of a column `(data, offsets, nulls | None)`, or of a coded one `(codes, values)`, whose
    /// values are a list.
    fn of(column: &Bound<'py, PyAny>, start: usize, stop: usize) -> PyResult<Self> {
        match column.cast::<PyTuple>() {
            Ok(parts) if parts.len() == 3 => Self::of_column(parts, start, stop),
            Ok(parts) if parts.len() == 2 => Self::of_coded(parts, start, stop),
            _ => Self::of_list(column.cast::<PyList>()?, start, stop),
        }
    }

    fn of_list(list: &Bound<'py, PyList>, start: usize, stop: usize) -> PyResult<Self> {
        let mut places = Vec::with_capacity(stop - start);
        let mut objects = Vec::with_capacity(stop - start);
        for i in start..stop {
            let item = list.get_item(i)?;
            if item.is_none() {
                places.push((std::ptr::null(), 0));
            } else {
                let bytes = item.cast::<PyBytes>()?.as_bytes();
                places.push((bytes.as_ptr(), bytes.len()));
                // Kept: another thread may change the list meanwhile.
                objects.push(item);
            }
        }
        Ok(Self { places, _objects: objects, _data: None })
    }

    fn of_coded(parts: &Bound<'py, PyTuple>, start: usize, stop: usize) -> PyResult<Self> {
        let codes = numbers::<i32>(&parts.get_item(0)?, start, stop)?;
        let values = parts.get_item(1)?;
        let values = values.cast::<PyList>()?;
        let distinct = Self::of_list(values, 0, values.len())?;
        let place = |&code: &i32| {
            let found = usize::try_from(code).ok().and_then(|c| distinct.places.get(c)).copied();
            found.ok_or_else(|| PyValueError::new_err(format!("code {code} of a column has no value")))
        };
        let places = codes.iter().map(place).collect::<PyResult<_>>()?;
        Ok(Self { places, _objects: distinct._objects, _data: None })
    }

    fn of_column(parts: &Bound<'py, PyTuple>, start: usize, stop: usize) -> PyResult<Self> {
        let data = PyBuffer::<u8>::get(&parts.get_item(0)?)?;
        let ends = numbers::<i64>(&parts.get_item(1)?, start, stop + 1)?;
        let nulls = parts.get_item(2)?;
        let nulls = if nulls.is_none() { None } else { Some(numbers::<u8>(&nulls, start, stop)?) };
        if !data.is_c_contiguous() {
            return Err(PyValueError::new_err("the data of a column must be one run of bytes"));
        }
        let (first, len) = (data.buf_ptr().cast::<u8>().cast_const(), data.len_bytes() as i64);
        let mut places = Vec::with_capacity(stop - start);
        for (i, pair) in ends.windows(2).enumerate() {
            if nulls.as_ref().is_some_and(|n| n[i] != 0) {
                places.push((std::ptr::null(), 0));
                continue;
            }
            if pair[0] < 0 || pair[1] < pair[0] || pair[1] > len {
                return Err(PyValueError::new_err(format!("place {i} of a column lies outside of its data")));
            }
            if pair[1] == pair[0] {
                places.push((EMPTY, 0));
            } else {
                // SAFETY: inside the buffer, as was just seen.
                places.push((unsafe { first.add(pair[0] as usize) }, (pair[1] - pair[0]) as usize));
            }
        }
        Ok(Self { places, _objects: Vec::new(), _data: Some(data) })
    }
}

/// The numbers `[start, stop)` of a buffer or a list.
fn numbers<T>(column: &Bound<'_, PyAny>, start: usize, stop: usize) -> PyResult<Vec<T>>
where
    T: pyo3::buffer::Element + for<'a, 'b> FromPyObject<'a, 'b, Error = PyErr>,
{
    if let Ok(list) = column.cast::<PyList>() {
        return (start..stop).map(|i| list.get_item(i)?.extract()).collect();
    }
    let buffer = PyBuffer::<T>::get(column)?;
    let cells = buffer.as_slice_ptr().ok_or_else(|| PyValueError::new_err("a column must be one run of numbers"))?;
    // SAFETY: the buffer is held and the GIL too; whoever writes into an array without it breaks numpy's rules.
    let cells = unsafe { cells.as_ref() };
    let cells = cells.get(start..stop).ok_or_else(|| PyValueError::new_err("a column is too short"))?;
    Ok(cells.to_vec())
}

/// Header lists that the library has not taken yet.
struct HeaderLists {
    lists: Vec<*mut c_void>,
    destroy: unsafe extern "C" fn(*mut c_void),
}

impl Drop for HeaderLists {
    fn drop(&mut self) {
        for &list in self.lists.iter().filter(|l| !l.is_null()) {
            // SAFETY: the list is ours: lists that the library took are replaced by null.
            unsafe { (self.destroy)(list) };
        }
    }
}

impl HeaderLists {
    fn of(
        call: &Functions,
        headers: &Bound<'_, PyAny>,
        timestamps: &[i64],
        start: usize,
        stop: usize,
    ) -> PyResult<Option<Self>> {
        if headers.is_none() && !timestamps.contains(&0) {
            return Ok(None);
        }
        let given = if headers.is_none() { None } else { Some(headers.cast::<PyList>()?) };
        let mut lists = Self { lists: Vec::with_capacity(stop - start), destroy: call.headers_destroy };
        for (i, &at) in (start..stop).zip(timestamps) {
            lists.lists.push(std::ptr::null_mut());
            if let Some(given) = given {
                for header in given.get_item(i)?.cast::<PyTuple>()?.iter() {
                    let (name, value): (Bound<'_, PyString>, Option<Bound<'_, PyBytes>>) = header.extract()?;
                    let name =
                        CString::new(name.to_str()?).map_err(|_| PyValueError::new_err("a header's name holds a 0"))?;
                    let value = value.as_ref().map(|v| v.as_bytes());
                    if name.as_c_str() != ZERO_NAME || value != Some(ZERO_VALUE) {
                        lists.add(call, &name, value)?;
                    }
                }
            }
            if at == 0 {
                lists.add(call, ZERO_NAME, Some(ZERO_VALUE))?;
            }
        }
        Ok(Some(lists))
    }

    /// Adds a header to the last list.
    fn add(&mut self, call: &Functions, name: &std::ffi::CStr, value: Option<&[u8]>) -> PyResult<()> {
        let Some(list) = self.lists.last_mut() else { return Ok(()) };
        let (start, len) = value.map_or((std::ptr::null(), 0), |v| (v.as_ptr(), v.len()));
        // SAFETY: the library copies name and value into the list.
        let err = unsafe {
            if list.is_null() {
                *list = (call.headers_new)(4);
            }
            (call.header_add)(*list, name.as_ptr(), -1, start, len as isize)
        };
        if err == 0 { Ok(()) } else { Err(PyRuntimeError::new_err(format!("the client refused a header ({err})"))) }
    }
}

/// The topic handles of a producer.
struct Topics(HashMap<String, *mut c_void>);

// SAFETY: topic handles may be used by any thread.
unsafe impl Send for Topics {}

/// Queues records of a producer. Used by one thread at a time, which is the client's.
#[pyclass(frozen, module = "penstock_native")]
pub struct Writer {
    topics: Mutex<Option<Topics>>,
    handle: Handle,
}

/// What `send` hands to the loop.
struct Run<'a, 'py> {
    keys: Strings<'py>,
    values: Strings<'py>,
    timestamps: Vec<i64>,
    headers: Option<HeaderLists>,
    partitions: Vec<i32>,
    partition: i32,
    name: &'a CString,
    topic: *mut c_void,
}

// SAFETY: the loop reads bytes and numbers that are kept alive and pinned by the objects beside them, which it does not
// touch.
unsafe impl Send for Run<'_, '_> {}

#[pymethods]
impl Writer {
    #[new]
    fn new(producer: &Bound<'_, PyAny>, library: &str, version: i32, client_id: &str) -> PyResult<Self> {
        let handle = Handle::of(producer, Kind::Producer, library, version, client_id)?;
        Ok(Self { topics: Mutex::new(Some(Topics(HashMap::new()))), handle })
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
        let mut run = Run {
            keys: Strings::of(keys, start, stop)?,
            values: Strings::of(values, start, stop)?,
            headers: HeaderLists::of(&self.handle.call, headers, &timestamps, start, stop)?,
            timestamps,
            partitions,
            partition,
            name: &name,
            topic: topics.0.get(topic).copied().unwrap_or(std::ptr::null_mut()),
        };
        if run.keys.places.len() != stop - start || run.values.places.len() != stop - start {
            return Err(PyTypeError::new_err("columns of different lengths"));
        }
        let (run_ref, handle) = (&mut run, &self.handle);
        let taken = py.detach(move || queue(handle, run_ref));
        if !run.topic.is_null() {
            topics.0.entry(topic.to_string()).or_insert(run.topic);
        }
        Ok(taken)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.handle.traverse(&visit)
    }

    /// Gives back the topic handles. To be called before the client is let go. Idempotent.
    fn close(&self) -> PyResult<()> {
        let mut guard =
            self.topics.try_lock().map_err(|_| PyRuntimeError::new_err("the writer is in use by another thread"))?;
        destroy(&self.handle.call, guard.take());
        Ok(())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if let Ok(topics) = self.topics.get_mut() {
            destroy(&self.handle.call, topics.take());
        }
    }
}

fn destroy(call: &Functions, topics: Option<Topics>) {
    for topic in topics.into_iter().flat_map(|t| t.0.into_values()) {
        // SAFETY: the topic handle is this writer's and is used no more.
        unsafe { (call.topic_destroy)(topic) };
    }
}

fn queue(handle: &Handle, run: &mut Run<'_, '_>) -> usize {
    for i in 0..run.timestamps.len() {
        let headers = run.headers.as_ref().map_or(std::ptr::null_mut(), |h| h.lists[i]);
        // The first record of a topic names it: then the library asks for the topic's leader as it does for the client.
        let topic = if run.topic.is_null() { Argument::topic_name(run.name) } else { Argument::topic(run.topic) };
        let ((value, value_len), (key, key_len)) = (run.values.places[i], run.keys.places[i]);
        let arguments = [
            topic,
            Argument::partition(run.partitions.get(i).copied().unwrap_or(run.partition)),
            Argument::copied(),
            Argument::value(value, value_len),
            Argument::key(key, key_len),
            Argument::timestamp(run.timestamps[i]),
            Argument::headers(headers),
        ];
        let count = if headers.is_null() { arguments.len() - 1 } else { arguments.len() };
        // SAFETY: the handle is open, and what the arguments point at is alive.
        let error = unsafe { (handle.call.produceva)(handle.rk, arguments.as_ptr(), count) };
        if !error.is_null() {
            // SAFETY: the error is ours.
            unsafe { (handle.call.error_destroy)(error) };
            return i;
        }
        if let Some(lists) = run.headers.as_mut() {
            lists.lists[i] = std::ptr::null_mut();
        }
        if run.topic.is_null() {
            // SAFETY: the handle is open; the topic is there by now, so nothing is asked for.
            run.topic = unsafe { (handle.call.topic_new)(handle.rk, run.name.as_ptr(), std::ptr::null_mut()) };
        }
    }
    run.timestamps.len()
}
