//! Sessions of records by key with their aggregates, and what a store does not have of them yet.
//!
//! Which aggregates a session has is its own affair (`Held`), and how a record joins them that of the batch (`Fold`): see
//! `counts` and `parts`.
//!
//! Records are taken one by one, in their order, as the row form of the operator takes them: T is looked at before each,
//! what has closed by then is noted, and the record joins the sessions of its key that it reaches. The sessions of a key are
//! here as a whole or not at all. Those of a key do not meet, so they are ordered by start and by end.

mod changes;
pub mod counts;
pub mod parts;
mod records;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

pub use self::changes::{Changes, Names};
pub use self::records::{Batch, Closed, Taken};
use super::key_table::{KeyTable, Named};

/// Of a queue in which a key has no place.
const NEVER: i64 = i64::MAX;

/// See `SessionRules` in Python. A segment of the store is `segment_ms` long.
#[derive(Clone, Copy)]
pub struct Rules {
    pub gap: i64,
    pub touching: bool,
    pub behind: i64,
    pub closes_after: i64,
    pub keep: i64,
    pub segment_ms: i64,
}

/// The aggregates of a session.
pub trait Held {
    /// Adds the numbers that are shown of them.
    fn show(&self, out: &mut Vec<i64>);
}

/// How the records of a batch, by their rows, become aggregates.
pub trait Fold {
    type Held: Held;

    /// Those of a record.
    fn begin(&self, row: usize) -> Self::Held;

    /// Adds a record.
    fn add(&self, to: &mut Self::Held, row: usize);

    /// Adds those of a session that ends later.
    fn absorb(&self, to: &mut Self::Held, later: Self::Held);

    /// Whether there are as many records.
    fn has(&self, rows: usize) -> bool;
}

struct Session<H> {
    start: i64,
    end: i64,
    last: i64,
    held: H,
    open: bool,
    /// Whether the store has an entry with these bounds, and a timer for it.
    stored: bool,
    timer: bool,
    changed: bool,
}

struct Key<H> {
    name: Box<[u8]>,
    sessions: Vec<Session<H>>,
    /// The lowest time in the queue; no open session ends earlier.
    queued: i64,
    changed: bool,
}

impl<H> Default for Key<H> {
    fn default() -> Self {
        Key { name: [].into(), sessions: vec![], queued: NEVER, changed: false }
    }
}

impl<H> Named for Key<H> {
    fn name(&self) -> &[u8] {
        &self.name
    }
}

impl<H> Key<H> {
    /// Those before it have closed: they end first.
    fn first_open(&self) -> usize {
        self.sessions.partition_point(|s| !s.open)
    }
}

/// A session as the store has it.
pub struct Stored<H> {
    pub start: i64,
    pub end: i64,
    /// The time of its last record.
    pub last: i64,
    pub held: H,
}

pub struct Sessions<H> {
    rules: Rules,
    keys: KeyTable<Key<H>>,
    /// Times at which sessions of keys end. Of a key's, only the one that the key has as `queued` counts.
    queue: BinaryHeap<Reverse<(i64, u32)>>,
    /// Keys with changes.
    changed: Vec<u32>,
    /// How often an unchanged session became a changed one since the stores got everything.
    changes: usize,
    /// Stored entries that were replaced (key, start, end, last time), and the timers to delete.
    gone: Vec<(u32, i64, i64, i64)>,
    timers_gone: Vec<(u32, i64, i64)>,
}

impl<H: Held> Sessions<H> {
    pub fn new(rules: Rules) -> Self {
        Sessions {
            rules: Rules { segment_ms: rules.segment_ms.max(1), ..rules },
            keys: KeyTable::new(),
            queue: BinaryHeap::new(),
            changed: vec![],
            changes: 0,
            gone: vec![],
            timers_gone: vec![],
        }
    }

    /// How many keys are here.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    pub fn name(&self, closed: &Closed) -> &[u8] {
        &self.keys[closed.key].name
    }

    /// The places of names that are not here.
    pub fn missing(&self, names: &[&[u8]]) -> Vec<usize> {
        self.keys.missing(names)
    }

    /// Takes over a key with the sessions that the store has, by their ends. Nothing, if it is here. Which of them have closed
    /// is found when the next batch is taken.
    pub fn hold(&mut self, name: &[u8], stored: Vec<Stored<H>>) {
        if self.keys.find(name).is_some() {
            return;
        }
        let sessions = stored.into_iter().map(|s| Session {
            start: s.start,
            end: s.end,
            last: s.last,
            held: s.held,
            open: true,
            stored: true,
            timer: true,
            changed: false,
        });
        let key = Key { name: name.into(), sessions: sessions.collect(), queued: NEVER, changed: false };
        let at = self.keys.enter(key);
        self.queue_first(at);
    }

    /// The aggregates of all sessions.
    fn all_held(&self) -> impl Iterator<Item = &H> {
        self.keys.iter().flat_map(|key| key.sessions.iter().map(|s| &s.held))
    }

    /// Puts a key into the queue at the end of its first open session.
    fn queue_first(&mut self, at: u32) {
        let key = &mut self.keys[at];
        key.queued = key.sessions.get(key.first_open()).map_or(NEVER, |s| s.end);
        if key.queued != NEVER {
            self.queue.push(Reverse((key.queued, at)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::counts::Counted;
    use super::*;
    use crate::refused::Refused;

    const RULES: Rules = Rules { gap: 10, touching: false, behind: 0, closes_after: 0, keep: 20, segment_ms: 100 };

    /// Records as key, time; T is the highest time.
    fn taken(by: &mut Sessions<i64>, before: i64, rows: &[(&[u8], i64)]) -> Taken {
        let names: Vec<&[u8]> = vec![b"a", b"b"];
        for name in &names {
            by.hold(name, vec![]);
        }
        let numbers: Vec<i64> = rows.iter().map(|row| i64::from(row.0 == b"b")).collect();
        let times: Vec<i64> = rows.iter().map(|row| row.1).collect();
        let at: Vec<i64> = (0..rows.len() as i64).collect();
        let mut levels = vec![before];
        for &time in &times {
            levels.push(time.max(levels[levels.len() - 1]));
        }
        let batch =
            Batch { names: &names, numbers: &numbers, times: &times, at: &at, levels: &levels, moved_by_records: true };
        by.take(&batch, &Counted(None)).unwrap()
    }

    /// Position, end, start, time of the last record, count, key.
    fn closed(by: &Sessions<i64>, taken: &Taken) -> Vec<(i64, i64, i64, i64, i64, Vec<u8>)> {
        let count = |c: &Closed| taken.shown[c.shown];
        taken.closed.iter().map(|c| (c.position, c.end, c.start, c.last, count(c), by.name(c).to_vec())).collect()
    }

    /// Stored sessions of start, end, time of the last record, count.
    fn sessions(all: &[(i64, i64, i64, i64)]) -> Vec<Stored<i64>> {
        all.iter().map(|&(start, end, last, held)| Stored { start, end, last, held }).collect()
    }

    fn changed(by: &mut Sessions<i64>, floor: i64) -> Changes<(i64, i64)> {
        by.changes(floor, |&count, last| (count, last))
    }

    fn entry(key: &[u8], start: i64, end: i64) -> Vec<u8> {
        [&(end / 100).to_be_bytes(), key, &end.to_be_bytes(), &start.to_be_bytes()].concat()
    }

    fn timer(key: &[u8], start: i64, end: i64) -> Vec<u8> {
        [&end.to_be_bytes(), &start.to_be_bytes(), key].concat()
    }

    fn listed(names: &Names) -> Vec<Vec<u8>> {
        names.iter().map(<[u8]>::to_vec).collect()
    }

    #[test]
    fn records_within_the_gap_are_one_session_that_closes_at_its_position() {
        let mut by = Sessions::new(RULES);
        let found = taken(&mut by, -1, &[(b"a", 5), (b"b", 6), (b"a", 14), (b"b", 16), (b"a", 26), (b"a", 3)]);
        let expected =
            [(3, 16, 6, 6, 1, b"b".to_vec()), (4, 24, 5, 14, 2, b"a".to_vec()), (4, 26, 16, 16, 1, b"b".to_vec())];
        assert_eq!(closed(&by, &found), expected);
        assert_eq!(found.late, [5]);
        let changes = changed(&mut by, -1);
        let new = [entry(b"a", 5, 24), entry(b"a", 26, 36), entry(b"b", 6, 16), entry(b"b", 16, 26)];
        assert_eq!(
            (listed(&changes.new), &changes.new_entries[..]),
            (new.to_vec(), &[(2, 14), (1, 26), (1, 6), (1, 16)][..])
        );
        assert_eq!(listed(&changes.timers_set), [timer(b"a", 26, 36)]);
        assert_eq!((listed(&changes.gone).len(), listed(&changes.timers_gone).len()), (0, 0));
    }

    #[test]
    fn a_session_that_grows_takes_the_place_of_the_stored_one() {
        let mut by = Sessions::new(RULES);
        taken(&mut by, -1, &[(b"a", 5)]);
        changed(&mut by, -1);
        taken(&mut by, 5, &[(b"a", 7), (b"a", 6)]);
        let changes = changed(&mut by, -1);
        assert_eq!((listed(&changes.gone), changes.gone_times), (vec![entry(b"a", 5, 15)], vec![5]));
        assert_eq!((listed(&changes.new), changes.new_entries), (vec![entry(b"a", 5, 17)], vec![(3, 7)]));
        assert_eq!(
            (listed(&changes.timers_gone), listed(&changes.timers_set)),
            (vec![timer(b"a", 5, 15)], vec![timer(b"a", 5, 17)])
        );
        taken(&mut by, 7, &[(b"a", 7)]);
        let changes = changed(&mut by, -1);
        assert_eq!((listed(&changes.known), changes.known_entries), (vec![entry(b"a", 5, 17)], vec![(4, 7)]));
        assert_eq!((listed(&changes.timers_gone).len(), listed(&changes.timers_set).len()), (0, 0));
        assert_eq!(by.pending(), 0);
    }

    #[test]
    fn a_record_between_two_sessions_makes_them_one() {
        let mut by = Sessions::new(Rules { closes_after: 50, keep: 70, ..RULES });
        by.hold(b"a", sessions(&[(5, 15, 5, 2), (21, 31, 21, 3)]));
        taken(&mut by, 21, &[(b"a", 13)]);
        let changes = changed(&mut by, -1);
        assert_eq!(listed(&changes.gone), [entry(b"a", 5, 15), entry(b"a", 21, 31)]);
        assert_eq!(listed(&changes.timers_gone), [timer(b"a", 5, 15), timer(b"a", 21, 31)]);
        assert_eq!((listed(&changes.new), changes.new_entries), (vec![entry(b"a", 5, 31)], vec![(6, 21)]));
    }

    #[test]
    fn touching_counts_as_the_rules_say() {
        for touching in [false, true] {
            let mut by = Sessions::new(Rules { touching, closes_after: 5, ..RULES });
            taken(&mut by, -1, &[(b"a", 5), (b"a", 15)]);
            assert_eq!(changed(&mut by, -1).new_entries, if touching { vec![(2, 15)] } else { vec![(1, 5), (1, 15)] });
        }
    }

    #[test]
    fn what_closed_elsewhere_is_not_said_again() {
        let mut by = Sessions::new(RULES);
        taken(&mut by, -1, &[(b"a", 5)]);
        changed(&mut by, -1);
        assert!(taken(&mut by, 30, &[(b"b", 31)]).closed.is_empty());
        let changes = changed(&mut by, -1);
        assert_eq!((listed(&changes.timers_gone).len(), listed(&changes.timers_set).len()), (0, 1));
    }

    #[test]
    fn keys_are_given_up_and_dropped() {
        let mut by = Sessions::new(RULES);
        taken(&mut by, -1, &[(b"a", 5), (b"b", 40)]);
        changed(&mut by, -1);
        assert_eq!(by.missing(&[b"a", b"c", b"b"]), [1]);
        assert_eq!(by.release(b"a"), Some(vec![(15, 5)]));
        assert_eq!((by.release(b"a"), by.len()), (None, 1));
        by.hold(b"d", vec![]);
        assert_eq!((by.release(b"d"), by.keys.iter().count()), (Some(vec![]), 2));
        by.hold(b"c", sessions(&[(1, 11, 1, 1), (9, 22, 12, 2)]));
        by.hold(b"d", sessions(&[(1, 11, 1, 1)]));
        assert!(taken(&mut by, 40, &[]).closed.is_empty());
        assert_eq!(by.shrink(20, 2), None);
        assert_eq!(by.missing(&[b"b", b"c", b"d"]), [2]);
        assert_eq!(by.release(b"c"), Some(vec![(22, 9)]));
        let found = taken(&mut by, 40, &[(b"a", 60)]);
        assert_eq!(closed(&by, &found), [(0, 50, 40, 40, 1, b"b".to_vec())]);
        changed(&mut by, -1);
        by.hold(b"e", sessions(&[(41, 51, 41, 1)]));
        assert_eq!((by.shrink(20, 1), by.missing(&[b"a", b"e"])), (Some(51), vec![1]));
        assert_eq!((by.shrink(20, 0), by.len()), (Some(70), 0));
    }

    #[test]
    fn changes_are_counted_and_what_has_expired_is_dropped_with_them() {
        let mut by = Sessions::new(RULES);
        taken(&mut by, -1, &[(b"a", 5), (b"a", 40), (b"a", 41)]);
        assert_eq!(by.pending(), 4);
        assert_eq!(listed(&changed(&mut by, 21).new).len(), 2);
        assert_eq!(by.pending(), 0);
        taken(&mut by, 41, &[(b"a", 42), (b"b", 51)]);
        assert_eq!(by.pending(), 2 * 2 + 1 + 1);
        changed(&mut by, 21);
        assert_eq!(by.release(b"a"), Some(vec![(52, 40)]));
    }

    #[test]
    fn a_record_may_count_several() {
        let mut by = Sessions::new(RULES);
        by.hold(b"a", sessions(&[(0, 15, 5, 2)]));
        let batch = Batch {
            names: &[b"a"],
            numbers: &[0, 0, 0],
            times: &[8, 9, 50],
            at: &[0, 1, 2],
            levels: &[5, 8, 9, 50],
            moved_by_records: true,
        };
        let taken = by.take(&batch, &Counted(Some(&[3, 0, 7]))).unwrap();
        assert_eq!((taken.closed.iter().map(|c| c.end).collect::<Vec<_>>(), &taken.shown[..]), (vec![19], &[5][..]));
        assert_eq!(changed(&mut by, 0).new_entries.last(), Some(&(7, 50)));
    }

    #[test]
    fn columns_that_do_not_fit_are_refused() {
        let mut by = Sessions::new(RULES);
        by.hold(b"a", vec![]);
        let fits =
            Batch { names: &[b"a"], numbers: &[0], times: &[5], at: &[0], levels: &[0, 5], moved_by_records: true };
        for batch in [
            Batch { names: &[b"b"], ..fits },
            Batch { numbers: &[1], ..fits },
            Batch { numbers: &[-1], ..fits },
            Batch { times: &[], ..fits },
            Batch { at: &[1], ..fits },
            Batch { levels: &[0], ..fits },
            Batch { levels: &[], ..fits },
        ] {
            assert!(matches!(by.take(&batch, &Counted(None)), Err(Refused::Value(_))));
        }
        assert!(matches!(by.take(&fits, &Counted(Some(&[]))), Err(Refused::Value(_))));
        assert_eq!(by.pending(), 0);
        assert!(by.take(&fits, &Counted(None)).is_ok());
    }
}
