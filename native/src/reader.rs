//! Reading: the client's fetched records into one buffer per column, without the GIL and without an object per record.
//!
//! The partitions that are read are forwarded to a queue of the reader's own. Group events, errors and log lines stay on
//! the client's queue and are served by the client, for its callbacks need a state that only its own calls set up. The
//! own queue is drained with `rd_kafka_consume_callback`, which hands over whatever lies there, errors included, to the
//! callback that is given and to no other. It is asked for one partition and serves the queue to which that is forwarded.
//! `rd_kafka_consume_callback_queue` would do the same, but take the whole queue out at once: while it lies aside, the
//! client sees an empty queue and fetches more than its limits allow. The other one takes as many as the client's setting
//! `consume.callback.max.messages` says.
//!
//! Starting to read a partition anew takes its forwarding away, later and in another thread. Records then wait on the
//! partition's own queue, until it is forwarded again; nothing is lost and nothing overtakes. So every `drain` forwards
//! those partitions again of which nothing has come since they were started.

use std::collections::HashMap;
use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::{Mutex, MutexGuard};

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};

use crate::handed::handed;
use crate::librdkafka::{Functions, Handle, Kind, Message, text};

/// A record whose timestamp is 0 carries this header; readers take it away (`penstock.state.log`).
pub const ZERO_NAME: &std::ffi::CStr = c"penstock.ts";
pub const ZERO_VALUE: &[u8] = b"0";

/// The code of the event that tells of a record that cannot be handed over: `RD_KAFKA_RESP_ERR__VALUE_DESERIALIZATION`,
/// which the library itself never gives.
const UNREADABLE: c_int = -159;

/// One header of the record at a place of the chunk.
struct Header {
    place: usize,
    name: String,
    value: Option<Vec<u8>>,
}

/// Byte strings one after the other.
struct Strings {
    data: Vec<u8>,
    ends: Vec<i64>,
    nulls: Vec<bool>,
    any_null: bool,
}

impl Strings {
    fn new() -> Self {
        Self { data: Vec::new(), ends: vec![0], nulls: Vec::new(), any_null: false }
    }

    fn clear(&mut self) {
        self.data.clear();
        self.ends.truncate(1);
        self.nulls.clear();
        self.any_null = false;
    }

    /// # Safety
    /// `start` is null or has `len` bytes.
    unsafe fn push(&mut self, start: *const u8, len: usize) {
        if start.is_null() {
            self.any_null = true;
        } else {
            // SAFETY: by the contract.
            self.data.extend_from_slice(unsafe { std::slice::from_raw_parts(start, len) });
        }
        self.nulls.push(start.is_null());
        self.ends.push(self.data.len() as i64);
    }

    /// The column; its bytes may be gone from here then.
    fn hand_over<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let nulls = self.any_null.then(|| bytes_of(py, &self.nulls));
        (handed(py, &mut self.data)?, bytes_of(py, &self.ends), nulls).into_pyobject(py)
    }
}

/// A column of numbers as they lie in memory.
fn bytes_of<'py, T: Copy>(py: Python<'py>, column: &[T]) -> Bound<'py, PyBytes> {
    // SAFETY: only used with integers and booleans, which have no padding.
    PyBytes::new(py, unsafe { std::slice::from_raw_parts(column.as_ptr().cast(), size_of_val(column)) })
}

/// The records of one partition.
struct Chunk {
    topic: *mut c_void,
    name: String,
    partition: i32,
    offsets: Vec<i64>,
    timestamps: Vec<i64>,
    keys: Strings,
    values: Strings,
    headers: Vec<Header>,
    ascending: bool,
    /// The offset of a record that has a header whose name is not UTF-8, which Python has no text for. Neither it nor what
    /// comes after it is taken.
    unreadable: Option<i64>,
}

impl Chunk {
    fn new() -> Self {
        Self {
            topic: std::ptr::null_mut(),
            name: String::new(),
            partition: 0,
            offsets: Vec::new(),
            timestamps: Vec::new(),
            keys: Strings::new(),
            values: Strings::new(),
            headers: Vec::new(),
            ascending: true,
            unreadable: None,
        }
    }

    fn start(&mut self, topic: *mut c_void, name: String, partition: i32) {
        (self.topic, self.name, self.partition) = (topic, name, partition);
        self.offsets.clear();
        self.timestamps.clear();
        self.keys.clear();
        self.values.clear();
        self.headers.clear();
        self.ascending = true;
        self.unreadable = None;
    }

    /// # Safety
    /// `message` is a record that the library has handed over.
    unsafe fn push(&mut self, call: &Functions, message: &Message) {
        if self.unreadable.is_some() {
            return;
        }
        let place = self.offsets.len();
        let mut kind = 0;
        // SAFETY: by the contract.
        let mut at = unsafe { (call.message_timestamp)(message, &mut kind) };
        // SAFETY: by the contract.
        match unsafe { self.push_headers(call, message, place) } {
            Some(true) => at = 0,
            Some(false) => {}
            None => {
                self.headers.truncate(self.headers.partition_point(|header| header.place < place));
                self.unreadable = Some(message.offset);
                return;
            }
        }
        self.ascending &= self.offsets.last().is_none_or(|&before| before < message.offset);
        self.offsets.push(message.offset);
        self.timestamps.push(at);
        // SAFETY: the library gives null or that many bytes.
        unsafe {
            self.keys.push(message.key, message.key_len);
            self.values.push(message.payload, message.len);
        }
    }

    /// Keeps the record's headers but the one that stands for timestamp 0; whether that was there. `None`: a name is not
    /// UTF-8.
    ///
    /// # Safety
    /// As for `push`.
    unsafe fn push_headers(&mut self, call: &Functions, message: &Message, place: usize) -> Option<bool> {
        let mut headers = std::ptr::null_mut();
        // SAFETY: by the contract; the list stays the message's.
        if unsafe { (call.message_headers)(message, &mut headers) } != 0 {
            return Some(false);
        }
        let mut zero = false;
        for i in 0.. {
            let (mut name, mut start, mut len) = (std::ptr::null::<c_char>(), std::ptr::null::<u8>(), 0);
            // SAFETY: the list is the message's, and the places take the result.
            if unsafe { (call.header_get_all)(headers, i, &mut name, &mut start, &mut len) } != 0 {
                break;
            }
            // SAFETY: names end with 0; values are null or have that many bytes.
            let (name, value) = unsafe {
                let value = (!start.is_null()).then(|| std::slice::from_raw_parts(start, len));
                (std::ffi::CStr::from_ptr(name), value)
            };
            if name == ZERO_NAME && value == Some(ZERO_VALUE) {
                zero = true;
            } else {
                let (name, value) = (name.to_str().ok()?.to_string(), value.map(<[u8]>::to_vec));
                self.headers.push(Header { place, name, value });
            }
        }
        Some(zero)
    }

    /// `(topic, partition, first offset, last offset, offsets or None where none is missing, timestamps, keys, values,
    /// headers or None, whether the offsets ascend)`.
    fn hand_over<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let (first, last) = (self.offsets[0], self.offsets[self.offsets.len() - 1]);
        let dense = self.ascending && (last - first) as usize + 1 == self.offsets.len();
        (
            self.name.as_str(),
            self.partition,
            first,
            last,
            (!dense).then(|| bytes_of(py, &self.offsets)),
            bytes_of(py, &self.timestamps),
            self.keys.hand_over(py)?,
            self.values.hand_over(py)?,
            self.headers_to_python(py)?,
            self.ascending,
        )
            .into_pyobject(py)
    }

    fn headers_to_python<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyList>>> {
        if self.headers.is_empty() {
            return Ok(None);
        }
        let none = PyTuple::empty(py);
        let column = PyList::empty(py);
        let mut rest = self.headers.iter().peekable();
        for place in 0..self.offsets.len() {
            let mut own = Vec::new();
            while let Some(header) = rest.next_if(|h| h.place == place) {
                own.push((PyString::new(py, &header.name), header.value.as_ref().map(|v| PyBytes::new(py, v))));
            }
            if own.is_empty() { column.append(&none)? } else { column.append(PyTuple::new(py, own)?)? }
        }
        Ok(Some(column))
    }
}

/// Something that is not a record: the end of a partition, or an error.
struct Event {
    topic: Option<String>,
    partition: i32,
    code: c_int,
    offset: i64,
    text: String,
}

/// What the callback fills.
struct Drain<'a> {
    call: &'a Functions,
    rk: *mut c_void,
    room: usize,
    chunks: &'a mut Vec<Chunk>,
    used: usize,
    last: usize,
    events: Vec<Event>,
}

impl Drain<'_> {
    /// # Safety
    /// `message` was handed over by the library.
    unsafe fn take(&mut self, message: &Message) {
        if message.err != 0 {
            // SAFETY: by the contract; an error's payload is its text.
            unsafe { self.take_event(message) };
        } else {
            // SAFETY: by the contract.
            unsafe {
                let place = self.chunk_of(message);
                self.chunks[place].push(self.call, message);
            }
        }
        self.room = self.room.saturating_sub(1);
        if self.room == 0 {
            // SAFETY: the handle is open.
            unsafe { (self.call.stop_serving)(self.rk) };
        }
    }

    /// # Safety
    /// As for `take`.
    unsafe fn take_event(&mut self, message: &Message) {
        let text_of = |start: *const u8, len| {
            // SAFETY: by the contract.
            (!start.is_null())
                .then(|| String::from_utf8_lossy(unsafe { std::slice::from_raw_parts(start, len) }).into_owned())
        };
        self.events.push(Event {
            // SAFETY: by the contract.
            topic: (!message.topic.is_null()).then(|| unsafe { text((self.call.topic_name)(message.topic)) }),
            partition: message.partition,
            code: message.err,
            offset: message.offset,
            text: text_of(message.payload, message.len).unwrap_or_default(),
        });
    }

    /// # Safety
    /// As for `take`.
    unsafe fn chunk_of(&mut self, message: &Message) -> usize {
        let is_of = |c: &Chunk| c.topic == message.topic && c.partition == message.partition;
        if self.used > 0 && is_of(&self.chunks[self.last]) {
            return self.last;
        }
        if let Some(place) = self.chunks[..self.used].iter().position(is_of) {
            self.last = place;
            return place;
        }
        // A topic that was deleted and made again has two handles and one name.
        // SAFETY: by the contract.
        let name = unsafe { text((self.call.topic_name)(message.topic)) };
        let same = |c: &Chunk| c.name == name && c.partition == message.partition;
        self.last = self.chunks[..self.used].iter().position(same).unwrap_or_else(|| {
            if self.used == self.chunks.len() {
                self.chunks.push(Chunk::new());
            }
            self.chunks[self.used].start(message.topic, name, message.partition);
            self.used += 1;
            self.used - 1
        });
        self.last
    }
}

unsafe extern "C" fn on_message(message: *mut Message, drain: *mut c_void) {
    // SAFETY: `drain` is the one that was given beside this function; the message is valid during the call.
    unsafe {
        (*drain.cast::<Drain<'_>>()).take(&*message);
    }
}

/// A partition's own queue, forwarded to the reader's, and the handle of its topic.
struct Followed {
    queue: *mut c_void,
    topic: *mut c_void,
    settled: bool,
}

impl Followed {
    /// # Safety
    /// Both handles are used no more.
    unsafe fn destroy(self, call: &Functions) {
        // SAFETY: by the contract.
        unsafe {
            (call.queue_destroy)(self.queue);
            if !self.topic.is_null() {
                (call.topic_destroy)(self.topic);
            }
        }
    }
}

struct Queues {
    own: *mut c_void,
    followed: HashMap<(String, i32), Followed>,
    chunks: Vec<Chunk>,
}

// SAFETY: queues may be used by any thread; the topic handles inside chunks are only compared.
unsafe impl Send for Queues {}

/// The records of a consumer's partitions. Used by one thread at a time, which is the client's.
#[pyclass(frozen, module = "penstock_native")]
pub struct Reader {
    queues: Mutex<Option<Queues>>,
    handle: Handle,
}

impl Reader {
    fn queues(&self) -> PyResult<MutexGuard<'_, Option<Queues>>> {
        self.queues.try_lock().map_err(|_| PyRuntimeError::new_err("the reader is in use by another thread"))
    }
}

fn opened(queues: &mut Option<Queues>) -> PyResult<&mut Queues> {
    queues.as_mut().ok_or_else(|| PyRuntimeError::new_err("the reader is closed"))
}

fn destroy(call: &Functions, queues: Queues) {
    // SAFETY: the queues are this reader's and are used no more.
    unsafe {
        for followed in queues.followed.into_values() {
            followed.destroy(call);
        }
        (call.queue_destroy)(queues.own);
    }
}

#[pymethods]
impl Reader {
    #[new]
    fn new(consumer: &Bound<'_, PyAny>, library: &str, version: i32, client_id: &str) -> PyResult<Self> {
        let handle = Handle::of(consumer, Kind::Consumer, library, version, client_id)?;
        // SAFETY: the handle is open.
        let own = unsafe { (handle.call.queue_new)(handle.rk) };
        if own.is_null() {
            return Err(PyRuntimeError::new_err("the client gave no queue"));
        }
        let queues = Queues { own, followed: HashMap::new(), chunks: Vec::new() };
        Ok(Self { queues: Mutex::new(Some(queues)), handle })
    }

    /// Forwards a partition that is about to be started (anew): to be called before the client is told to.
    fn follow(&self, topic: &str, partition: i32) -> PyResult<()> {
        let mut guard = self.queues()?;
        let queues = opened(&mut guard)?;
        let name = CString::new(topic).map_err(|_| PyValueError::new_err("a topic's name holds a 0"))?;
        let call = &self.handle.call;
        let place = (topic.to_string(), partition);
        // SAFETY: the handle and the queues are open; the old queue is used no more.
        unsafe {
            // Asked for anew each time: a topic that was deleted and made again has other queues.
            let queue = (call.queue_get_partition)(self.handle.rk, name.as_ptr(), partition);
            if queue.is_null() {
                return Err(PyRuntimeError::new_err(format!("the client gave no queue for {topic} [{partition}]")));
            }
            (call.queue_forward)(queue, queues.own);
            let topic = (call.topic_new)(self.handle.rk, name.as_ptr(), std::ptr::null_mut());
            if let Some(before) = queues.followed.insert(place, Followed { queue, topic, settled: false }) {
                before.destroy(call);
            }
        }
        Ok(())
    }

    /// Lets go of a partition that is read no more.
    fn leave(&self, topic: &str, partition: i32) -> PyResult<()> {
        let mut guard = self.queues()?;
        if let Some(left) = opened(&mut guard)?.followed.remove(&(topic.to_string(), partition)) {
            // SAFETY: both handles are this reader's and are used no more.
            unsafe { left.destroy(&self.handle.call) };
        }
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
        let queues = opened(&mut guard)?;
        let (used, events) = py.detach(|| drain(&self.handle, queues, max_records, timeout_ms.max(0)));
        let chunks = PyList::empty(py);
        let told = PyList::empty(py);
        for chunk in &mut queues.chunks[..used] {
            if !chunk.offsets.is_empty() {
                chunks.append(chunk.hand_over(py)?)?;
            }
            if let Some(offset) = chunk.unreadable {
                let text = "a header has a name that is not UTF-8";
                told.append((chunk.name.as_str(), chunk.partition, UNREADABLE, offset, text))?;
            }
        }
        for event in events {
            told.append((event.topic, event.partition, event.code, event.offset, event.text))?;
        }
        Ok((chunks, told))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.handle.traverse(&visit)
    }

    /// Gives back all queues; what lies in them is dropped. To be called before the client is closed. Idempotent.
    fn close(&self) -> PyResult<()> {
        if let Some(queues) = self.queues()?.take() {
            destroy(&self.handle.call, queues);
        }
        Ok(())
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if let Ok(Some(queues)) = self.queues.get_mut().map(Option::take) {
            destroy(&self.handle.call, queues);
        }
    }
}

fn drain(handle: &Handle, queues: &mut Queues, max_records: usize, timeout_ms: c_int) -> (usize, Vec<Event>) {
    for followed in queues.followed.values().filter(|f| !f.settled) {
        // SAFETY: both queues are this reader's.
        unsafe { (handle.call.queue_forward)(followed.queue, queues.own) };
    }
    if max_records == 0 {
        return (0, Vec::new());
    }
    let mut drain = Drain {
        call: &handle.call,
        rk: handle.rk,
        room: max_records,
        chunks: &mut queues.chunks,
        used: 0,
        last: 0,
        events: Vec::new(),
    };
    // A settled partition is forwarded for certain.
    let asked = queues.followed.iter().max_by_key(|(_, f)| (f.settled, !f.topic.is_null()));
    let asked = asked.filter(|(_, f)| !f.topic.is_null()).map(|((_, partition), f)| (f.topic, *partition));
    let mut wait_ms = timeout_ms;
    while drain.room > 0 {
        let drain = (&raw mut drain).cast();
        // SAFETY: the queues and topics are open, and what the callback is given lives until the call returns.
        let served = unsafe {
            let served = asked.map_or(-1, |(topic, partition)| {
                (handle.call.consume_callback)(topic, partition, wait_ms, on_message, drain)
            });
            if served >= 0 {
                served
            } else {
                // The client does not know the partition (any more).
                (handle.call.consume_callback_queue)(queues.own, wait_ms, on_message, drain)
            }
        };
        wait_ms = 0;
        if served <= 0 {
            break;
        }
    }
    let (used, events) = (drain.used, drain.events);
    let unsettled = queues.followed.iter_mut().filter(|(_, f)| !f.settled);
    for ((topic, partition), followed) in unsettled {
        let spoke = |t: &str, p| t == topic && p == *partition;
        followed.settled = queues.chunks[..used].iter().any(|c| spoke(&c.name, c.partition))
            || events.iter().any(|e| e.topic.as_deref().is_some_and(|t| spoke(t, e.partition)));
    }
    (used, events)
}
