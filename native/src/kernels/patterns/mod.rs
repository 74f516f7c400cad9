//! Patterns over the events of keys: which events wait for the watermark, the partial matches of each key, and what a store
//! does not have of them yet.
//!
//! Events are taken by time, then key, then arrival, once the watermark has come to them; what ends by time is found by
//! alarms, one per key, which come before the events of their time. `pattern_match` in Python is the reference.

pub mod automaton;
mod changes;
mod matcher;
mod state;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use self::automaton::Automaton;
use self::matcher::{Event, Found};
use self::state::{KeyState, path, read};
use super::key_table::{KeyTable, Named};
use super::rows::Rows;
use crate::refused::Refused;

/// Alarms come before events.
const ALARM: u8 = 0;
const EVENT: u8 = 1;
/// No time may come so far.
const FAR: i64 = 1 << 61;
const TIME_BYTES: usize = 8;
/// About what an event takes besides its bytes.
const EVENT_BYTES: usize = 128;

#[derive(Default)]
struct Key {
    name: Arc<[u8]>,
    state: KeyState,
    /// Whether the store has its state, the time with which it was put, and its alarm there.
    stored: bool,
    put_ms: i64,
    stored_alarm: Option<i64>,
    changed: bool,
    /// How many of its events wait.
    waiting: u32,
}

impl Named for Key {
    fn name(&self) -> &[u8] {
        &self.name
    }
}

enum Data {
    /// Of the batch.
    Row(u32),
    Owned(Arc<[u8]>),
}

/// An alarm or an event. Ordered by time, alarms first, then arrival.
struct Due {
    time: i64,
    what: u8,
    number: u64,
    key: u32,
    bits: u64,
    data: Data,
    /// Whether the store has the event.
    stored: bool,
}

impl Due {
    fn place(&self) -> (i64, u8, u64, u32) {
        (self.time, self.what, self.number, self.key)
    }
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.place() == other.place()
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.place().cmp(&other.place())
    }
}

/// The records of a batch: the key of each as a number of `names`, its time, the conditions that it fulfils, the number of
/// marks before it, and its bytes.
pub struct Batch<'a> {
    pub names: &'a [&'a [u8]],
    pub numbers: &'a [i64],
    pub times: &'a [i64],
    pub bits: &'a [u64],
    pub at: &'a [i64],
    pub marks: &'a [i64],
    pub data: Rows<'a>,
}

/// What is handed out: at which mark, of which key, when, and the events by stage.
pub struct Out {
    pub position: i64,
    pub name: Arc<[u8]>,
    pub ts: i64,
    pub timed_out: bool,
    pub events: Vec<(u32, Arc<[u8]>)>,
}

#[derive(Default)]
pub struct Taken {
    /// Records that came too late.
    pub late: Vec<i64>,
    pub out: Vec<Out>,
    /// How many partial matches were added and removed.
    pub added: u64,
    pub removed: u64,
}

pub struct Patterns {
    automaton: Automaton,
    shape: i64,
    stages: usize,
    keys: KeyTable<Key>,
    due: BinaryHeap<Reverse<Due>>,
    /// The number of the next event, and that which the store knows.
    next_number: u64,
    stored_number: u64,
    /// The time of the last event that took a number.
    numbered_ms: i64,
    watermark: i64,
    changed: Vec<u32>,
    /// Of events that have been taken since: key, time and number in the store.
    gone: Vec<(u32, i64, u64)>,
    alarms: u64,
    /// About what the bytes of events take; too much, since it is not counted down.
    bytes: usize,
}

impl Patterns {
    pub fn new(automaton: Automaton, shape: i64, stages: usize) -> Self {
        Patterns {
            automaton,
            shape,
            stages,
            keys: KeyTable::new(),
            due: BinaryHeap::new(),
            next_number: 0,
            stored_number: 0,
            numbered_ms: 0,
            watermark: i64::MIN,
            changed: vec![],
            gone: vec![],
            alarms: 0,
            bytes: 0,
        }
    }

    /// About what the bytes of events have taken since the beginning.
    pub fn used_bytes(&self) -> usize {
        self.bytes
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// The places of names that are not here.
    pub fn missing(&self, names: &[&[u8]]) -> Vec<usize> {
        self.keys.missing(names)
    }

    /// Forgets all, and begins at a watermark, with the number of the next event.
    pub fn begin(&mut self, watermark: i64, next_number: u64) {
        self.keys.take_all();
        self.due.clear();
        self.changed.clear();
        self.gone.clear();
        (self.next_number, self.stored_number, self.watermark) = (next_number, next_number, watermark);
        self.bytes = 0;
    }

    /// Takes over a key with what the store has of it: a time and a state. `false`: Python must read it.
    pub fn hold(&mut self, name: &[u8], entry: Option<&[u8]>) -> bool {
        if self.keys.find(name).is_some() {
            return true;
        }
        let (mut state, mut put_ms) = (KeyState::default(), 0);
        if let Some(entry) = entry {
            let Some((time, value)) = entry.split_first_chunk::<TIME_BYTES>() else {
                return false;
            };
            self.bytes += value.len();
            let Some(found) = read(value, self.shape, self.automaton.states.len(), self.stages) else {
                return false;
            };
            (state, put_ms) = (found, i64::from_be_bytes(*time));
        }
        let stored_alarm = state.alarm;
        let key =
            Key { name: name.into(), state, stored: entry.is_some(), put_ms, stored_alarm, changed: false, waiting: 0 };
        let at = self.keys.enter(key);
        if let Some(time) = stored_alarm {
            self.set_alarm(at, time);
        }
        true
    }

    /// Takes over an event that waits in the store. Its key is here.
    pub fn wait(&mut self, name: &[u8], time: i64, number: u64, bits: u64, data: &[u8]) -> Result<(), Refused> {
        let Some(key) = self.keys.find(name) else {
            return Err(not_here());
        };
        self.keys[key].waiting += 1;
        self.due.push(Reverse(Due {
            time,
            what: EVENT,
            number,
            key,
            bits,
            data: Data::Owned(data.into()),
            stored: true,
        }));
        Ok(())
    }

    fn set_alarm(&mut self, key: u32, time: i64) {
        self.alarms += 1;
        let data = Data::Row(0);
        self.due.push(Reverse(Due { time, what: ALARM, number: self.alarms, key, bits: 0, data, stored: false }));
    }

    /// Takes the records of a batch, whose keys are all here, and applies the marks before them.
    pub fn take(&mut self, batch: &Batch) -> Result<Taken, Refused> {
        let keys = self.keys.places(batch.names).ok_or_else(not_here)?;
        let rows = batch.numbers.len();
        let rising = batch.at.windows(2).all(|pair| pair[0] <= pair[1]);
        if [batch.times.len(), batch.bits.len(), batch.at.len(), batch.data.len()] != [rows; 4]
            || !batch.numbers.iter().all(|number| (0..keys.len() as i64).contains(number))
            || !batch.at.iter().all(|at| (0..=batch.marks.len() as i64).contains(at))
            || !batch.times.iter().all(|time| (0..FAR).contains(time))
            || !rising
        {
            return Err(Refused::Value("the columns of a batch do not fit one another".into()));
        }
        let mut taken = Taken::default();
        let mut position = 0;
        for row in 0..rows {
            while position < batch.at[row] as usize {
                self.fire(batch.marks[position], position as i64, Some(&batch.data), &mut taken);
                position += 1;
            }
            let (time, key) = (batch.times[row], keys[batch.numbers[row] as usize]);
            if time <= self.watermark {
                taken.late.push(row as i64);
                continue;
            }
            let number = self.next_number;
            self.next_number += 1;
            self.numbered_ms = time;
            self.keys[key].waiting += 1;
            let (bits, data) = (batch.bits[row], Data::Row(row as u32));
            self.due.push(Reverse(Due { time, what: EVENT, number, key, bits, data, stored: false }));
        }
        while position < batch.marks.len() {
            self.fire(batch.marks[position], position as i64, Some(&batch.data), &mut taken);
            position += 1;
        }
        self.own(&batch.data);
        Ok(taken)
    }

    /// Copies the bytes of the events of a batch that still wait.
    fn own(&mut self, rows: &Rows) {
        let mut all = std::mem::take(&mut self.due).into_vec();
        for Reverse(due) in &mut all {
            if let (EVENT, &Data::Row(row)) = (due.what, &due.data) {
                let bytes = rows.bytes(row as usize);
                self.bytes += EVENT_BYTES + bytes.len();
                due.data = Data::Owned(bytes.into());
            }
        }
        self.due = all.into();
    }

    /// Moves the watermark: works off what is due.
    fn fire(&mut self, mark: i64, position: i64, rows: Option<&Rows>, taken: &mut Taken) {
        if mark <= self.watermark {
            return;
        }
        let mut some = vec![];
        while let Some(Reverse(first)) = self.due.peek().filter(|due| due.0.time <= mark) {
            let at = (first.time, first.what);
            while let Some(Reverse(due)) = self.due.pop_if_place(at) {
                some.push(due);
            }
            if some.len() > 1 {
                let keys = &self.keys;
                some.sort_by(|a, b| keys[a.key].name.cmp(&keys[b.key].name));
            }
            for due in some.drain(..) {
                if due.what == ALARM {
                    self.ring(&due, position, taken);
                } else {
                    self.show(due, position, rows, taken);
                }
            }
        }
        self.watermark = mark;
    }

    fn ring(&mut self, due: &Due, position: i64, taken: &mut Taken) {
        let key = &mut self.keys[due.key];
        if key.state.alarm != Some(due.time) {
            return;
        }
        key.state.alarm = None;
        let before = key.state.partials.len();
        let (mut timeouts, mut matches) = (vec![], vec![]);
        self.automaton.advance(&mut key.state, due.time, &mut timeouts, &mut matches);
        let after = key.state.partials.len();
        taken.removed += before.saturating_sub(after) as u64;
        taken.added += after.saturating_sub(before) as u64;
        self.finish(due.key, due.time, position, [timeouts, matches], taken);
    }

    fn show(&mut self, due: Due, position: i64, rows: Option<&Rows>, taken: &mut Taken) {
        if due.stored {
            self.gone.push((due.key, due.time, due.number));
        }
        let key = &mut self.keys[due.key];
        key.waiting -= 1;
        let before = key.state.partials.len();
        let (mut timeouts, mut matches) = (vec![], vec![]);
        let mut changed = self.automaton.advance(&mut key.state, due.time, &mut timeouts, &mut matches);
        let mut data = || match (&due.data, rows) {
            (Data::Owned(data), _) => data.clone(),
            (&Data::Row(row), Some(rows)) => {
                let bytes = rows.bytes(row as usize);
                self.bytes += EVENT_BYTES + bytes.len();
                bytes.into()
            }
            (Data::Row(_), None) => [].into(),
        };
        let mut event = Event { ts: due.time, bits: due.bits, data: &mut data };
        changed |= self.automaton.step(&mut key.state, &mut event, &mut matches);
        if changed {
            let after = key.state.partials.len();
            taken.removed += before.saturating_sub(after) as u64;
            taken.added += after.saturating_sub(before) as u64;
            self.finish(due.key, due.time, position, [timeouts, matches], taken);
        }
    }

    /// Notes what came of an event or an alarm, and hands it out.
    fn finish(&mut self, at: u32, time: i64, position: i64, found: [Vec<Found>; 2], taken: &mut Taken) {
        let key = &mut self.keys[at];
        if !key.changed {
            key.changed = true;
            self.changed.push(at);
        }
        key.put_ms = time.max(0);
        for one in found.into_iter().flatten() {
            let events = path(&one.node).into_iter().map(|node| (node.stage, node.event.data.clone())).collect();
            taken.out.push(Out { position, name: key.name.clone(), ts: one.ts, timed_out: one.timed_out, events });
        }
        let end = self.automaton.next_end(&key.state);
        if let Some(end) = end.filter(|&end| key.state.alarm.is_none_or(|alarm| alarm > end)) {
            key.state.alarm = Some(end);
            self.set_alarm(at, end);
        }
    }
}

fn not_here() -> Refused {
    Refused::Value("the state of a key is not here".into())
}

trait PopPlace {
    fn pop_if_place(&mut self, at: (i64, u8)) -> Option<Reverse<Due>>;
}

impl PopPlace for BinaryHeap<Reverse<Due>> {
    fn pop_if_place(&mut self, at: (i64, u8)) -> Option<Reverse<Due>> {
        self.peek().is_some_and(|Reverse(due)| (due.time, due.what) == at).then(|| self.pop()).flatten()
    }
}

#[cfg(test)]
mod tests;
