//! Aggregates of whole numbers by key since the last commit: counts, sums, the least and the greatest.
//!
//! A key has its accumulators, of fixed width, next to one another. Records come in two steps: `reserve` finds their keys,
//! whose stored accumulators are then asked for, and `fold` or `merge` adds them, or nothing at all. So nothing is ever
//! added to what is not known, and what is here is whole at any time.

use crate::kernels::changelog::logged_keys;
use crate::kernels::distinct::Distinct;
use crate::kernels::entry_map::{AHEAD, Entered};
use crate::kernels::parts::{FAR, Part, read, there, write};
use crate::kernels::rows::{Rows, Taken};
use crate::refused::{Refused, room_for};

/// With more bytes than these the store's entries take over: places in `Distinct` have 31 bits.
const BYTES_MAX: usize = 1 << 30;
const TIME_BYTES: usize = 8;
const START_BYTES: usize = 8;
/// What a part takes of each row.
pub enum Values<'a> {
    /// The row itself, unless a flag says that it is null.
    Rows(Option<&'a [u8]>),
    /// A number, with such flags.
    Numbers(&'a [i64], Option<&'a [u8]>),
}

pub struct PartTally {
    parts: Vec<Part>,
    /// How many numbers a key has.
    width: usize,
    keys: Distinct,
    numbers: Vec<i64>,
    /// The highest of each key.
    times: Vec<i64>,
    /// How many keys have all that was added; those behind them are only reserved.
    kept: usize,
    /// How many keys have their stored accumulators, except for the missing ones.
    based: usize,
    missing: Vec<u32>,
    /// The key of each reserved row.
    rows: Vec<u32>,
    /// At least any count and the distance of any sum from 0.
    bound: u64,
}

impl PartTally {
    pub fn new(parts: Vec<Part>) -> Self {
        let width = parts.iter().map(|part| part.width()).sum();
        PartTally {
            parts,
            width,
            keys: Distinct::new(),
            numbers: vec![],
            times: vec![],
            kept: 0,
            based: 0,
            missing: vec![],
            rows: vec![],
            bound: 0,
        }
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.kept
    }

    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Also returns the memory.
    pub fn clear(&mut self) {
        *self = PartTally::new(std::mem::take(&mut self.parts));
    }

    pub fn used_bytes(&self) -> usize {
        if self.times.is_empty() {
            return 0;
        }
        self.keys.used_bytes() + size_of_val(&self.numbers[..]) + size_of_val(&self.times[..])
    }

    /// Finds the keys of rows, behind the `starts` of their windows if there are any: of each row one. `false`: they are too
    /// many.
    pub fn reserve(&mut self, rows: &Rows, starts: Option<&[i64]>) -> bool {
        let more = rows.extent().saturating_add(rows.len() * START_BYTES);
        if self.keys.bytes().saturating_add(more) > BYTES_MAX {
            return false;
        }
        let (mut key, mut found) = (vec![], std::mem::take(&mut self.rows));
        found.clear();
        match starts {
            None => found.extend((0..rows.len()).map(|row| self.keys.code(rows.bytes(row)) as u32)),
            Some(starts) => found.extend(starts.iter().enumerate().map(|(row, start)| {
                key.clear();
                key.extend_from_slice(&start.to_be_bytes());
                key.extend_from_slice(rows.bytes(row));
                self.keys.code(&key) as u32
            })),
        }
        self.rows = found;
        self.numbers.resize(self.width * self.keys.len(), 0);
        self.times.resize(self.keys.len(), i64::MIN);
        true
    }

    /// How many rows are reserved.
    pub fn reserved(&self) -> usize {
        self.rows.len()
    }

    /// The places of the keys without their stored accumulators.
    fn unbased(&self) -> impl Iterator<Item = usize> + '_ {
        self.missing.iter().map(|&place| place as usize).chain(self.based..self.keys.len())
    }

    pub fn unbased_keys(&self) -> impl Iterator<Item = &[u8]> + '_ {
        self.unbased().map(|place| self.keys.get(place))
    }

    /// The store has none of the keys.
    pub fn base_nothing(&mut self) {
        self.based = self.keys.len();
    }

    /// Takes what the store holds of the `unbased_keys`, in their order. An error: one of the values is not of whole numbers
    /// of 64 bits; it says so of the reserved rows, which then can only be given up.
    pub fn base<'a>(&mut self, stored: impl Iterator<Item = Option<&'a [u8]>>) -> Result<(), &'static str> {
        let places: Vec<usize> = self.unbased().collect();
        self.missing.clear();
        self.based = self.keys.len();
        for (place, value) in places.into_iter().zip(stored) {
            if let Some(value) = value {
                self.take_stored(place, value).ok_or(UNREADABLE)?;
            }
        }
        Ok(())
    }

    /// As `base`, from the memory of a store. What it does not know stays unbased, unless it is the `whole` store.
    pub fn base_from(&mut self, known: &mut Entered, whole: bool) -> Result<(), &'static str> {
        let mut hashes = [0u64; AHEAD];
        let places: Vec<usize> = self.unbased().collect();
        self.missing.clear();
        self.based = self.keys.len();
        for part in places.chunks(AHEAD) {
            for (hash, &place) in hashes.iter_mut().zip(part) {
                *hash = known.hash(self.keys.get(place));
                known.expect(*hash);
            }
            for (&hash, &place) in hashes.iter().zip(part) {
                match known.find_hashed(hash, self.keys.get(place)) {
                    Some(found) => {
                        known.mark_used(found);
                        if let Some(stored) = known.log.value(found) {
                            self.take_stored(place, stored).ok_or(UNREADABLE)?;
                        }
                    }
                    None if whole => {}
                    None => self.missing.push(place as u32),
                }
            }
        }
        Ok(())
    }

    fn take_stored(&mut self, place: usize, stored: &[u8]) -> Option<()> {
        let (time, value) = stored.split_at_checked(TIME_BYTES)?;
        let into = &mut self.numbers[place * self.width..(place + 1) * self.width];
        let highest = read(&self.parts, value, into)?;
        self.bound = self.bound.max(highest);
        self.times[place] = i64::from_be_bytes(time.try_into().ok()?);
        (self.bound < FAR).then_some(())
    }

    /// Adds a row to the accumulators of each of the reserved keys: of each part the values, and the times. `false`: nothing
    /// was added, because a count or a sum might come too far.
    pub fn fold(&mut self, columns: &[Values], times: &[i64]) -> bool {
        let mut more = self.rows.len() as u64;
        for (part, values) in self.parts.iter().zip(columns) {
            if let (Part::Total, Values::Numbers(numbers, nulls)) = (part, values) {
                let sum = numbers.iter().enumerate().filter(|(row, _)| there(*nulls, *row));
                more = more.max(sum.fold(0, |sum: u64, (_, number)| sum.saturating_add(number.unsigned_abs())));
            }
        }
        if !self.bounded(more) {
            return false;
        }
        let mut at = 0;
        for (&part, values) in self.parts.iter().zip(columns) {
            for (row, &place) in self.rows.iter().enumerate() {
                let acc = &mut self.numbers[place as usize * self.width + at..];
                match values {
                    Values::Rows(nulls) => acc[0] += i64::from(there(*nulls, row)),
                    Values::Numbers(numbers, nulls) => {
                        if there(*nulls, row) {
                            part.add(acc, 1, numbers[row]);
                        }
                    }
                }
            }
            at += part.width();
        }
        self.keep(times);
        true
    }

    /// As `fold`, of other accumulators of such parts. `false` also if one cannot be read.
    pub fn merge(&mut self, partials: &Rows, times: &[i64]) -> bool {
        let mut found = vec![0; self.width * partials.len()];
        let mut more = 0u64;
        for (row, into) in found.chunks_mut(self.width).enumerate() {
            match read(&self.parts, partials.bytes(row), into) {
                Some(highest) => more = more.saturating_add(highest),
                None => return false,
            }
        }
        if !self.bounded(more) {
            return false;
        }
        for (&place, other) in self.rows.iter().zip(found.chunks(self.width)) {
            let acc = &mut self.numbers[place as usize * self.width..][..self.width];
            let mut at = 0;
            for &part in &self.parts {
                part.absorb(&mut acc[at..], &other[at..]);
                at += part.width();
            }
        }
        self.keep(times);
        true
    }

    /// Whether counts and sums that come so much farther are still near enough; then they may.
    fn bounded(&mut self, more: u64) -> bool {
        let bound = self.bound.saturating_add(more);
        if bound < FAR {
            self.bound = bound;
        }
        bound < FAR
    }

    fn keep(&mut self, times: &[i64]) {
        for (&place, &time) in self.rows.iter().zip(times) {
            let latest = &mut self.times[place as usize];
            *latest = time.max(*latest);
        }
        self.rows.clear();
        self.kept = self.keys.len();
    }

    /// Whether a key lies below the bound.
    pub fn any_below(&self, bound: &[u8]) -> bool {
        (0..self.kept).any(|place| self.keys.get(place) < bound)
    }

    fn all(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        (0..self.kept).map(|place| self.keys.get(place))
    }

    /// The keys, in the order of their first rows.
    pub fn keys(&self) -> Result<Taken, Refused> {
        let mut out = Taken::with_room(self.kept, self.keys.bytes())?;
        self.all().for_each(|key| out.push(Some([key, &[]])));
        Ok(out)
    }

    /// The keys as the changelog of a window store has them.
    pub fn logged(&self) -> Result<Taken, Refused> {
        logged_keys(self.all(), self.keys.bytes())
    }

    /// The starts of the windows, and the keys behind them.
    pub fn windows(&self) -> Result<(Vec<i64>, Taken), Refused> {
        let mut starts = Vec::with_capacity(self.kept);
        let mut out = Taken::with_room(self.kept, self.keys.bytes())?;
        for key in self.all() {
            let Some((start, rest)) = key.split_first_chunk() else {
                return Err(Refused::Value("there is a key without a window".into()));
            };
            starts.push(i64::from_be_bytes(*start));
            out.push(Some([rest, &[]]));
        }
        Ok((starts, out))
    }

    /// The accumulators of each key as they are stored, without the time.
    pub fn written(&self) -> Result<Taken, Refused> {
        let mut data = room_for(self.kept * self.width * 6)?;
        let mut ends = Vec::with_capacity(self.kept + 1);
        ends.push(0);
        for numbers in self.numbers.chunks(self.width).take(self.kept) {
            write(&self.parts, &mut data, numbers).ok_or_else(|| Refused::Value("there are too many parts".into()))?;
            ends.push(data.len() as i64);
        }
        Ok(Taken { data, ends, nulls: vec![] })
    }

    /// The highest time of each key.
    pub fn times(&self) -> &[i64] {
        &self.times[..self.kept]
    }

    /// Of each part its one or two numbers for each key.
    pub fn columns(&self) -> Vec<Vec<i64>> {
        let of = |at: usize| self.numbers.chunks(self.width).take(self.kept).map(|numbers| numbers[at]).collect();
        (0..self.width).map(of).collect()
    }
}

const UNREADABLE: &str = "a stored aggregate is not of whole numbers of 64 bits that are far from their bounds";

#[cfg(test)]
mod tests;
