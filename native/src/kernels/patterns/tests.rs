//! Tests of patterns: for their answers see `test_pattern_columns` in Python.

use super::automaton::{Action, Condition, Edge, Kind, Skip, State};
use super::*;

const FIRST: u64 = 1;
const SECOND: u64 = 2;

fn edge(action: Action, target: usize, code: &[u8]) -> Edge {
    Edge { action, target, condition: Condition::of(code).unwrap() }
}

/// An event of the first kind, followed at any time by one of the second, within 100.
fn pair() -> Patterns {
    let state = |stage, kind, edges| State { stage, kind, gap: None, patience: None, edges };
    let states = vec![
        state(0, Kind::Final, vec![]),
        state(1, Kind::Normal, vec![edge(Action::Take, 0, &[0, 1]), edge(Action::Ignore, 1, &[0, 1, 4])]),
        state(0, Kind::Normal, vec![edge(Action::Take, 1, &[0, 0])]),
    ];
    let mut made = Patterns::new(Automaton::new(states, 2, Some(100), Skip::No).unwrap(), 9, 2);
    made.begin(-1, 0);
    made
}

/// Takes events of the keys `a` and `b`, as key, time and bits, of which each is followed by a mark.
fn take(by: &mut Patterns, rows: &[(&[u8], i64, u64)], marks: &[i64]) -> Taken {
    let names: Vec<&[u8]> = vec![b"a", b"b"];
    for name in &names {
        assert!(by.hold(name, None));
    }
    let numbers: Vec<i64> = rows.iter().map(|row| i64::from(row.0 == b"b")).collect();
    let times: Vec<i64> = rows.iter().map(|row| row.1).collect();
    let bits: Vec<u64> = rows.iter().map(|row| row.2).collect();
    let at: Vec<i64> = (0..rows.len() as i64).collect();
    let offsets: Vec<i64> = (0..=rows.len() as i64).collect();
    let data: Vec<u8> = (0..rows.len() as u8).collect();
    let data = Rows::of(&data, &offsets, None).unwrap();
    by.take(&Batch { names: &names, numbers: &numbers, times: &times, bits: &bits, at: &at, marks, data }).unwrap()
}

/// Position, time, whether timed out, the bytes of the events.
fn out(taken: &Taken) -> Vec<(i64, i64, bool, Vec<u8>)> {
    let bytes = |out: &Out| out.events.iter().map(|(_, data)| data[0]).collect();
    taken.out.iter().map(|out| (out.position, out.ts, out.timed_out, bytes(out))).collect()
}

#[test]
fn events_are_taken_by_time_once_the_watermark_has_come_to_them() {
    let mut by = pair();
    let rows: &[(&[u8], i64, u64)] = &[(b"a", 20, SECOND), (b"a", 10, FIRST), (b"a", 5, SECOND), (b"b", 30, FIRST)];
    let taken = take(&mut by, rows, &[-1, -1, 20, 20]);
    assert_eq!(out(&taken), [(2, 20, false, vec![1, 0])]);
    assert_eq!((taken.added, taken.removed), (1, 1));
    let taken = take(&mut by, &[(b"a", 20, FIRST)], &[30]);
    assert_eq!((&taken.late[..], taken.added), (&[0][..], 1));
}

#[test]
fn a_partial_match_times_out_when_the_watermark_comes_to_its_end() {
    let mut by = pair();
    take(&mut by, &[(b"b", 10, FIRST)], &[10]);
    take(&mut by, &[(b"a", 10, FIRST), (b"a", 15, FIRST)], &[11, 15]);
    let taken = take(&mut by, &[(b"b", 300, SECOND)], &[200]);
    assert_eq!(out(&taken), [(0, 110, true, vec![0]), (0, 115, true, vec![1])]);
    assert_eq!((taken.late.len(), taken.removed), (0, 2));
}

#[test]
fn the_stores_get_what_is_left_of_the_changes() {
    let mut by = pair();
    take(&mut by, &[(b"a", 10, FIRST), (b"b", 50, SECOND)], &[10, 10]);
    let changes = by.changes().unwrap();
    assert_eq!(changes.states.len(), 1);
    assert_eq!(changes.alarms_set, [[&110i64.to_be_bytes()[..], b"a"].concat()]);
    assert_eq!((changes.waiting_new.len(), changes.number), (1, Some((2, 50))));
    assert_eq!(by.pending(), 0);
    take(&mut by, &[(b"a", 60, SECOND), (b"a", 61, FIRST)], &[60, 60]);
    let next = by.changes().unwrap();
    assert!(next.states[0].1.is_some(), "its alarm is still set");
    assert!(next.alarms_gone.is_empty());
    assert_eq!(next.waiting_gone[0].0, changes.waiting_new[0].0);
    assert_eq!((next.waiting_new.len(), next.number), (1, Some((4, 61))));
    take(&mut by, &[], &[160, 200]);
    let last = by.changes().unwrap();
    assert_eq!((last.alarms_gone.len(), last.alarms_set.len(), last.states.len()), (1, 0, 1));
    assert_eq!(last.states[0].1, None);
}

#[test]
fn what_the_stores_have_is_held_again() {
    let mut by = pair();
    take(&mut by, &[(b"a", 10, FIRST), (b"b", 50, FIRST), (b"b", 55, SECOND)], &[10, 10, 10]);
    let changes = by.changes().unwrap();
    let mut other = pair();
    other.begin(10, 3);
    assert!(other.hold(b"a", changes.states[0].1.as_deref()) && other.hold(b"b", None));
    assert!(other.wait(b"c", 50, 1, FIRST, &[1]).is_err());
    for (number, time, bits) in [(1, 50, FIRST), (2, 55, SECOND)] {
        other.wait(b"b", time, number, bits, &[number as u8]).unwrap();
    }
    for one in [&mut by, &mut other] {
        let taken = take(one, &[(b"a", 90, SECOND)], &[100]);
        assert_eq!(out(&taken), [(0, 55, false, vec![1, 2]), (0, 90, false, vec![0, 0])]);
    }
    let gone = |by: &mut Patterns| by.changes().unwrap().waiting_gone;
    assert_eq!(gone(&mut by), gone(&mut other));
}

#[test]
fn keys_of_which_nothing_is_known_are_dropped() {
    let mut by = pair();
    take(&mut by, &[(b"a", 10, FIRST), (b"b", 11, SECOND)], &[10, 20]);
    by.changes().unwrap();
    by.shrink();
    assert_eq!((by.len(), by.missing(&[b"a", b"b"])), (1, vec![1]));
    take(&mut by, &[(b"a", 40, SECOND), (b"b", 50, FIRST)], &[40, 120]);
    by.changes().unwrap();
    by.shrink();
    assert_eq!(by.missing(&[b"a", b"b"]), [0]);
}

#[test]
fn columns_that_do_not_fit_are_refused() {
    let mut by = pair();
    let batch = |times, at, marks| Batch {
        names: &[b"a"],
        numbers: &[0],
        times,
        bits: &[0],
        at,
        marks,
        data: Rows::of(b"x", &[0, 1], None).unwrap(),
    };
    assert!(by.take(&batch(&[5], &[0], &[])).is_err(), "its key is not here");
    by.hold(b"a", None);
    for (times, at) in [(&[5][..], &[1][..]), (&[-1], &[0]), (&[FAR], &[0]), (&[5], &[]), (&[], &[0])] {
        assert!(by.take(&batch(times, at, &[])).is_err());
    }
    assert!(by.take(&batch(&[5], &[0], &[])).is_ok());
}
