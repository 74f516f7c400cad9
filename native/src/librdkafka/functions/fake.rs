//! A library for the unit tests: its functions record their calls, and return records that a test has put there. A
//! topic's handle is its name, a queue's handle a number.

use std::cell::RefCell;
use std::collections::VecDeque;

use super::*;

pub type Headers = Vec<(&'static CStr, Option<&'static [u8]>)>;

/// A record, or with `err` an event, that waits to be handed over.
#[derive(Clone, Default)]
pub struct Waiting {
    pub topic: Option<&'static CStr>,
    pub partition: i32,
    pub offset: i64,
    pub timestamp: i64,
    pub epoch: i32,
    pub key: Option<&'static [u8]>,
    pub value: Option<&'static [u8]>,
    pub headers: Headers,
    pub err: c_int,
}

/// A record that was queued.
#[derive(Debug, PartialEq)]
pub struct Queued {
    pub topic: String,
    pub by_handle: bool,
    pub partition: i32,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub timestamp: i64,
    pub headers: Vec<(String, Option<Vec<u8>>)>,
}

type OwnHeaders = Vec<(String, Option<Vec<u8>>)>;

#[derive(Default)]
pub struct State {
    pub calls: Vec<String>,
    pub waiting: VecDeque<Waiting>,
    /// How many records one call hands over at most; 0: all.
    pub batch: usize,
    pub queued: Vec<Queued>,
    /// How many records are taken before one is refused.
    pub room: usize,
    /// Header lists and errors that were not freed or passed on.
    pub open: isize,
    pub name: &'static CStr,
    pub kind: c_int,
    stop: bool,
}

thread_local! {
    static STATE: RefCell<State> = RefCell::default();
}

pub fn with<T>(what: impl FnOnce(&mut State) -> T) -> T {
    STATE.with_borrow_mut(what)
}

fn called(text: String) {
    with(|state| state.calls.push(text));
}

unsafe extern "C" fn version() -> c_int {
    0x020b_00ff
}
unsafe extern "C" fn name(_: *mut c_void) -> *const c_char {
    with(|state| state.name.as_ptr())
}
unsafe extern "C" fn kind(_: *mut c_void) -> c_int {
    with(|state| state.kind)
}
unsafe extern "C" fn stop_serving(_: *mut c_void) {
    with(|state| state.stop = true);
}
unsafe extern "C" fn queue_new(_: *mut c_void) -> *mut c_void {
    called("queue_new".into());
    std::ptr::without_provenance_mut(1)
}
unsafe extern "C" fn queue_destroy(queue: *mut c_void) {
    called(format!("queue_destroy {}", queue as usize));
}
unsafe extern "C" fn queue_get_partition(_: *mut c_void, _: *const c_char, partition: i32) -> *mut c_void {
    // A partition that no client knows has none.
    if partition < 0 { std::ptr::null_mut() } else { std::ptr::without_provenance_mut(100 + partition as usize) }
}
unsafe extern "C" fn queue_forward(queue: *mut c_void, to: *mut c_void) {
    called(format!("queue_forward {} {}", queue as usize, to as usize));
}

unsafe fn serve(on_message: OnMessage, opaque: *mut c_void) -> c_int {
    let mut served = 0;
    with(|state| state.stop = false);
    while let Some(record) = with(|state| {
        if state.stop || (state.batch > 0 && served as usize == state.batch) { None } else { state.waiting.pop_front() }
    }) {
        let bytes = |some: Option<&'static [u8]>| some.map_or((std::ptr::null(), 0), |b| (b.as_ptr(), b.len()));
        let ((payload, len), (key, key_len)) = (bytes(record.value), bytes(record.key));
        let mut message = Message {
            err: record.err,
            topic: record.topic.map_or(std::ptr::null_mut(), |t| t.as_ptr().cast_mut().cast()),
            partition: record.partition,
            payload,
            len,
            key,
            key_len,
            offset: record.offset,
            private: (&raw const record).cast_mut().cast(),
        };
        // SAFETY: both live until the call returns.
        unsafe { on_message(&mut message, opaque) };
        served += 1;
    }
    served
}

unsafe extern "C" fn consume_callback(
    _: *mut c_void,
    _: i32,
    wait_ms: c_int,
    f: OnMessage,
    opaque: *mut c_void,
) -> c_int {
    called(format!("consume_callback {wait_ms}"));
    // SAFETY: as the caller promises.
    unsafe { serve(f, opaque) }
}
unsafe extern "C" fn consume_callback_queue(
    _: *mut c_void,
    wait_ms: c_int,
    f: OnMessage,
    opaque: *mut c_void,
) -> c_int {
    called(format!("consume_callback_queue {wait_ms}"));
    // SAFETY: as the caller promises.
    unsafe { serve(f, opaque) }
}
unsafe extern "C" fn topic_name(topic: *mut c_void) -> *const c_char {
    topic.cast()
}

unsafe fn record_of<'a>(message: *const Message) -> &'a Waiting {
    // SAFETY: `serve` put it there.
    unsafe { &*(*message).private.cast::<Waiting>() }
}

unsafe extern "C" fn message_timestamp(message: *const Message, _: *mut c_int) -> i64 {
    // SAFETY: the message is one of `serve`.
    unsafe { record_of(message) }.timestamp
}
unsafe extern "C" fn message_leader_epoch(message: *const Message) -> i32 {
    // SAFETY: the message is one of `serve`.
    unsafe { record_of(message) }.epoch
}
unsafe extern "C" fn message_headers(message: *const Message, list: *mut *mut c_void) -> c_int {
    // SAFETY: the message is one of `serve`.
    let record = unsafe { record_of(message) };
    // SAFETY: the caller gives a place.
    unsafe { *list = (&raw const record.headers).cast_mut().cast() };
    if record.headers.is_empty() { -156 } else { 0 }
}
unsafe extern "C" fn header_get_all(
    list: *const c_void,
    at: size_t,
    name: *mut *const c_char,
    value: *mut *const u8,
    len: *mut size_t,
) -> c_int {
    // SAFETY: the list is that of `message_headers`.
    let headers = unsafe { &*list.cast::<Headers>() };
    let Some((found, bytes)) = headers.get(at) else { return -156 };
    // SAFETY: the caller gives the places.
    unsafe {
        *name = found.as_ptr();
        *value = bytes.map_or(std::ptr::null(), <[u8]>::as_ptr);
        *len = bytes.map_or(0, <[u8]>::len);
    }
    0
}
unsafe extern "C" fn headers_new(_: size_t) -> *mut c_void {
    with(|state| state.open += 1);
    Box::into_raw(Box::<OwnHeaders>::default()).cast()
}
unsafe extern "C" fn headers_destroy(list: *mut c_void) {
    with(|state| state.open -= 1);
    // SAFETY: `headers_new` made it.
    drop(unsafe { Box::from_raw(list.cast::<OwnHeaders>()) });
}
unsafe extern "C" fn header_add(
    list: *mut c_void,
    name: *const c_char,
    _: ssize_t,
    value: *const u8,
    len: ssize_t,
) -> c_int {
    // SAFETY: `headers_new` made the list, and the caller gives a name and that many bytes.
    unsafe {
        let bytes = (!value.is_null()).then(|| std::slice::from_raw_parts(value, len as usize).to_vec());
        (*list.cast::<OwnHeaders>()).push((text(name), bytes));
    }
    0
}
unsafe extern "C" fn topic_new(_: *mut c_void, name: *const c_char, _: *mut c_void) -> *mut c_void {
    // SAFETY: the name ends with 0.
    let handle = unsafe { CStr::from_ptr(name) }.to_owned();
    called(format!("topic_new {}", handle.to_string_lossy()));
    handle.into_raw().cast()
}
unsafe extern "C" fn topic_destroy(topic: *mut c_void) {
    // SAFETY: `topic_new` made it.
    let name = unsafe { std::ffi::CString::from_raw(topic.cast()) };
    called(format!("topic_destroy {}", name.to_string_lossy()));
}

unsafe extern "C" fn produceva(_: *mut c_void, arguments: *const Argument, count: size_t) -> *mut c_void {
    if with(|state| state.queued.len() == state.room) {
        with(|state| state.open += 1);
        return Box::into_raw(Box::new(0u8)).cast();
    }
    let (mut topic, mut by_handle, mut partition, mut timestamp) = (String::new(), false, 0, 0);
    let (mut key, mut value, mut headers) = (None, None, vec![]);
    let mut copied = false;
    // SAFETY: the caller gives that many arguments, and each value is what its kind says.
    unsafe {
        let bytes = |memory: Memory| {
            (!memory.start.is_null()).then(|| std::slice::from_raw_parts(memory.start, memory.len).to_vec())
        };
        for argument in std::slice::from_raw_parts(arguments, count) {
            match argument.kind {
                1 | 2 => (topic, by_handle) = (text(argument.value.pointer.cast()), argument.kind == 2),
                3 => partition = argument.value.int32,
                4 => value = bytes(argument.value.memory),
                5 => key = bytes(argument.value.memory),
                7 => copied = argument.value.int32 == 2,
                8 => timestamp = argument.value.int64,
                10 => {
                    headers = *Box::from_raw(argument.value.pointer.cast_mut().cast::<OwnHeaders>());
                    with(|state| state.open -= 1);
                }
                other => panic!("an argument of kind {other}"),
            }
        }
    }
    assert!(copied, "the library is to copy what it is given");
    with(|state| state.queued.push(Queued { topic, by_handle, partition, key, value, timestamp, headers }));
    std::ptr::null_mut()
}
unsafe extern "C" fn error_destroy(error: *mut c_void) {
    with(|state| state.open -= 1);
    // SAFETY: `produceva` made it.
    drop(unsafe { Box::from_raw(error.cast::<u8>()) });
}

/// The functions, with nothing written down and nothing waiting.
pub fn functions() -> Functions {
    with(|state| *state = State { room: usize::MAX, ..State::default() });
    Functions {
        version,
        name,
        kind,
        stop_serving,
        queue_new,
        queue_destroy,
        queue_get_partition,
        queue_forward,
        consume_callback,
        consume_callback_queue,
        topic_name,
        message_timestamp,
        message_leader_epoch,
        message_headers,
        header_get_all,
        headers_new,
        headers_destroy,
        header_add,
        topic_new,
        topic_destroy,
        produceva,
        error_destroy,
    }
}
