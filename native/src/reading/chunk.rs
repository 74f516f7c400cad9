//! The records of one partition as they are passed on: a buffer per column.

use std::any::Any;
use std::ffi::{c_char, c_void};
use std::sync::Arc;

use crate::kernels::interner::check_rows;
use crate::kernels::json::ahead::ReadsAhead;
use crate::kernels::rows::Rows;
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

    /// Moves the strings from `row` on to the end of `to`, which is empty.
    fn split_off(&mut self, row: usize, to: &mut Strings) {
        let begin = self.ends[row];
        to.data.extend_from_slice(&self.data[begin as usize..]);
        to.ends.extend(self.ends[row + 1..].iter().map(|end| end - begin));
        to.nulls.extend_from_slice(&self.nulls[row..]);
        to.any_null = to.nulls.contains(&true);
        self.data.truncate(begin as usize);
        self.ends.truncate(row + 1);
        self.nulls.truncate(row);
        self.any_null = self.nulls.contains(&true);
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
    /// Whether all records were written to that leader.
    one_epoch: bool,
    /// The offset of a record with a header name that is not UTF-8, which Python cannot represent. Neither it nor
    /// later records are taken.
    pub unreadable: Option<i64>,
    /// What was read of the values ahead of the question.
    pub projected: Option<Box<dyn Any + Send>>,
}

// SAFETY: the topic's handle is only compared.
unsafe impl Send for Chunk {}

impl Default for Chunk {
    fn default() -> Self {
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
            one_epoch: true,
            unreadable: None,
            projected: None,
        }
    }
}

impl Chunk {
    /// How many bytes of keys and values it can hold without asking for more memory.
    pub fn room(&self) -> usize {
        self.keys.data.capacity() + self.values.data.capacity()
    }

    /// Moves the records from `row` on, of which there are some, to `rest`, whatever that held.
    pub fn split_off(&mut self, row: usize, rest: &mut Chunk) {
        self.projected = None;
        rest.start(self.topic, self.name.clone(), self.partition);
        rest.offsets.extend(self.offsets.drain(row..));
        rest.timestamps.extend(self.timestamps.drain(row..));
        self.keys.split_off(row, &mut rest.keys);
        self.values.split_off(row, &mut rest.values);
        let place = self.headers.partition_point(|header| header.place < row);
        rest.headers.extend(self.headers.drain(place..).map(|header| Header { place: header.place - row, ..header }));
        // What is known of all holds for both parts: records out of order are dropped, whichever they are.
        rest.ascending = self.ascending;
        (rest.epoch, rest.one_epoch) = (self.epoch, self.one_epoch);
        if !self.one_epoch {
            self.epoch = -1;
        }
        rest.unreadable = self.unreadable.take();
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
        self.one_epoch = true;
        self.unreadable = None;
        self.projected = None;
    }

    /// Reads fields of the values ahead of the question; records that come later end that.
    pub fn project(&mut self, by: &Arc<dyn ReadsAhead>) {
        let Strings { data, ends, nulls, any_null } = &self.values;
        let rows = Rows::of(data, ends, any_null.then(|| bytemuck::cast_slice(nulls)));
        if let (None, Ok(rows), true) = (&self.projected, rows, check_rows(nulls.len()).is_ok()) {
            self.projected = by.clone().read_ahead(&rows);
        }
    }

    /// # Safety
    /// `message` is a record that the library has handed over.
    pub unsafe fn push(&mut self, call: &Functions, message: &Message) {
        if self.unreadable.is_some() {
            return;
        }
        self.projected = None;
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
        let epoch = unsafe { (call.message_leader_epoch)(message) };
        self.one_epoch &= place == 0 || epoch == self.epoch;
        self.epoch = epoch;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What record `at` of the chunk is, as text.
    fn told(chunk: &Chunk, at: usize) -> String {
        let part = |strings: &Strings| {
            let [begin, end] = [strings.ends[at] as usize, strings.ends[at + 1] as usize];
            if strings.nulls[at] { "-".into() } else { String::from_utf8_lossy(&strings.data[begin..end]).into_owned() }
        };
        let headers = chunk.headers.iter().filter(|h| h.place == at).map(|h| h.name.as_str()).collect::<Vec<_>>();
        let (offset, time) = (chunk.offsets[at], chunk.timestamps[at]);
        format!("{offset} {time} {} {} {headers:?}", part(&chunk.keys), part(&chunk.values))
    }

    fn filled(epochs: &[i32]) -> Chunk {
        let mut chunk = Chunk::default();
        chunk.start(std::ptr::null_mut(), "t".into(), 3);
        for (place, &epoch) in epochs.iter().enumerate() {
            chunk.offsets.push(place as i64 * 2);
            chunk.timestamps.push(place as i64 * 10);
            let key = format!("k{place}");
            // SAFETY: the strings have that many bytes.
            unsafe {
                chunk.keys.push(if place % 3 == 1 { std::ptr::null() } else { key.as_ptr() }, key.len());
                chunk.values.push(b"value".as_ptr(), place % 6);
            }
            for name in 0..place % 3 {
                chunk.headers.push(Header { place, name: name.to_string(), value: None });
            }
            chunk.one_epoch &= place == 0 || epoch == chunk.epoch;
            chunk.epoch = epoch;
        }
        chunk
    }

    #[test]
    fn a_chunk_is_split_anywhere() {
        for row in 1..7 {
            let mut first = filled(&[5; 7]);
            first.unreadable = Some(99);
            let whole = (0..7).map(|at| told(&first, at)).collect::<Vec<_>>();
            let mut rest = filled(&[8, 9]);
            first.split_off(row, &mut rest);
            let parts = (0..row).map(|at| told(&first, at)).chain((0..7 - row).map(|at| told(&rest, at)));
            assert_eq!(parts.collect::<Vec<_>>(), whole);
            assert_eq!((first.unreadable, rest.unreadable), (None, Some(99)));
            assert_eq!((rest.name.as_str(), rest.partition, first.epoch, rest.epoch), ("t", 3, 5, 5));
            for part in [&first, &rest] {
                assert_eq!(part.keys.any_null, part.keys.nulls.contains(&true));
            }
        }
    }

    #[test]
    fn the_epoch_of_a_first_part_is_unknown_where_it_may_be_an_earlier_one() {
        let (mut first, mut rest) = (filled(&[5, 6, 6]), Chunk::default());
        first.split_off(2, &mut rest);
        assert_eq!((first.epoch, rest.epoch), (-1, 6));
    }
}
