//! What the library's callback fills: a chunk per partition, and what is not a record.

use std::ffi::{c_int, c_void};

use super::chunk::Chunk;
use crate::librdkafka::{Functions, Handle, Message, text};

/// Something that is not a record: the end of a partition, or an error.
pub struct Event {
    pub topic: Option<String>,
    pub partition: i32,
    pub code: c_int,
    pub offset: i64,
    pub text: String,
}

/// What the callback fills.
pub struct Drain<'a> {
    call: &'a Functions,
    rk: *mut c_void,
    /// How many more records are wanted.
    pub room: usize,
    chunks: &'a mut Vec<Chunk>,
    /// How many of the chunks have records.
    pub used: usize,
    last: usize,
    pub events: Vec<Event>,
}

impl<'a> Drain<'a> {
    pub fn new(handle: &'a Handle, room: usize, chunks: &'a mut Vec<Chunk>) -> Self {
        Self { call: &handle.call, rk: handle.rk, room, chunks, used: 0, last: 0, events: Vec::new() }
    }

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
        // A topic that was deleted and recreated has two handles and one name.
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

/// The callback of librdkafka.
///
/// # Safety
/// `message` was handed over by the library, and `drain` is a `Drain` that nobody else uses meanwhile.
pub unsafe extern "C" fn on_message(message: *mut Message, drain: *mut c_void) {
    // SAFETY: `drain` is the one that was registered with this function; the message is valid during the call.
    unsafe {
        (*drain.cast::<Drain<'_>>()).take(&*message);
    }
}
