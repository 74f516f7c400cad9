//! Counts of records by pane and key, and what a store does not have of them yet. A window that overlaps others is a run of
//! panes: its counts are those of its panes, added up.
//!
//! The last window is kept, so that the next one costs what the panes between them hold, however many there are in a window:
//! what leaves is subtracted, and what enters is added. The latest time of a key needs no subtraction: panes follow one
//! another, so the last pane that has the key has it.
//!
//! A store key is the start of the pane (8 bytes, big-endian) and then the key. Of each key there is one name and one number,
//! however many panes it is in; the number is given again when the last of them is gone.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use super::hash_of;
use super::segments::head_of;
use crate::refused::Refused;

const START_BYTES: usize = 8;

struct Key {
    name: Box<[u8]>,
    /// How many panes have it.
    panes: u32,
}

struct Counted {
    count: i64,
    latest: i64,
    changed: bool,
}

struct Pane {
    start: i64,
    counts: HashMap<u32, Counted, RandomState>,
}

/// What the panes of the last window hold of a key.
#[derive(Clone, Copy, Default)]
struct Held {
    panes: u32,
    count: i64,
    latest: i64,
}

/// The last window: the panes with `low <= start < high`.
#[derive(Default)]
struct Last {
    low: i64,
    high: i64,
    /// By the number of the key, as far as numbers were needed.
    held: Vec<Held>,
}

impl Last {
    fn has(&self, start: i64) -> bool {
        self.low <= start && start < self.high
    }

    fn at(&mut self, number: u32) -> &mut Held {
        if self.held.len() <= number as usize {
            self.held.resize(number as usize + 1, Held::default());
        }
        &mut self.held[number as usize]
    }

    fn enter(&mut self, pane: &Pane) {
        for (&number, entry) in &pane.counts {
            let held = self.at(number);
            held.latest = if held.panes == 0 { entry.latest } else { held.latest.max(entry.latest) };
            held.panes += 1;
            held.count += entry.count;
        }
    }

    fn leave(&mut self, pane: &Pane) {
        for (&number, entry) in &pane.counts {
            let held = self.at(number);
            held.panes -= 1;
            held.count -= entry.count;
        }
    }
}

/// The counts of one window: by key, as bytes.
#[derive(Default)]
pub struct Window {
    pub names: Vec<u8>,
    pub ends: Vec<i64>,
    pub counts: Vec<i64>,
    pub latest: Vec<i64>,
}

/// What the store gets: its keys, one after the other, and for each a count and the latest time.
#[derive(Default)]
pub struct Changes {
    pub keys: Vec<Vec<u8>>,
    pub counts: Vec<(i64, i64)>,
}

#[derive(Default)]
pub struct Panes {
    hasher: RandomState,
    index: HashTable<u32>,
    keys: Vec<Key>,
    /// Numbers of keys that no pane has.
    free: Vec<u32>,
    /// By start.
    panes: Vec<Pane>,
    entries: usize,
    /// All counts together: at least that of any window.
    total: i64,
    /// Start and key of the changed entries, in the order of their first change.
    changed: Vec<(i64, u32)>,
    last: Last,
}

fn start_of(key: &[u8]) -> Option<i64> {
    key.first_chunk::<START_BYTES>().map(|start| i64::from_be_bytes(*start))
}

impl Panes {
    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.entries
    }

    /// How many of them have changed.
    pub fn pending(&self) -> usize {
        self.changed.len()
    }

    /// Adds counts to the entries of these store keys, each with the latest time of its records. `stored`: they come from the
    /// store, which therefore has them. `false`: nothing was done, because a count is negative, or all counts together exceed
    /// 64 bits.
    pub fn add(&mut self, keys: &[&[u8]], counts: &[i64], times: &[i64], stored: bool) -> Result<bool, Refused> {
        if keys.len() != counts.len() || keys.len() != times.len() {
            return Err(Refused::Value("there is not one count and one time per key".into()));
        }
        if keys.iter().any(|key| start_of(key).is_none()) {
            return Err(Refused::Value("a store key begins with 8 bytes of the start of its pane".into()));
        }
        if self.keys.len() + keys.len() >= u32::MAX as usize {
            return Err(Refused::Value("there are too many keys".into()));
        }
        let mut total = Some(self.total);
        for &count in counts {
            total = total.filter(|_| count >= 0).and_then(|total| total.checked_add(count));
        }
        let Some(total) = total else { return Ok(false) };
        self.total = total;
        let mut at = 0;
        for ((key, &count), &time) in keys.iter().zip(counts).zip(times) {
            let start = start_of(key).unwrap_or_default();
            if self.panes.get(at).is_none_or(|pane| pane.start != start) {
                at = self.pane_at(start);
            }
            let number = self.number_of(&key[START_BYTES..]);
            self.count(at, number, count, time, stored);
        }
        Ok(true)
    }

    fn pane_at(&mut self, start: i64) -> usize {
        self.panes.binary_search_by_key(&start, |pane| pane.start).unwrap_or_else(|at| {
            self.panes.insert(at, Pane { start, counts: HashMap::default() });
            at
        })
    }

    /// The number of a key, which is new if no entry has it.
    fn number_of(&mut self, name: &[u8]) -> u32 {
        let hash = hash_of(&self.hasher, name);
        if let Some(&number) = self.index.find(hash, |&n| *self.keys[n as usize].name == *name) {
            return number;
        }
        let key = Key { name: name.into(), panes: 0 };
        let number = match self.free.pop() {
            Some(number) => {
                self.keys[number as usize] = key;
                number
            }
            None => {
                self.keys.push(key);
                self.keys.len() as u32 - 1
            }
        };
        let (keys, hasher) = (&self.keys, &self.hasher);
        self.index.insert_unique(hash, number, |&n| hash_of(hasher, &keys[n as usize].name));
        number
    }

    fn count(&mut self, at: usize, number: u32, count: i64, time: i64, stored: bool) {
        let pane = &mut self.panes[at];
        let mut new = false;
        let entry = pane.counts.entry(number).or_insert_with(|| {
            new = true;
            Counted { count: 0, latest: i64::MIN, changed: false }
        });
        entry.count += count;
        entry.latest = entry.latest.max(time);
        if new {
            self.entries += 1;
            self.keys[number as usize].panes += 1;
        }
        if self.last.has(pane.start) {
            let held = self.last.at(number);
            held.latest = if held.panes == 0 { time } else { held.latest.max(time) };
            held.panes += u32::from(new);
            held.count += count;
        }
        if !stored && !entry.changed {
            entry.changed = true;
            self.changed.push((pane.start, number));
        }
    }

    /// The start of the first pane from `start` on that has an entry.
    pub fn first(&self, start: i64) -> Option<i64> {
        self.panes[self.panes.partition_point(|pane| pane.start < start)..].first().map(|pane| pane.start)
    }

    /// The counts of the panes with `low <= start < high`, added up.
    pub fn window(&mut self, low: i64, high: i64) -> Window {
        self.move_last(low, high.max(low));
        let name = |number: u32| &*self.keys[number as usize].name;
        let held = self.last.held.iter().enumerate().filter(|(_, held)| held.panes > 0);
        let mut found: Vec<(u64, u32)> = held.map(|(n, _)| (head_of(name(n as u32)), n as u32)).collect();
        found.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| name(a.1).cmp(name(b.1))));
        let mut window = Window { ends: vec![0], ..Window::default() };
        for (_, number) in found {
            let held = self.last.held[number as usize];
            window.names.extend_from_slice(name(number));
            window.ends.push(window.names.len() as i64);
            window.counts.push(held.count);
            window.latest.push(held.latest);
        }
        window
    }

    /// Makes these panes those of the last window.
    fn move_last(&mut self, low: i64, high: i64) {
        let last = &mut self.last;
        if low < last.low || high < last.high || low >= last.high {
            *last = Last { low, high: low, held: vec![] };
        }
        let (left, entered) = (last.low..low, last.high..high);
        for pane in self.panes.iter().filter(|pane| left.contains(&pane.start)) {
            last.leave(pane);
        }
        for pane in self.panes.iter().filter(|pane| entered.contains(&pane.start)) {
            last.enter(pane);
        }
        (last.low, last.high) = (low, high);
    }

    /// Forgets the panes that start below `start`, and what has changed in them.
    pub fn drop_below(&mut self, start: i64) {
        let gone = self.panes.partition_point(|pane| pane.start < start);
        if gone == 0 {
            return;
        }
        self.changed.retain(|&(of, _)| of >= start);
        let last = &mut self.last;
        for pane in &self.panes[..gone] {
            if last.has(pane.start) {
                last.leave(pane);
            }
        }
        (last.low, last.high) = (last.low.max(start), last.high.max(start));
        for pane in self.panes.drain(..gone) {
            self.entries -= pane.counts.len();
            for (number, entry) in pane.counts {
                self.total -= entry.count;
                let key = &mut self.keys[number as usize];
                key.panes -= 1;
                if key.panes > 0 {
                    continue;
                }
                let hash = hash_of(&self.hasher, &key.name);
                if let Ok(known) = self.index.find_entry(hash, |&n| n == number) {
                    known.remove();
                }
                key.name = Box::default();
                self.free.push(number);
            }
        }
    }

    /// What has changed since the last call, in the order of the first changes.
    pub fn changes(&mut self) -> Changes {
        let mut found = Changes::default();
        for (start, number) in std::mem::take(&mut self.changed) {
            let Ok(at) = self.panes.binary_search_by_key(&start, |pane| pane.start) else { continue };
            if let Some(entry) = self.panes[at].counts.get_mut(&number) {
                entry.changed = false;
                found.keys.push([&start.to_be_bytes(), &*self.keys[number as usize].name].concat());
                found.counts.push((entry.count, entry.latest));
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(start: i64, name: &str) -> Vec<u8> {
        [&start.to_be_bytes(), name.as_bytes()].concat()
    }

    fn added(panes: &mut Panes, rows: &[(i64, &str, i64, i64)], stored: bool) -> bool {
        let keys: Vec<Vec<u8>> = rows.iter().map(|row| key(row.0, row.1)).collect();
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let counts: Vec<i64> = rows.iter().map(|row| row.2).collect();
        let times: Vec<i64> = rows.iter().map(|row| row.3).collect();
        panes.add(&keys, &counts, &times, stored).unwrap()
    }

    fn listed(window: &Window) -> Vec<(String, i64, i64)> {
        let name = |i: usize| &window.names[window.ends[i] as usize..window.ends[i + 1] as usize];
        let name = |i: usize| String::from_utf8(name(i).to_vec()).unwrap();
        (0..window.counts.len()).map(|i| (name(i), window.counts[i], window.latest[i])).collect()
    }

    fn row(name: &str, count: i64, latest: i64) -> (String, i64, i64) {
        (name.into(), count, latest)
    }

    #[test]
    fn a_window_adds_up_its_panes_by_key() {
        let mut panes = Panes::default();
        let rows = [(20, "b", 1, 21), (10, "a", 2, 12), (20, "a", 3, 20), (30, "auction-1", 4, 33), (20, "b", 5, 20)];
        assert!(added(&mut panes, &rows, false));
        assert_eq!(listed(&panes.window(10, 30)), [row("a", 5, 20), row("b", 6, 21)]);
        assert_eq!(listed(&panes.window(20, 40)), [row("a", 3, 20), row("auction-1", 4, 33), row("b", 6, 21)]);
        assert_eq!((listed(&panes.window(11, 20)), listed(&panes.window(30, 10))), (vec![], vec![]));
        assert_eq!(listed(&panes.window(10, 30)), [row("a", 5, 20), row("b", 6, 21)]);
        assert_eq!(
            (panes.first(0), panes.first(20), panes.first(21), panes.first(31)),
            (Some(10), Some(20), Some(30), None)
        );
        assert_eq!(panes.len(), 4);
    }

    /// What a window holds, from its panes alone.
    fn computed(panes: &Panes, low: i64, high: i64) -> Vec<(String, i64, i64)> {
        let mut found = std::collections::BTreeMap::<String, (i64, i64)>::new();
        for pane in panes.panes.iter().filter(|pane| low <= pane.start && pane.start < high) {
            for (&number, entry) in &pane.counts {
                let name = String::from_utf8(panes.keys[number as usize].name.to_vec()).unwrap();
                let (count, latest) = found.entry(name).or_insert((0, i64::MIN));
                (*count, *latest) = (*count + entry.count, entry.latest.max(*latest));
            }
        }
        found.into_iter().map(|(name, (count, latest))| (name, count, latest)).collect()
    }

    #[test]
    fn windows_that_move_on_hold_what_their_panes_hold() {
        let mut panes = Panes::default();
        let mut state = 7u64;
        let mut random = move |below: i64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as i64 % below
        };
        let mut floor = 0;
        for _ in 0..3_000 {
            match random(8) {
                0 => {
                    floor += random(3) * 2;
                    panes.drop_below(floor);
                }
                1 | 2 => {
                    let low = floor + random(3);
                    let high = low + random(12);
                    assert_eq!(listed(&panes.window(low, high)), computed(&panes, low, high));
                }
                _ => {
                    let start = floor + random(14);
                    let name = ["a", "b", "c", "d", "e"][random(5) as usize];
                    added(&mut panes, &[(start, name, random(3), 100 * start + random(100))], false);
                }
            }
        }
    }

    #[test]
    fn keys_with_the_same_first_bytes_are_ordered_by_the_rest() {
        let mut panes = Panes::default();
        let rows = [(0, "auction-22", 1, 1), (0, "auction-", 2, 2), (0, "auction-3", 3, 3), (0, "auction-2", 4, 4)];
        added(&mut panes, &rows, false);
        let names: Vec<String> = listed(&panes.window(0, 1)).into_iter().map(|row| row.0).collect();
        assert_eq!(names, ["auction-", "auction-2", "auction-22", "auction-3"]);
    }

    #[test]
    fn changes_are_given_once_in_the_order_of_the_first() {
        let mut panes = Panes::default();
        added(&mut panes, &[(10, "a", 2, 12), (10, "c", 1, 11)], true);
        assert_eq!((panes.len(), panes.pending()), (2, 0));
        added(&mut panes, &[(20, "b", 1, 20), (10, "a", 1, 11), (20, "b", 1, 25)], false);
        assert_eq!(panes.pending(), 2);
        let changes = panes.changes();
        assert_eq!((changes.keys, changes.counts), (vec![key(20, "b"), key(10, "a")], vec![(2, 25), (3, 12)]));
        assert_eq!((panes.pending(), panes.changes().keys.len()), (0, 0));
        added(&mut panes, &[(10, "a", 1, 9)], false);
        assert_eq!(panes.changes().counts, [(4, 12)]);
    }

    #[test]
    fn what_is_dropped_is_in_no_window_and_no_change() {
        let mut panes = Panes::default();
        added(&mut panes, &[(10, "a", 2, 12), (20, "a", 1, 21), (10, "b", 1, 11)], false);
        panes.drop_below(20);
        assert_eq!((panes.len(), panes.total, panes.first(0)), (1, 1, Some(20)));
        assert_eq!(panes.changes().keys, [key(20, "a")]);
        added(&mut panes, &[(30, "c", 7, 30), (20, "b", 1, 22)], false);
        assert_eq!(panes.keys.len(), 3, "the number of b is given again");
        assert_eq!(listed(&panes.window(20, 40)), [row("a", 1, 21), row("b", 1, 22), row("c", 7, 30)]);
        panes.drop_below(100);
        assert_eq!((panes.len(), panes.total, panes.pending(), panes.index.len()), (0, 0, 0, 0));
    }

    #[test]
    fn counts_that_do_not_fit_are_refused_and_change_nothing() {
        let mut panes = Panes::default();
        added(&mut panes, &[(10, "a", i64::MAX - 1, 12)], true);
        assert!(!added(&mut panes, &[(20, "a", 1, 20), (20, "b", 1, 20)], false));
        assert!(!added(&mut panes, &[(20, "a", -1, 20)], false));
        assert_eq!((panes.len(), panes.pending(), panes.total), (1, 0, i64::MAX - 1));
        assert!(added(&mut panes, &[(20, "a", 1, 20)], false));
        panes.drop_below(20);
        assert!(added(&mut panes, &[(20, "a", i64::MAX - 1, 20)], false));
    }

    #[test]
    fn columns_that_do_not_fit_together_are_errors() {
        let mut panes = Panes::default();
        let some = key(1, "a");
        assert!(panes.add(&[&some], &[], &[1], false).is_err());
        assert!(panes.add(&[&some], &[1], &[], false).is_err());
        assert!(panes.add(&[b"short"], &[1], &[1], false).is_err());
        assert_eq!(panes.len(), 0);
    }
}
