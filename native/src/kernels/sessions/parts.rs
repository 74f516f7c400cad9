//! Sessions with several aggregates: numbers (`kernels::parts`), and distinct values with their numbers, of which a session
//! shows how many they are.

use std::cell::Cell;
use std::collections::BTreeMap;

use super::{Batch, Changes, Fold, Held, Rules, Sessions, Stored, Taken};
use crate::kernels::parts::{FAR, Part, there};
use crate::kernels::rows::Rows;
use crate::kernels::tuples::{Scalar, Unread, put, put_array, put_framed};
use crate::refused::Refused;

const TIME_BYTES: usize = 8;
/// About what a distinct value takes besides its bytes.
const VALUE_BYTES: usize = 64;

/// One of the aggregates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Slot {
    Number(Part),
    Distinct,
}

impl Slot {
    /// By its letter.
    pub fn of(letter: u8) -> Option<Self> {
        if letter == b'd' { Some(Slot::Distinct) } else { Part::of(letter).map(Slot::Number) }
    }

    fn width(self) -> usize {
        match self {
            Slot::Number(part) => part.width(),
            Slot::Distinct => 1,
        }
    }
}

/// By the values' bytes.
type Bag = BTreeMap<Box<[u8]>, i64>;

/// The aggregates of a session: the numbers of all slots, of a distinct count how many values there are, and these values.
#[derive(Debug, PartialEq)]
pub struct Parts {
    numbers: Box<[i64]>,
    bags: Box<[Bag]>,
}

impl Held for Parts {
    fn show(&self, out: &mut Vec<i64>) {
        out.extend_from_slice(&self.numbers);
    }
}

impl Parts {
    fn bytes(&self) -> usize {
        self.bags.iter().flat_map(BTreeMap::keys).map(|value| VALUE_BYTES + value.len()).sum()
    }
}

/// What a slot takes of each record.
pub enum Values<'a> {
    /// The record itself, unless a flag says that it is null.
    Rows(Option<&'a [u8]>),
    /// A number, or the bits of a float, with such flags.
    Numbers(&'a [i64], Option<&'a [u8]>),
    /// One of these values by its code; below 0 there is none.
    Coded(&'a [i64], Rows<'a>),
}

impl Values<'_> {
    fn has(&self, rows: usize) -> bool {
        match self {
            Values::Rows(nulls) => nulls.is_none_or(|nulls| nulls.len() == rows),
            Values::Numbers(numbers, nulls) => numbers.len() == rows && nulls.is_none_or(|nulls| nulls.len() == rows),
            Values::Coded(codes, values) => codes.len() == rows && codes.iter().all(|&code| code < values.len() as i64),
        }
    }

    fn fits(&self, slot: Slot) -> bool {
        match self {
            Values::Rows(_) => slot == Slot::Number(Part::Count),
            Values::Numbers(..) => matches!(slot, Slot::Number(part) if part != Part::Count),
            Values::Coded(..) => slot == Slot::Distinct,
        }
    }
}

/// The records of a batch.
struct Records<'a> {
    slots: &'a [Slot],
    columns: &'a [Values<'a>],
    /// How many bytes distinct values have taken.
    grown: Cell<usize>,
}

impl Records<'_> {
    fn grow(&self, value: &[u8]) {
        self.grown.set(self.grown.get() + VALUE_BYTES + value.len());
    }
}

impl Fold for Records<'_> {
    type Held = Parts;

    fn begin(&self, row: usize) -> Parts {
        let mut made = empty(self.slots);
        self.add(&mut made, row);
        made
    }

    fn add(&self, to: &mut Parts, row: usize) {
        let (mut at, mut bags) = (0, to.bags.iter_mut());
        for (&slot, values) in self.slots.iter().zip(self.columns) {
            let acc = &mut to.numbers[at..at + slot.width()];
            match (slot, values) {
                (Slot::Number(part), Values::Rows(nulls)) if there(*nulls, row) => part.add(acc, 1, 1),
                (Slot::Number(part), Values::Numbers(numbers, nulls)) if there(*nulls, row) => {
                    part.add(acc, 1, numbers[row]);
                }
                (Slot::Distinct, Values::Coded(codes, known)) => {
                    if let (Some(bag), Ok(code)) = (bags.next(), usize::try_from(codes[row])) {
                        let value = known.bytes(code);
                        match bag.get_mut(value) {
                            Some(times) => *times += 1,
                            None => {
                                self.grow(value);
                                bag.insert(value.into(), 1);
                                acc[0] += 1;
                            }
                        }
                    }
                }
                _ => {}
            }
            at += slot.width();
        }
    }

    fn absorb(&self, to: &mut Parts, later: Parts) {
        let (mut at, mut bags) = (0, to.bags.iter_mut().zip(later.bags));
        for &slot in self.slots {
            let acc = &mut to.numbers[at..at + slot.width()];
            match slot {
                Slot::Number(part) => part.absorb(acc, &later.numbers[at..]),
                Slot::Distinct => {
                    if let Some((bag, other)) = bags.next() {
                        for (value, times) in other {
                            *bag.entry(value).or_insert(0) += times;
                        }
                        acc[0] = bag.len() as i64;
                    }
                }
            }
            at += slot.width();
        }
    }

    fn has(&self, rows: usize) -> bool {
        self.columns.iter().all(|values| values.has(rows))
    }
}

fn empty(slots: &[Slot]) -> Parts {
    let distinct = slots.iter().filter(|&&slot| slot == Slot::Distinct).count();
    Parts {
        numbers: vec![0; slots.iter().map(|slot| slot.width()).sum()].into(),
        bags: (0..distinct).map(|_| Bag::new()).collect(),
    }
}

pub struct PartSessions {
    sessions: Sessions<Parts>,
    slots: Vec<Slot>,
    /// At least any count and the distance of any sum from 0.
    bound: u64,
    /// About what distinct values take; too much, since it is not counted down when sessions are dropped.
    bytes: usize,
}

impl PartSessions {
    pub fn new(rules: Rules, slots: Vec<Slot>) -> Self {
        PartSessions { sessions: Sessions::new(rules), slots, bound: 0, bytes: 0 }
    }

    pub fn sessions(&self) -> &Sessions<Parts> {
        &self.sessions
    }

    /// About what the distinct values take.
    pub fn used_bytes(&self) -> usize {
        self.bytes
    }

    /// How many numbers are shown of a session.
    pub fn width(&self) -> usize {
        self.slots.iter().map(|slot| slot.width()).sum()
    }

    /// See `Sessions::hold`; of each stored session its start, end and entry. `false`: Python must read one.
    pub fn hold(&mut self, name: &[u8], stored: &[(i64, i64, &[u8])]) -> bool {
        let found: Option<Vec<_>> = stored.iter().map(|&(start, end, entry)| self.read(start, end, entry)).collect();
        let Some(found) = found else {
            return false;
        };
        self.bound = found.iter().map(|(_, highest)| *highest).fold(self.bound, u64::max);
        self.bytes += found.iter().map(|(s, _)| s.held.bytes()).sum::<usize>();
        self.sessions.hold(name, found.into_iter().map(|(s, _)| s).collect());
        true
    }

    fn read(&self, start: i64, end: i64, entry: &[u8]) -> Option<(Stored<Parts>, u64)> {
        let (time, value) = entry.split_first_chunk::<TIME_BYTES>()?;
        let (mut held, mut unread) = (empty(&self.slots), Unread(value));
        if unread.array()? != self.slots.len() {
            return None;
        }
        let (mut highest, mut at, mut bags) = (0, 0, held.bags.iter_mut());
        for &slot in &self.slots {
            let (bytes, into) = (unread.bytes()?, &mut held.numbers[at..at + slot.width()]);
            match slot {
                Slot::Number(part) => highest = highest.max(part.read(bytes, into)?),
                Slot::Distinct => {
                    let bag = bags.next()?;
                    read_bag(bytes, bag)?;
                    into[0] = bag.len() as i64;
                }
            }
            at += slot.width();
        }
        unread.end()?;
        (highest < FAR).then_some((Stored { start, end, last: i64::from_be_bytes(*time), held }, highest))
    }

    /// See `Sessions::take`; of each slot the values. `None`: nothing was done, because a number may come too far.
    pub fn take(&mut self, batch: &Batch, columns: &[Values]) -> Result<Option<Taken>, Refused> {
        let fits = |(&slot, values): (&Slot, &Values)| values.fits(slot);
        if columns.len() != self.slots.len() || !self.slots.iter().zip(columns).all(fits) {
            return Err(Refused::Value("there is not one fitting column per part".into()));
        }
        let fold = Records { slots: &self.slots, columns, grown: Cell::new(0) };
        if !fold.has(batch.numbers.len()) {
            return Err(Refused::Value("there is not one value, or flag, per record".into()));
        }
        let more = self.more(batch.numbers.len(), columns);
        if self.bound.saturating_add(more) >= FAR {
            self.bound = self.highest();
        }
        let bound = self.bound.saturating_add(more);
        if bound >= FAR {
            return Ok(None);
        }
        let taken = self.sessions.take(batch, &fold)?;
        self.bound = bound;
        self.bytes += fold.grown.get();
        Ok(Some(taken))
    }

    /// At least by how much records can move a count or a sum.
    fn more(&self, rows: usize, columns: &[Values]) -> u64 {
        let mut most = rows as u64;
        for (&slot, values) in self.slots.iter().zip(columns) {
            if let (Slot::Number(Part::Total), Values::Numbers(numbers, nulls)) = (slot, values) {
                let present = numbers.iter().enumerate().filter(|(row, _)| there(*nulls, *row));
                most = most.max(present.fold(0, |sum: u64, (_, number)| sum.saturating_add(number.unsigned_abs())));
            }
        }
        most
    }

    /// The highest count, and distance of a sum from 0.
    fn highest(&self) -> u64 {
        let of = |held: &Parts| {
            let (mut at, mut highest) = (0, 0);
            for &slot in &self.slots {
                let numbers = &held.numbers[at..at + slot.width()];
                let summed = if slot == Slot::Number(Part::Total) { numbers } else { &numbers[..1] };
                highest = summed.iter().map(|number| number.unsigned_abs()).fold(highest, u64::max);
                at += slot.width();
            }
            highest
        };
        self.sessions.all_held().map(of).fold(0, u64::max)
    }

    /// See `Sessions::changes`. An entry is what is stored; `None`: there is more than MessagePack has lengths.
    pub fn changes(&mut self, floor: i64) -> Changes<Option<Vec<u8>>> {
        let slots = &self.slots;
        self.sessions.changes(floor, |held, last| write(slots, held, last))
    }

    pub fn release(&mut self, name: &[u8]) -> Option<Vec<(i64, i64)>> {
        self.sessions.release(name)
    }

    pub fn shrink(&mut self, floor: i64, most: usize) -> Option<i64> {
        let dropped = self.sessions.shrink(floor, most);
        self.bytes = self.sessions.all_held().map(Parts::bytes).sum();
        dropped
    }
}

fn read_bag(data: &[u8], into: &mut Bag) -> Option<()> {
    let mut unread = Unread(data);
    for _ in 0..unread.array()? {
        if unread.array()? != 2 {
            return None;
        }
        let value = unread.bytes()?;
        let Scalar::Int(times @ 1..) = unread.scalar()? else {
            return None;
        };
        if into.insert(value.into(), times).is_some() {
            return None;
        }
    }
    unread.end()
}

fn write(slots: &[Slot], held: &Parts, last: i64) -> Option<Vec<u8>> {
    let mut out = last.to_be_bytes().to_vec();
    put_array(&mut out, slots.len())?;
    let (mut at, mut bags) = (0, held.bags.iter());
    for &slot in slots {
        match slot {
            Slot::Number(part) => part.write(&mut out, &held.numbers[at..at + slot.width()])?,
            Slot::Distinct => put_framed(&mut out, |inner| write_bag(inner, bags.next()?))?,
        }
        at += slot.width();
    }
    Some(out)
}

fn write_bag(out: &mut Vec<u8>, bag: &Bag) -> Option<()> {
    put_array(out, bag.len())?;
    for (value, &times) in bag {
        put_array(out, 2)?;
        put(out, Scalar::Bytes(value))?;
        put(out, Scalar::Int(times))?;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: Rules = Rules { gap: 10, touching: false, behind: 0, closes_after: 0, keep: 20, segment_ms: 100 };
    const SLOTS: [Slot; 4] =
        [Slot::Number(Part::Count), Slot::Number(Part::Total), Slot::Distinct, Slot::Number(Part::Greatest)];

    fn of_key() -> PartSessions {
        let mut by = PartSessions::new(RULES, SLOTS.to_vec());
        assert!(by.hold(b"a", &[]));
        by
    }

    /// Takes records of the key `a`: their times, numbers and codes of two values; T is the highest time.
    fn take(by: &mut PartSessions, before: i64, times: &[i64], numbers: &[i64], codes: &[i64]) -> Option<Taken> {
        let (at, mut levels): (Vec<i64>, Vec<i64>) = ((0..times.len() as i64).collect(), vec![before]);
        for &time in times {
            levels.push(time.max(levels[levels.len() - 1]));
        }
        let names: &[&[u8]] = &[b"a"];
        let of_key = vec![0; times.len()];
        let batch = Batch { names, numbers: &of_key, times, at: &at, levels: &levels, moved_by_records: true };
        let nulls: Vec<u8> = codes.iter().map(|&code| u8::from(code < 0)).collect();
        let known = Rows::of(b"xyz", &[0, 1, 3], None).unwrap();
        let columns = [
            Values::Rows(None),
            Values::Numbers(numbers, None),
            Values::Coded(codes, known),
            Values::Numbers(numbers, Some(&nulls)),
        ];
        by.take(&batch, &columns).unwrap()
    }

    fn shown(taken: &Taken) -> Vec<&[i64]> {
        taken.closed.iter().map(|c| &taken.shown[c.shown..c.shown + 6]).collect()
    }

    #[test]
    fn each_aggregate_takes_its_values() {
        let mut by = of_key();
        let taken = take(&mut by, -1, &[5, 6, 7, 40], &[3, -1, 9, 2], &[0, 1, -1, 0]).unwrap();
        assert_eq!(shown(&taken), [&[3, 3, 11, 2, 1, 3]]);
        assert_eq!(by.used_bytes(), 3 * VALUE_BYTES + 4);
        assert_eq!(by.width(), 6);
    }

    #[test]
    fn what_is_stored_is_held_again() {
        let mut by = of_key();
        take(&mut by, -1, &[5, 6, 30], &[3, -1, 9], &[0, 0, 1]).unwrap();
        let stored: Vec<Vec<u8>> = by.changes(0).new_entries.into_iter().flatten().collect();
        assert_eq!(stored[0][8..10], [0x94, 0xc4]);
        let mut other = PartSessions::new(RULES, SLOTS.to_vec());
        assert!(other.hold(b"a", &[(5, 16, &stored[0]), (30, 40, &stored[1])]));
        let both = |by: &PartSessions| by.sessions.all_held().map(|held| format!("{held:?}")).collect::<Vec<_>>();
        assert_eq!(both(&other), both(&by));
        assert_eq!(other.used_bytes(), by.used_bytes());
        assert_eq!(by.shrink(0, 0), Some(40));
        assert_eq!(by.used_bytes(), 0);
    }

    #[test]
    fn sessions_that_meet_are_one_with_all_their_values() {
        let mut by = PartSessions::new(Rules { closes_after: 90, keep: 100, ..RULES }, SLOTS.to_vec());
        assert!(by.hold(b"a", &[]));
        take(&mut by, -1, &[5, 23, 14], &[3, 4, 5], &[0, 0, 1]).unwrap();
        let taken = take(&mut by, 23, &[200], &[0], &[0]).unwrap();
        assert_eq!(shown(&taken), [&[3, 3, 12, 2, 1, 5]]);
    }

    #[test]
    fn sums_that_may_come_too_far_are_refused_until_they_are_gone() {
        let mut by = of_key();
        let half = (FAR / 2) as i64 - 100;
        assert!(take(&mut by, -1, &[5], &[half], &[0]).is_some());
        assert!(take(&mut by, 5, &[6], &[half], &[0]).is_some());
        assert!(take(&mut by, 6, &[7], &[half], &[0]).is_none());
        assert!(take(&mut by, 6, &[50], &[0], &[0]).is_some());
        by.changes(100);
        assert!(take(&mut by, 50, &[60], &[half], &[0]).is_some());
    }

    #[test]
    fn entries_of_other_values_are_left_to_python() {
        let mut by = of_key();
        take(&mut by, -1, &[5], &[3], &[0]).unwrap();
        let good = by.changes(0).new_entries.remove(0).unwrap();
        let mut other = PartSessions::new(RULES, SLOTS.to_vec());
        for end in 0..good.len() {
            assert!(!other.hold(b"a", &[(5, 15, &good[..end])]));
        }
        assert!(!other.hold(b"a", &[(5, 15, &[&good[..], &[0]].concat())]));
        let mut twice = Bag::new();
        assert_eq!(read_bag(&[0x92, 0x92, 0xc4, 1, 7, 2, 0x92, 0xc4, 1, 7, 1], &mut twice), None);
        assert_eq!(read_bag(&[0x91, 0x92, 0xc4, 1, 7, 0], &mut Bag::new()), None);
        assert_eq!(other.sessions().len(), 0);
    }

    #[test]
    fn columns_that_do_not_fit_are_refused() {
        let mut by = PartSessions::new(RULES, vec![Slot::Distinct]);
        assert!(by.hold(b"a", &[]));
        let names: &[&[u8]] = &[b"a"];
        let batch = Batch { names, numbers: &[0], times: &[5], at: &[0], levels: &[0, 5], moved_by_records: true };
        let known = || Rows::of(b"x", &[0, 1], None).unwrap();
        for columns in
            [&[][..], &[Values::Rows(None)], &[Values::Coded(&[1], known())], &[Values::Coded(&[0, 0], known())]]
        {
            assert!(matches!(by.take(&batch, columns), Err(Refused::Value(_))));
        }
        assert!(by.take(&batch, &[Values::Coded(&[0], known())]).is_ok_and(|taken| taken.is_some()));
    }
}
