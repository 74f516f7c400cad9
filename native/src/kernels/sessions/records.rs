//! Records join sessions, and T closes them.

use std::cmp::Reverse;

use super::{Fold, Held, Session, Sessions};
use crate::refused::Refused;

/// The records of a batch: the key of each as a number of `names`, its time and its position; T before each position, and
/// behind the last one. Where records do not move T, some may be behind the last position.
pub struct Batch<'a> {
    pub names: &'a [&'a [u8]],
    pub numbers: &'a [i64],
    pub times: &'a [i64],
    pub at: &'a [i64],
    pub levels: &'a [i64],
    /// Whether a record counts for its own T.
    pub moved_by_records: bool,
}

/// A session that closes, and the position at which it does.
pub struct Closed {
    pub position: i64,
    pub end: i64,
    pub start: i64,
    pub last: i64,
    /// Where what is shown of it begins.
    pub shown: usize,
    pub(super) key: u32,
}

#[derive(Default)]
pub struct Taken {
    /// Records that came too late.
    pub late: Vec<i64>,
    /// By position, end, start and key.
    pub closed: Vec<Closed>,
    /// What is shown of them, as numbers.
    pub shown: Vec<i64>,
}

impl<H: Held> Sessions<H> {
    /// Takes the records of a batch, whose keys are all here.
    pub fn take(&mut self, batch: &Batch, fold: &impl Fold<Held = H>) -> Result<Taken, Refused> {
        let Some(keys) = self.keys.places(batch.names) else {
            return Err(Refused::Value("the sessions of a key are not here".into()));
        };
        let Some((&before, moves)) = batch.levels.split_first() else {
            return Err(Refused::Value("the levels must begin with the time before the batch".into()));
        };
        let rows = batch.numbers.len();
        let numbered = |number: &i64| (0..keys.len() as i64).contains(number);
        let positions = moves.len() + usize::from(!batch.moved_by_records);
        let placed = |at: &i64| (0..positions as i64).contains(at);
        if [batch.times.len(), batch.at.len()] != [rows; 2]
            || !fold.has(rows)
            || !batch.numbers.iter().all(numbered)
            || !batch.at.iter().all(placed)
        {
            return Err(Refused::Value("the columns of a batch do not fit one another".into()));
        }
        let mut taken = Taken::default();
        self.close(before, None);
        let mut t = before;
        for row in 0..rows {
            let position = batch.at[row] as usize;
            let before = batch.levels[position];
            if before > t {
                self.close(before, Some((moves, &mut taken)));
                t = before;
            }
            let now = if batch.moved_by_records { moves[position] } else { before };
            if !self.join(keys[batch.numbers[row] as usize], batch.times[row], (row, fold), before, now) {
                taken.late.push(row as i64);
            }
        }
        self.close(batch.levels[moves.len()], Some((moves, &mut taken)));
        let keys = &self.keys;
        taken.closed.sort_unstable_by_key(|c| (c.position, c.end, c.start, &*keys[c.key].name));
        Ok(taken)
    }

    /// Closes what T `now` closes, at the position at which `moves` came that far. Without them it was closed elsewhere.
    fn close(&mut self, now: i64, mut to: Option<(&[i64], &mut Taken)>) {
        let closes_after = self.rules.closes_after;
        while let Some(&Reverse((time, at))) = self.queue.peek() {
            if time.saturating_add(closes_after) > now {
                break;
            }
            self.queue.pop();
            let key = &mut self.keys[at];
            if key.queued != time {
                continue;
            }
            let first_open = key.first_open();
            for s in &mut key.sessions[first_open..] {
                let closes = s.end.saturating_add(closes_after);
                if closes > now {
                    break;
                }
                s.open = false;
                let had_timer = std::mem::replace(&mut s.timer, false);
                if let Some((moves, taken)) = &mut to {
                    let position = moves.partition_point(|&t| t < closes) as i64;
                    let shown = taken.shown.len();
                    s.held.show(&mut taken.shown);
                    taken.closed.push(Closed { position, end: s.end, start: s.start, last: s.last, shown, key: at });
                    if had_timer {
                        self.timers_gone.push((at, s.start, s.end));
                    }
                }
            }
            self.queue_first(at);
        }
    }

    /// Lets a record, a row of the fold, join the sessions of its key. `false`: it is late.
    fn join(&mut self, at: u32, ts: i64, (row, fold): (usize, &impl Fold<Held = H>), before: i64, now: i64) -> bool {
        let rules = self.rules;
        let reach = ts + rules.gap;
        let key = &mut self.keys[at];
        let low = (ts - rules.behind).max(before.saturating_sub(rules.keep));
        let first_near = key.sessions.partition_point(|s| s.end < low);
        let (mut first, mut stop) = (first_near, first_near);
        let (mut start, mut last, mut whole) = (ts, ts, reach);
        for (place, s) in key.sessions.iter().enumerate().skip(first_near) {
            if s.start > reach {
                break;
            }
            let s_reach = s.end.saturating_add(rules.behind);
            let touches_only = s.start == reach || s_reach == ts;
            if rules.touching || !touches_only || (s.start <= ts && ts <= s.last) {
                if first == stop {
                    first = place;
                }
                stop = place + 1;
                start = start.min(s.start);
                last = last.max(s.last);
                whole = whole.max(s_reach);
            }
        }
        if whole.saturating_add(rules.closes_after - rules.behind) <= now {
            return false;
        }
        let end = whole - rules.behind;
        for s in &key.sessions[first..stop] {
            if (s.start, s.end) != (start, end) {
                if s.stored {
                    self.gone.push((at, s.start, s.end, s.last));
                }
                if s.timer {
                    self.timers_gone.push((at, s.start, s.end));
                }
            }
        }
        if stop - first == 1 {
            let s = &mut key.sessions[first];
            self.changes += usize::from(!s.changed);
            if (s.start, s.end) != (start, end) {
                (s.start, s.end) = (start, end);
                (s.open, s.stored, s.timer) = (true, false, false);
            }
            fold.add(&mut s.held, row);
            (s.last, s.changed) = (last, true);
        } else {
            self.changes += 1;
            let place = if first == stop { key.sessions.partition_point(|s| s.end < end) } else { first };
            let mut members = key.sessions.drain(place..place + (stop - first)).map(|s| s.held);
            let held = members.next().map(|first| {
                members.fold(first, |mut held, later| {
                    fold.absorb(&mut held, later);
                    held
                })
            });
            let held = match held {
                None => fold.begin(row),
                Some(mut held) => {
                    fold.add(&mut held, row);
                    held
                }
            };
            let made = Session { start, end, last, held, open: true, stored: false, timer: false, changed: true };
            key.sessions.insert(place, made);
        }
        if !key.changed {
            key.changed = true;
            self.changed.push(at);
        }
        if end < key.queued {
            key.queued = end;
            self.queue.push(Reverse((end, at)));
        }
        true
    }
}
