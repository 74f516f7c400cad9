//! Written entries in the order of their keys, as runs that are each sorted.
//!
//! A search sorts what was written since the last one, as a run of its own, and joins runs of similar length. So an entry
//! is moved a few times, and a search looks into a few runs, however many entries there are.

use super::super::segments::{DEAD, Log, Place, WRITTEN};

/// Runs are joined until each is more than this many times as long as the next one.
const GROWTH: usize = 2;

#[derive(Default)]
pub(super) struct Ordered {
    /// Places by key. An entry that was written again elsewhere is dead here.
    runs: Vec<Vec<Place>>,
}

pub(super) fn is_live(log: &Log, place: Place) -> bool {
    log.flags(place) & (WRITTEN | DEAD) == WRITTEN
}

impl Ordered {
    pub fn bytes(&self) -> usize {
        self.runs.iter().map(|run| 8 * run.capacity()).sum()
    }

    pub fn clear(&mut self) {
        self.runs = vec![];
    }

    /// All places, live or dead.
    pub fn places(&self) -> impl Iterator<Item = Place> + '_ {
        self.runs.iter().flatten().copied()
    }

    /// Drops the places whose segment is gone.
    pub fn forget_gone(&mut self, log: &Log) {
        for run in &mut self.runs {
            run.retain(|&place| log.has(place));
        }
    }

    /// Adds live places in the order of their keys.
    pub fn add(&mut self, log: &Log, sorted: Vec<Place>) {
        if sorted.is_empty() {
            return;
        }
        let mut added = sorted;
        while self.runs.last().is_some_and(|last| last.len() <= GROWTH * added.len()) {
            let last = self.runs.pop().unwrap_or_default();
            added = join(log, &last, &added);
        }
        self.runs.push(added);
    }

    /// Up to `most` live places with `low <= key < high`: the first, or the last ones, by key.
    pub fn between(&self, log: &Log, low: &[u8], high: Option<&[u8]>, most: usize, last: bool) -> Vec<Place> {
        let mut found = vec![];
        for run in &self.runs {
            let start = run.partition_point(|&place| log.key(place) < low);
            let end = high.map_or(run.len(), |high| run.partition_point(|&place| log.key(place) < high));
            let within = run.get(start..end).unwrap_or(&[]).iter().copied();
            if last {
                found.extend(within.rev().filter(|&place| is_live(log, place)).take(most));
            } else {
                found.extend(within.filter(|&place| is_live(log, place)).take(most));
            }
        }
        found.sort_unstable_by(|&a, &b| log.key(a).cmp(log.key(b)));
        if last && found.len() > most {
            found.drain(..found.len() - most);
        }
        found.truncate(most);
        found
    }
}

/// Joins two runs, without what is dead.
fn join<'a>(log: &'a Log, a: &'a [Place], b: &'a [Place]) -> Vec<Place> {
    let mut joined = Vec::with_capacity(a.len() + b.len());
    let live = |run: &'a [Place]| run.iter().copied().filter(|&place| is_live(log, place)).peekable();
    let (mut a, mut b) = (live(a), live(b));
    while let (Some(&first), Some(&second)) = (a.peek(), b.peek()) {
        joined.extend(if log.key(first) <= log.key(second) { a.next() } else { b.next() });
    }
    joined.extend(a.chain(b));
    joined
}
