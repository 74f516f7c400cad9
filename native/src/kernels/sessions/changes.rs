//! What a store gets of the sessions, and how keys leave.

use std::cmp::Reverse;
use std::mem::take;

use super::{Held, Key, Rules, Sessions};

/// Byte strings one after the other; `ends` begins with 0.
pub struct Names {
    data: Vec<u8>,
    ends: Vec<usize>,
}

impl Default for Names {
    fn default() -> Self {
        Names { data: vec![], ends: vec![0] }
    }
}

impl Names {
    fn push(&mut self, parts: &[&[u8]]) {
        for part in parts {
            self.data.extend_from_slice(part);
        }
        self.ends.push(self.data.len());
    }

    /// The key of a session's entry: segment, key, end, start.
    fn push_entry(&mut self, rules: Rules, name: &[u8], start: i64, end: i64) {
        let segment = end.max(0) / rules.segment_ms;
        self.push(&[&segment.to_be_bytes(), name, &end.max(0).to_be_bytes(), &start.to_be_bytes()]);
    }

    /// The key of a session's timer: end, start, key.
    fn push_timer(&mut self, name: &[u8], start: i64, end: i64) {
        self.push(&[&end.to_be_bytes(), &start.to_be_bytes(), name]);
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.ends.windows(2).map(|pair| &self.data[pair[0]..pair[1]])
    }
}

/// Changes of a store and its timers. What is gone comes first. `E`: the form of its entries.
pub struct Changes<E> {
    pub gone: Names,
    pub gone_times: Vec<i64>,
    /// Entries that the store does not have, and others.
    pub new: Names,
    pub new_entries: Vec<E>,
    pub known: Names,
    pub known_entries: Vec<E>,
    pub timers_gone: Names,
    pub timers_set: Names,
}

impl<H: Held> Sessions<H> {
    /// About how many entries and timers the store does not have yet, or has too many; 0: none.
    pub fn pending(&self) -> usize {
        2 * self.changes + self.gone.len() + self.timers_gone.len()
    }

    /// Hands over what has changed: from now on the store has it. Of the keys that changed, sessions that have closed and
    /// end before `floor` are dropped. `entry` makes that of aggregates and the time of the last record.
    pub fn changes<E>(&mut self, floor: i64, entry: impl Fn(&H, i64) -> E) -> Changes<E> {
        let rules = self.rules;
        let mut out = Changes {
            gone: Names::default(),
            gone_times: vec![],
            new: Names::default(),
            new_entries: vec![],
            known: Names::default(),
            known_entries: vec![],
            timers_gone: Names::default(),
            timers_set: Names::default(),
        };
        self.changes = 0;
        for (at, start, end, last) in take(&mut self.gone) {
            out.gone.push_entry(rules, &self.keys[at].name, start, end);
            out.gone_times.push(last);
        }
        for (at, start, end) in take(&mut self.timers_gone) {
            out.timers_gone.push_timer(&self.keys[at].name, start, end);
        }
        for at in take(&mut self.changed) {
            let Key { name, sessions, changed, .. } = &mut self.keys[at];
            *changed = false;
            for s in sessions.iter_mut().filter(|s| s.changed) {
                let (names, entries) = match s.stored {
                    true => (&mut out.known, &mut out.known_entries),
                    false => (&mut out.new, &mut out.new_entries),
                };
                names.push_entry(rules, name, s.start, s.end);
                entries.push(entry(&s.held, s.last));
                if s.open && !s.timer {
                    out.timers_set.push_timer(name, s.start, s.end);
                }
                (s.stored, s.timer, s.changed) = (true, s.open, false);
            }
            sessions.retain(|s| s.open || s.end >= floor);
        }
        out
    }

    /// Gives up a key without changes. Returns the places of its sessions, end and start, if it was here.
    pub fn release(&mut self, name: &[u8]) -> Option<Vec<(i64, i64)>> {
        let key = self.keys.remove(name)?;
        Some(key.sessions.iter().map(|s| (s.end, s.start)).collect())
    }

    /// Frees memory: of keys without changes, drops sessions that have closed and end before `floor`, and keys without any;
    /// of the others keeps at most this many, whose last sessions end last. Returns the highest end of those that it drops
    /// although they have sessions.
    pub fn shrink(&mut self, floor: i64, most: usize) -> Option<i64> {
        let mut kept = vec![];
        for mut key in self.keys.take_all() {
            key.sessions.retain(|s| s.open || s.end >= floor);
            if !key.sessions.is_empty() {
                kept.push(key);
            }
        }
        let last = |key: &Key<H>| key.sessions.last().map_or(i64::MIN, |s| s.end);
        let dropped = (kept.len() > most).then(|| {
            kept.sort_by_key(|key| Reverse(last(key)));
            let latest = last(&kept[most]);
            kept.truncate(most);
            latest
        });
        self.queue.clear();
        for key in kept {
            let at = self.keys.enter(key);
            self.queue_first(at);
        }
        dropped
    }
}
