//! The records of one partition as they are passed on: a buffer per column.

use std::ffi::{c_char, c_void};

use crate::librdkafka::{Functions, Message, ZERO_NAME, ZERO_VALUE};

/// One header of the record at a place of the chunk.
pub struct Header {
    pub place: usize,
    pub name: String,
    pub value: Option<Vec<u8>>,
}

/// Byte strings one after the other.
pub struct Strings {
    pub data: Vec<u8>,
    /// Where each ends, from a 0 on.
    pub ends: Vec<i64>,
    pub nulls: Vec<bool>,
    pub any_null: bool,
}

impl Strings {
    pub fn new() -> Self {
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
}

/// The records of one partition.
pub struct Chunk {
    pub topic: *mut c_void,
    pub name: String,
    pub partition: i32,
    pub offsets: Vec<i64>,
    pub timestamps: Vec<i64>,
    pub keys: Strings,
    pub values: Strings,
    pub headers: Vec<Header>,
    pub ascending: bool,
    /// Of the leader that the last record was written to; -1 if that is not known.
    pub epoch: i32,
    /// The offset of a record with a header name that is not UTF-8, which Python cannot represent. Neither it nor
    /// later records are taken.
    pub unreadable: Option<i64>,
}

impl Chunk {
    pub fn new() -> Self {
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
            epoch: -1,
            unreadable: None,
        }
    }

    pub fn start(&mut self, topic: *mut c_void, name: String, partition: i32) {
        (self.topic, self.name, self.partition) = (topic, name, partition);
        self.offsets.clear();
        self.timestamps.clear();
        self.keys.clear();
        self.values.clear();
        self.headers.clear();
        self.ascending = true;
        self.epoch = -1;
        self.unreadable = None;
    }

    /// # Safety
    /// `message` is a record that the library has handed over.
    pub unsafe fn push(&mut self, call: &Functions, message: &Message) {
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
        // SAFETY: by the contract.
        self.epoch = unsafe { (call.message_leader_epoch)(message) };
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
}
