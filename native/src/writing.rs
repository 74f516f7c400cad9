//! Writing: columns into the client's queue, record by record inside the library and without the GIL.
//!
//! The library treats a record as it does for the client's own `produce`: the same partitioner, limits, transaction
//! and copies. Records are queued without an opaque, so the client's delivery callback skips them. The first refused
//! record ends the call; the caller sends that one through the client, which then reports the reason.

use std::ffi::{CStr, CString, c_int, c_void};

use crate::librdkafka::{Argument, Functions, Handle};

/// Any address that is not null: the library tells an empty string from none by it.
pub const EMPTY: *const u8 = b"".as_ptr();

/// Where a byte string lies, and its length; null for none.
pub type Place = (*const u8, usize);

/// Header lists that the library has not taken yet.
pub struct HeaderLists {
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
    pub fn new(call: &Functions, count: usize) -> Self {
        Self { lists: Vec::with_capacity(count), destroy: call.headers_destroy }
    }

    /// Begins the list of the next record, which is null until a header is added.
    pub fn begin(&mut self) {
        self.lists.push(std::ptr::null_mut());
    }

    /// Adds a header to the last list; the library's code of an error.
    pub fn add(&mut self, call: &Functions, name: &CStr, value: Option<&[u8]>) -> Result<(), c_int> {
        let Some(list) = self.lists.last_mut() else { return Ok(()) };
        let (start, len) = value.map_or((std::ptr::null(), 0), |v| (v.as_ptr(), v.len()));
        // SAFETY: the library copies name and value into the list.
        let err = unsafe {
            if list.is_null() {
                *list = (call.headers_new)(4);
            }
            (call.header_add)(*list, name.as_ptr(), -1, start, len as isize)
        };
        if err == 0 { Ok(()) } else { Err(err) }
    }
}

/// Records to queue, as columns of equal lengths.
pub struct Run {
    pub keys: Vec<Place>,
    pub values: Vec<Place>,
    pub timestamps: Vec<i64>,
    pub headers: Option<HeaderLists>,
    /// One partition per record, or none: then all go to `partition`.
    pub partitions: Vec<i32>,
    pub partition: i32,
    pub name: CString,
    /// The topic's handle; null before its first record.
    pub topic: *mut c_void,
}

// SAFETY: the places are those of bytes that the creator of the run keeps alive and unchanged while it is queued;
// header lists and topic handles may be used by any thread.
unsafe impl Send for Run {}

/// Queues the records; how many were taken. The first that was not ends the call.
///
/// # Safety
/// The handle is open, and what the places name is alive.
pub unsafe fn queue(handle: &Handle, run: &mut Run) -> usize {
    for i in 0..run.timestamps.len() {
        let headers = run.headers.as_ref().map_or(std::ptr::null_mut(), |h| h.lists[i]);
        // The first record of a topic names it: then the library asks for the topic's leader as it does for the client.
        let topic = if run.topic.is_null() { Argument::topic_name(&run.name) } else { Argument::topic(run.topic) };
        let ((value, value_len), (key, key_len)) = (run.values[i], run.keys[i]);
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
            // SAFETY: the handle is open; the topic exists by then, so there is no request.
            run.topic = unsafe { (handle.call.topic_new)(handle.rk, run.name.as_ptr(), std::ptr::null_mut()) };
        }
    }
    run.timestamps.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::librdkafka::functions::fake::{self, Queued, with};

    fn place(bytes: Option<&'static [u8]>) -> Place {
        bytes.map_or((std::ptr::null(), 0), |b| (if b.is_empty() { EMPTY } else { b.as_ptr() }, b.len()))
    }

    fn run(headers: Option<HeaderLists>) -> Run {
        Run {
            keys: [Some(&b"a"[..]), None, Some(b"")].map(place).to_vec(),
            values: [None, Some(&b"value"[..]), Some(b"")].map(place).to_vec(),
            timestamps: vec![1, 0, -5],
            headers,
            partitions: vec![],
            partition: -1,
            name: c"topic".to_owned(),
            topic: std::ptr::null_mut(),
        }
    }

    fn queue_all(handle: &Handle, run: &mut Run) -> usize {
        // SAFETY: these functions look into no handle, and the bytes are constants.
        unsafe { queue(handle, run) }
    }

    fn finish(handle: &Handle, run: Run) {
        if !run.topic.is_null() {
            // SAFETY: `topic_new` of these functions made it.
            unsafe { (handle.call.topic_destroy)(run.topic) };
        }
        drop(run);
        assert_eq!(with(|library| library.open), 0, "every list and error was handed over or given back");
    }

    fn handle() -> Handle {
        Handle { call: fake::functions(), rk: std::ptr::null_mut() }
    }

    #[test]
    fn records_are_queued_with_their_parts() {
        let handle = handle();
        let mut lists = HeaderLists::new(&handle.call, 3);
        lists.begin();
        lists.begin();
        lists.add(&handle.call, c"h", Some(b"1")).unwrap();
        lists.add(&handle.call, c"h", None).unwrap();
        lists.begin();
        let mut run = run(Some(lists));
        assert_eq!(queue_all(&handle, &mut run), 3);
        let queued = |by_handle, key: Option<&[u8]>, value: Option<&[u8]>, timestamp, headers| Queued {
            topic: "topic".into(),
            by_handle,
            partition: -1,
            key: key.map(<[u8]>::to_vec),
            value: value.map(<[u8]>::to_vec),
            timestamp,
            headers,
        };
        let headers = vec![("h".to_string(), Some(b"1".to_vec())), ("h".to_string(), None)];
        let expected = [
            queued(false, Some(b"a"), None, 1, vec![]),
            queued(true, None, Some(b"value"), 0, headers),
            queued(true, Some(b""), Some(b""), -5, vec![]),
        ];
        assert_eq!(with(|library| std::mem::take(&mut library.queued)), expected);
        finish(&handle, run);
    }

    #[test]
    fn the_first_record_that_is_refused_ends_the_call() {
        let handle = handle();
        with(|library| library.room = 1);
        let mut lists = HeaderLists::new(&handle.call, 3);
        for _ in 0..3 {
            lists.begin();
            lists.add(&handle.call, c"h", Some(b"1")).unwrap();
        }
        let mut run = Run { partitions: vec![4, 5, 6], ..run(Some(lists)) };
        assert_eq!(queue_all(&handle, &mut run), 1);
        assert_eq!(with(|library| library.queued.iter().map(|q| q.partition).collect::<Vec<_>>()), [4]);
        finish(&handle, run);
    }
}
