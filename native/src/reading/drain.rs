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

/// How many bytes of keys and values are read ahead; the record that exceeds it is still taken.
pub const AHEAD_BYTES_MAX: usize = 8 << 20;

/// A reader is at rest if nothing came this many times in a row. A busy one may miss once or twice.
const RESTING: u32 = 4;

/// What was read and is not passed on yet.
#[derive(Default)]
pub struct Ready {
    /// One per partition, none of them empty, unless its first record is unreadable.
    pub chunks: Vec<Chunk>,
    pub events: Vec<Event>,
    /// Chunks whose room is used again, the largest last.
    spare: Vec<Chunk>,
    /// How many chunks were passed on at once, at most.
    most: usize,
    /// How often in a row nothing came.
    came_empty: u32,
}

impl Ready {
    /// How many records and events there are.
    pub fn len(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.offsets.len()).sum::<usize>() + self.events.len()
    }

    /// Whether there are as many as are wanted, or more bytes than are read ahead.
    pub fn is_enough(&self, max_records: usize) -> bool {
        self.len() >= max_records || self.bytes() >= AHEAD_BYTES_MAX
    }

    /// How many bytes of keys and values there are.
    pub fn bytes(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.keys.data.len() + chunk.values.data.len()).sum()
    }

    /// Takes out up to `max_records` records and events: events only behind all records.
    pub fn take(&mut self, max_records: usize) -> (Vec<Chunk>, Vec<Event>) {
        let mut room = max_records;
        let mut whole = 0;
        while let Some(chunk) = self.chunks.get_mut(whole) {
            let records = chunk.offsets.len();
            if records > room {
                if room > 0 {
                    let mut rest = self.spare.pop().unwrap_or_default();
                    chunk.split_off(room, &mut rest);
                    whole += 1;
                    self.chunks.insert(whole, rest);
                }
                return (self.chunks.drain(..whole).collect(), Vec::new());
            }
            room -= records;
            whole += 1;
        }
        let events = self.events.drain(..room.min(self.events.len())).collect();
        (std::mem::take(&mut self.chunks), events)
    }

    /// Takes back chunks that are passed on, for the next records. As many are kept as were ever passed on at once, those
    /// with the most room; none when nothing came `RESTING` times, because a reader at rest should hold no memory.
    pub fn reuse(&mut self, chunks: Vec<Chunk>) {
        self.came_empty = if chunks.is_empty() { self.came_empty + 1 } else { 0 };
        if self.came_empty == RESTING {
            (self.spare, self.most) = (Vec::new(), 0);
        }
        self.most = self.most.max(chunks.len());
        self.spare.extend(chunks);
        self.spare.sort_by_key(Chunk::room);
        self.spare.drain(..self.spare.len().saturating_sub(self.most));
    }

    /// Drops what there is of one partition.
    pub fn discard(&mut self, topic: &str, partition: i32) {
        while let Some(place) = self.chunks.iter().position(|c| c.partition == partition && c.name == topic) {
            let chunk = self.chunks.remove(place);
            self.spare.push(chunk);
        }
        self.events.retain(|e| e.partition != partition || e.topic.as_deref() != Some(topic));
    }
}

/// What the callback fills.
pub struct Drain<'a> {
    call: &'a Functions,
    rk: *mut c_void,
    /// How many more records are wanted.
    pub room: usize,
    /// How many more bytes of keys and values are wanted. The record that exceeds it is still taken.
    bytes_room: usize,
    ready: &'a mut Ready,
    last: usize,
}

impl<'a> Drain<'a> {
    pub fn new(handle: &'a Handle, room: usize, bytes_room: usize, ready: &'a mut Ready) -> Self {
        Self { call: &handle.call, rk: handle.rk, room, bytes_room, ready, last: 0 }
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
                self.ready.chunks[place].push(self.call, message);
            }
        }
        self.room = self.room.saturating_sub(1);
        self.bytes_room = self.bytes_room.saturating_sub(message.key_len + message.len);
        if self.bytes_room == 0 {
            self.room = 0;
        }
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
        self.ready.events.push(Event {
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
        let chunks = &mut self.ready.chunks;
        let is_of = |c: &Chunk| c.topic == message.topic && c.partition == message.partition;
        if chunks.get(self.last).is_some_and(is_of) {
            return self.last;
        }
        if let Some(place) = chunks.iter().position(is_of) {
            self.last = place;
            return place;
        }
        // A topic that was deleted and recreated has two handles and one name.
        // SAFETY: by the contract.
        let name = unsafe { text((self.call.topic_name)(message.topic)) };
        let same = |c: &Chunk| c.name == name && c.partition == message.partition;
        self.last = chunks.iter().position(same).unwrap_or_else(|| {
            let mut chunk = self.ready.spare.pop().unwrap_or_default();
            chunk.start(message.topic, name, message.partition);
            chunks.push(chunk);
            chunks.len() - 1
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

#[cfg(test)]
mod tests {
    use super::*;

    fn with_room(bytes: usize) -> Chunk {
        let mut chunk = Chunk::default();
        chunk.values.data.reserve_exact(bytes);
        chunk
    }

    fn rooms(ready: &Ready) -> Vec<usize> {
        ready.spare.iter().map(Chunk::room).collect()
    }

    #[test]
    fn as_many_chunks_are_kept_as_were_passed_on_at_once() {
        let mut ready = Ready::default();
        ready.reuse(vec![with_room(10), with_room(5_000), with_room(70)]);
        assert_eq!(rooms(&ready), [10, 70, 5_000]);
        ready.reuse(vec![with_room(300)]);
        assert_eq!(rooms(&ready), [70, 300, 5_000]);
    }

    #[test]
    fn none_is_kept_when_nothing_comes() {
        let mut ready = Ready::default();
        for _ in 0..2 {
            ready.reuse(vec![with_room(10), with_room(5_000)]);
            for _ in 1..RESTING {
                ready.reuse(Vec::new());
                assert_eq!(rooms(&ready), [10, 5_000]);
            }
            ready.reuse(Vec::new());
            assert!(ready.spare.is_empty());
        }
    }
}
