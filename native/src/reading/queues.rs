//! The queues through which records come: the reader's own, and those of the partitions that are forwarded to it.

use std::collections::HashMap;
use std::ffi::{CString, c_int, c_void};
use std::sync::Arc;

use super::drain::{Drain, Ready, on_message};
use crate::kernels::json::ahead::ReadsAhead;
use crate::librdkafka::{Functions, Handle};

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

/// The reader's own queue and what is forwarded to it.
pub struct Queues {
    own: *mut c_void,
    followed: HashMap<(String, i32), Followed>,
    pub ready: Ready,
    /// By which the values of a partition's records are read ahead.
    projectors: HashMap<(String, i32), Arc<dyn ReadsAhead>>,
}

// SAFETY: queues may be used by any thread.
unsafe impl Send for Queues {}

impl Queues {
    /// `None`: the library gave no queue.
    ///
    /// # Safety
    /// The handle is open, here and in every other call that is given it.
    pub unsafe fn open(handle: &Handle) -> Option<Self> {
        // SAFETY: by the contract.
        let own = unsafe { (handle.call.queue_new)(handle.rk) };
        (!own.is_null()).then(|| Self {
            own,
            followed: HashMap::new(),
            ready: Ready::default(),
            projectors: HashMap::new(),
        })
    }

    /// Forwards a partition that is about to be started, again or for the first time. What is ready of it is dropped.
    ///
    /// # Safety
    /// As for `open`.
    pub unsafe fn follow(&mut self, handle: &Handle, topic: &str, partition: i32) -> Result<(), Unfollowed> {
        self.ready.discard(topic, partition);
        let name = CString::new(topic).map_err(|_| Unfollowed::BadName)?;
        let call = &handle.call;
        // SAFETY: the handle and the queues are open; the old queue is used no more.
        unsafe {
            // Asked for each time: a topic that was deleted and recreated has other queues.
            let queue = (call.queue_get_partition)(handle.rk, name.as_ptr(), partition);
            if queue.is_null() {
                return Err(Unfollowed::NoQueue);
            }
            (call.queue_forward)(queue, self.own);
            let topic_handle = (call.topic_new)(handle.rk, name.as_ptr(), std::ptr::null_mut());
            let followed = Followed { queue, topic: topic_handle, settled: false };
            if let Some(before) = self.followed.insert((topic.to_string(), partition), followed) {
                before.destroy(call);
            }
        }
        Ok(())
    }

    /// Lets go of a partition that is read no more. What is ready of it is dropped.
    ///
    /// # Safety
    /// As for `open`.
    pub unsafe fn leave(&mut self, handle: &Handle, topic: &str, partition: i32) {
        self.ready.discard(topic, partition);
        self.project_by(topic, partition, None);
        if let Some(left) = self.followed.remove(&(topic.to_string(), partition)) {
            // SAFETY: both handles are this reader's and are used no more.
            unsafe { left.destroy(&handle.call) };
        }
    }

    /// Reads values of this partition ahead by this projector, or no more.
    pub fn project_by(&mut self, topic: &str, partition: i32, by: Option<Arc<dyn ReadsAhead>>) {
        let place = (topic.to_string(), partition);
        match by {
            Some(by) => self.projectors.insert(place, by),
            None => self.projectors.remove(&place),
        };
    }

    /// Reads the values that are ready ahead, of the partitions for which `project_by` was called.
    pub fn project(&mut self) {
        if self.projectors.is_empty() {
            return;
        }
        for chunk in &mut self.ready.chunks {
            if let Some(by) = self.projectors.get(&(chunk.name.clone(), chunk.partition)) {
                chunk.project(by);
            }
        }
    }

    /// Gives back all queues; what lies in them is dropped.
    ///
    /// # Safety
    /// As for `open`.
    pub unsafe fn destroy(self, handle: &Handle) {
        // SAFETY: the queues are this reader's and are used no more.
        unsafe {
            for followed in self.followed.into_values() {
                followed.destroy(&handle.call);
            }
            (handle.call.queue_destroy)(self.own);
        }
    }

    /// Reads on until `max_records` records and events or `bytes_max` bytes are ready; the record that exceeds the bytes is
    /// still taken. Waits up to `timeout_ms` for the first record.
    ///
    /// # Safety
    /// As for `open`.
    pub unsafe fn fill(&mut self, handle: &Handle, max_records: usize, bytes_max: usize, timeout_ms: c_int) {
        for followed in self.followed.values().filter(|f| !f.settled) {
            // SAFETY: both queues are this reader's.
            unsafe { (handle.call.queue_forward)(followed.queue, self.own) };
        }
        let mut wait_ms = timeout_ms;
        let room = max_records.saturating_sub(self.ready.len());
        let bytes_room = bytes_max.saturating_sub(self.ready.bytes());
        let mut drain = Drain::new(handle, room, bytes_room, &mut self.ready);
        // A settled partition is forwarded for certain.
        let asked = self.followed.iter().max_by_key(|(_, f)| (f.settled, !f.topic.is_null()));
        let asked = asked.filter(|(_, f)| !f.topic.is_null()).map(|((_, partition), f)| (f.topic, *partition));
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
                    (handle.call.consume_callback_queue)(self.own, wait_ms, on_message, drain)
                }
            };
            wait_ms = 0;
            if served <= 0 {
                break;
            }
        }
        let ready = &self.ready;
        for ((topic, partition), followed) in self.followed.iter_mut().filter(|(_, f)| !f.settled) {
            let spoke = |t: &str, p| t == topic && p == *partition;
            followed.settled = ready.chunks.iter().any(|c| spoke(&c.name, c.partition))
                || ready.events.iter().any(|e| e.topic.as_deref().is_some_and(|t| spoke(t, e.partition)));
        }
    }
}

/// Why a partition is not followed.
#[derive(Debug, PartialEq)]
pub enum Unfollowed {
    /// The topic's name holds a 0.
    BadName,
    /// The library gave no queue.
    NoQueue,
}

#[cfg(test)]
mod tests {
    use super::super::drain::Event;
    use super::*;
    use crate::librdkafka::functions::fake::{self, Waiting, with};

    fn opened() -> (Handle, Queues) {
        let handle = Handle { call: fake::functions(), rk: std::ptr::null_mut() };
        // SAFETY: these functions look into no handle.
        let queues = unsafe { Queues::open(&handle) }.unwrap();
        (handle, queues)
    }

    fn record(topic: &'static std::ffi::CStr, partition: i32, offset: i64) -> Waiting {
        let (key, value) = (Some(&b"key"[..]), Some(&b"value"[..]));
        Waiting { topic: Some(topic), partition, offset, timestamp: 10 * offset, key, value, ..Waiting::default() }
    }

    /// Topic, partition and offsets.
    type Part = (String, i32, Vec<i64>);

    fn drained(handle: &Handle, queues: &mut Queues, most: usize) -> (Vec<Part>, Vec<Event>) {
        // SAFETY: as in `opened`.
        unsafe { queues.fill(handle, most, usize::MAX, 7) };
        let (chunks, events) = queues.ready.take(most);
        let found = chunks.iter().map(|c| (c.name.clone(), c.partition, c.offsets.clone())).collect();
        queues.ready.reuse(chunks);
        (found, events)
    }

    #[test]
    fn records_come_by_partition_and_in_their_order() {
        let (handle, mut queues) = opened();
        with(|library| {
            library.waiting.extend([record(c"t", 0, 4), record(c"t", 1, 9), record(c"t", 0, 5), record(c"u", 0, 1)]);
        });
        let (chunks, events) = drained(&handle, &mut queues, 100);
        let expected = [("t", 0, vec![4, 5]), ("t", 1, vec![9]), ("u", 0, vec![1])];
        assert_eq!(chunks, expected.map(|(topic, partition, offsets)| (topic.to_string(), partition, offsets)));
        assert!(events.is_empty());
        assert_eq!(drained(&handle, &mut queues, 100).0, [], "chunks are used again");
    }

    #[test]
    fn no_more_come_than_are_asked_for_and_only_the_first_is_waited_for() {
        let (handle, mut queues) = opened();
        with(|library| {
            library.batch = 2;
            library.waiting.extend((0..9).map(|offset| record(c"t", 0, offset)));
        });
        assert_eq!(drained(&handle, &mut queues, 5).0[0].2, [0, 1, 2, 3, 4]);
        assert_eq!(drained(&handle, &mut queues, 0).0, []);
        assert_eq!(drained(&handle, &mut queues, 100).0[0].2, [5, 6, 7, 8]);
        let waits = with(|library| {
            library
                .calls
                .iter()
                .filter_map(|call| call.strip_prefix("consume_callback_queue ").map(str::to_string))
                .collect()
        });
        let waits: Vec<String> = waits;
        assert_eq!(waits, ["7", "0", "0", "7", "0", "0"]);
    }

    #[test]
    fn what_is_ready_is_passed_on_in_parts_and_added_to() {
        let (handle, mut queues) = opened();
        let end = Waiting { err: -191, ..record(c"t", 0, 4) };
        with(|library| library.waiting.extend([record(c"t", 0, 0), record(c"t", 0, 1), record(c"t", 0, 2), end]));
        // SAFETY: as in `opened`.
        unsafe { queues.fill(&handle, 100, usize::MAX, 0) };
        assert_eq!(queues.ready.len(), 4);
        with(|library| library.waiting.push_back(record(c"t", 0, 4)));
        let (chunks, events) = drained(&handle, &mut queues, 2);
        assert_eq!((chunks, events.len()), (vec![("t".to_string(), 0, vec![0, 1])], 0));
        let (chunks, events) = drained(&handle, &mut queues, 3);
        assert_eq!((chunks, events.len()), (vec![("t".to_string(), 0, vec![2, 4])], 1));
        assert_eq!(queues.ready.len(), 0);
    }

    #[test]
    fn bytes_bound_what_is_read() {
        let (handle, mut queues) = opened();
        with(|library| library.waiting.extend((0..9).map(|offset| record(c"t", 0, offset))));
        // SAFETY: as in `opened`.
        unsafe { queues.fill(&handle, 100, 9, 0) };
        assert_eq!(queues.ready.len(), 2, "the second record of eight bytes exceeds nine");
    }

    /// Gives the number of rows that it reads.
    struct Counter;

    impl ReadsAhead for Counter {
        fn read_ahead(self: Arc<Self>, rows: &crate::kernels::rows::Rows) -> Option<Box<dyn std::any::Any + Send>> {
            Some(Box::new(rows.len()))
        }
    }

    #[test]
    fn values_are_read_ahead_until_more_come_or_the_partition_is_left() {
        let (handle, mut queues) = opened();
        let ahead = |queues: &Queues| -> Vec<Option<usize>> {
            let read = |c: &super::super::Chunk| c.projected.as_ref().map(|p| *p.downcast_ref::<usize>().unwrap());
            queues.ready.chunks.iter().map(read).collect()
        };
        with(|library| library.waiting.extend([record(c"t", 0, 0), record(c"t", 0, 1), record(c"t", 1, 0)]));
        // SAFETY: as in `opened`.
        unsafe { queues.fill(&handle, 10, usize::MAX, 0) };
        queues.project();
        assert_eq!(ahead(&queues), [None, None]);
        queues.project_by("t", 0, Some(Arc::new(Counter)));
        queues.project();
        assert_eq!(ahead(&queues), [Some(2), None]);
        let (first, _) = queues.ready.take(1);
        assert!(first[0].projected.is_none());
        assert_eq!(ahead(&queues), [None, None], "a part is not what was read");
        queues.project();
        with(|library| library.waiting.push_back(record(c"t", 0, 2)));
        // SAFETY: as in `opened`.
        unsafe { queues.fill(&handle, 10, usize::MAX, 0) };
        assert_eq!(ahead(&queues), [None, None], "more came");
        // SAFETY: as in `opened`.
        unsafe { queues.leave(&handle, "t", 0) };
        assert!(queues.projectors.is_empty());
    }

    #[test]
    fn what_is_ready_of_a_partition_is_dropped_when_that_starts_again_or_stops() {
        let (handle, mut queues) = opened();
        let ends = |partition| Waiting { err: -191, ..record(c"t", partition, 1) };
        with(|library| {
            for partition in 0..3 {
                library.waiting.extend([record(c"t", partition, 0), ends(partition)]);
            }
        });
        // SAFETY: as in `opened`.
        unsafe {
            queues.fill(&handle, 100, usize::MAX, 0);
            queues.follow(&handle, "t", 0).unwrap();
            queues.leave(&handle, "t", 2);
        }
        let (chunks, events) = drained(&handle, &mut queues, 100);
        assert_eq!(chunks, [("t".to_string(), 1, vec![0])]);
        assert_eq!(events.iter().map(|e| e.partition).collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn a_partition_is_forwarded_until_something_came_of_it() {
        let (handle, mut queues) = opened();
        // SAFETY: as in `opened`.
        unsafe { queues.follow(&handle, "t", 3) }.unwrap();
        let forwards = || with(|library| library.calls.iter().filter(|call| *call == "queue_forward 103 1").count());
        assert_eq!(forwards(), 1);
        drained(&handle, &mut queues, 1);
        assert_eq!(forwards(), 2);
        with(|library| library.waiting.push_back(record(c"t", 3, 0)));
        drained(&handle, &mut queues, 1);
        assert_eq!(forwards(), 3);
        drained(&handle, &mut queues, 1);
        assert_eq!(forwards(), 3, "it has settled");
        assert!(with(|library| library.calls.iter().any(|call| call == "consume_callback 7")));
    }

    #[test]
    fn every_handle_is_given_back_once() {
        let (handle, mut queues) = opened();
        // SAFETY: as in `opened`.
        unsafe {
            queues.follow(&handle, "t", 0).unwrap();
            queues.follow(&handle, "t", 0).unwrap();
            queues.follow(&handle, "u", 1).unwrap();
            queues.leave(&handle, "u", 1);
            queues.leave(&handle, "u", 1);
            assert_eq!(queues.follow(&handle, "a\0b", 0), Err(Unfollowed::BadName));
            assert_eq!(queues.follow(&handle, "t", -1), Err(Unfollowed::NoQueue));
            queues.destroy(&handle);
        }
        let count = |prefix: &str| with(|library| library.calls.iter().filter(|call| call.starts_with(prefix)).count());
        assert_eq!((count("topic_new"), count("topic_destroy")), (3, 3));
        assert_eq!((count("queue_destroy 100"), count("queue_destroy 101"), count("queue_destroy 1")), (2, 1, 4));
    }

    #[test]
    fn events_are_told_apart_from_records() {
        let (handle, mut queues) = opened();
        with(|library| {
            let end = Waiting { err: -191, value: Some(b"end of partition"), ..record(c"t", 0, 6) };
            let lost = Waiting { err: -195, value: None, topic: None, ..end.clone() };
            library.waiting.extend([record(c"t", 0, 5), end, lost]);
        });
        let (chunks, events) = drained(&handle, &mut queues, 10);
        assert_eq!(chunks, [("t".to_string(), 0, vec![5])]);
        let told: Vec<_> = events.iter().map(|e| (e.topic.as_deref(), e.code, e.offset, e.text.as_str())).collect();
        assert_eq!(told, [(Some("t"), -191, 6, "end of partition"), (None, -195, 6, "")]);
    }

    #[test]
    fn a_record_keeps_its_parts() {
        let (handle, mut queues) = opened();
        with(|library| {
            let headers = vec![(c"a", Some(&b"1"[..])), (c"a", None), (c"penstock.ts", Some(&b"1"[..]))];
            let zero = vec![(c"penstock.ts", Some(&b"0"[..])), (c"b", Some(&b""[..]))];
            library.waiting.extend([
                Waiting { headers, key: None, value: Some(b""), ..record(c"t", 0, 8) },
                Waiting { headers: zero, ..record(c"t", 0, 7) },
                Waiting { epoch: 3, ..record(c"t", 0, 9) },
            ]);
        });
        // SAFETY: as in `opened`.
        unsafe { queues.fill(&handle, 10, usize::MAX, 0) };
        let chunk = &queues.ready.chunks[0];
        assert_eq!((&chunk.timestamps[..], chunk.ascending, chunk.epoch), (&[80, 0, 90][..], false, 3));
        assert_eq!((&chunk.keys.data[..], &chunk.keys.ends[..]), (&b"keykey"[..], &[0, 0, 3, 6][..]));
        assert_eq!((&chunk.keys.nulls[..], chunk.keys.any_null), (&[true, false, false][..], true));
        assert_eq!((&chunk.values.data[..], chunk.values.any_null), (&b"valuevalue"[..], false));
        let headers: Vec<_> = chunk.headers.iter().map(|h| (h.place, h.name.as_str(), h.value.as_deref())).collect();
        let expected =
            [(0, "a", Some(&b"1"[..])), (0, "a", None), (0, "penstock.ts", Some(&b"1"[..])), (1, "b", Some(&b""[..]))];
        assert_eq!(headers, expected);
    }

    #[test]
    fn nothing_is_taken_from_a_record_on_whose_header_has_no_text() {
        let (handle, mut queues) = opened();
        with(|library| {
            let headers = vec![(c"good", Some(&b"1"[..])), (c"\xff", Some(&b"1"[..]))];
            let bad = Waiting { headers, ..record(c"t", 0, 6) };
            library.waiting.extend([record(c"t", 0, 5), bad, record(c"t", 0, 7), record(c"t", 1, 7)]);
        });
        // SAFETY: as in `opened`.
        unsafe { queues.fill(&handle, 10, usize::MAX, 0) };
        let chunk = &queues.ready.chunks[0];
        assert_eq!((chunk.unreadable, chunk.headers.len()), (Some(6), 0));
        let (chunks, _) = drained(&handle, &mut queues, 10);
        assert_eq!(chunks, [("t".to_string(), 0, vec![5]), ("t".to_string(), 1, vec![7])]);
    }
}
