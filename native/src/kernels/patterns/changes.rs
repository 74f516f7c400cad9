//! What the stores get of the keys, their alarms and the events that wait, and how keys leave.

use std::cmp::Reverse;
use std::mem::take;

use super::state::write;
use super::{ALARM, Data, Patterns};

const BIAS: u64 = 1 << 63;

/// Changes of the stores of states, of alarms and of waiting events, by their keys. A state that is gone has no entry.
#[derive(Default)]
pub struct Changes {
    pub states: Vec<(Vec<u8>, Option<Vec<u8>>, i64)>,
    pub alarms_gone: Vec<Vec<u8>>,
    pub alarms_set: Vec<Vec<u8>>,
    /// With the times of the events.
    pub waiting_gone: Vec<(Vec<u8>, i64)>,
    pub waiting_new: Vec<(Vec<u8>, Vec<u8>, i64)>,
    /// The number of the next event, and the time of the last one, if it is another.
    pub number: Option<(u64, i64)>,
}

fn alarm_key(name: &[u8], time: i64) -> Vec<u8> {
    [&time.to_be_bytes(), name].concat()
}

fn event_key(name: &[u8], time: i64, number: u64) -> Vec<u8> {
    [&(time as u64 ^ BIAS).to_be_bytes(), name, &number.to_be_bytes()].concat()
}

impl Patterns {
    /// About how many changes the stores do not have yet; 0: none.
    pub fn pending(&self) -> usize {
        self.changed.len() + self.gone.len() + (self.next_number - self.stored_number) as usize
    }

    /// Hands over what has changed: from now on the stores have it. `None`: a state is longer than MessagePack has lengths.
    pub fn changes(&mut self) -> Option<Changes> {
        let mut out = Changes::default();
        for at in take(&mut self.changed) {
            let key = &mut self.keys[at];
            key.changed = false;
            if key.stored_alarm != key.state.alarm {
                out.alarms_gone.extend(key.stored_alarm.map(|time| alarm_key(&key.name, time)));
                out.alarms_set.extend(key.state.alarm.map(|time| alarm_key(&key.name, time)));
                key.stored_alarm = key.state.alarm;
            }
            let there = !key.state.is_empty() || key.state.alarm.is_some();
            if there {
                let mut entry = key.put_ms.to_be_bytes().to_vec();
                write(&mut entry, &key.state, self.shape)?;
                out.states.push((key.name.to_vec(), Some(entry), key.put_ms));
            } else if key.stored {
                out.states.push((key.name.to_vec(), None, key.put_ms));
            }
            key.stored = there;
        }
        for (at, time, number) in take(&mut self.gone) {
            out.waiting_gone.push((event_key(&self.keys[at].name, time, number), time));
        }
        let mut all = take(&mut self.due).into_vec();
        for Reverse(due) in all.iter_mut().filter(|due| due.0.what != ALARM && !due.0.stored) {
            if let Data::Owned(data) = &due.data {
                let key = event_key(&self.keys[due.key].name, due.time, due.number);
                out.waiting_new.push((key, data.to_vec(), due.time));
                due.stored = true;
            }
        }
        self.due = all.into();
        if self.next_number != self.stored_number {
            out.number = Some((self.next_number, self.numbered_ms));
            self.stored_number = self.next_number;
        }
        out.waiting_new.sort_unstable();
        Some(out)
    }

    /// Drops the keys of which no store has anything, to free memory. There must be no changes.
    pub fn shrink(&mut self) {
        self.keys.retain(|key| key.waiting > 0 || key.stored || key.state.alarm.is_some());
    }
}
