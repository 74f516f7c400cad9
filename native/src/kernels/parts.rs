//! Aggregates of numbers as fixed-width accumulators: counts, sums, the least and the greatest.
//!
//! What is stored of several is a MessagePack array of the bytes of each: see `penstock.topologies.aggregators.encoding`.

use super::tuples::{Scalar, Unread, put, put_array, put_framed, put_long};

/// No sum, and no count, may come so far.
pub const FAR: u64 = 1 << 62;

/// One of the aggregates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Part {
    /// A number.
    Count,
    /// A number and a sum.
    Total,
    /// A number and the bits of a sum of floats, which is added in the order of the records.
    Real,
    /// Whether there is one, and the least.
    Least,
    Greatest,
}

impl Part {
    /// By its letter.
    pub fn of(letter: u8) -> Option<Self> {
        match letter {
            b'n' => Some(Part::Count),
            b's' => Some(Part::Total),
            b'r' => Some(Part::Real),
            b'l' => Some(Part::Least),
            b'g' => Some(Part::Greatest),
            _ => None,
        }
    }

    pub fn width(self) -> usize {
        if self == Part::Count { 1 } else { 2 }
    }

    fn better(self, new: i64, old: i64) -> bool {
        if self == Part::Least { new < old } else { new > old }
    }

    /// Adds a sum of `count` numbers, or one number that may be better.
    pub fn add(self, acc: &mut [i64], count: i64, number: i64) {
        match self {
            Part::Count => acc[0] += count,
            Part::Total => {
                acc[0] += count;
                acc[1] += number;
            }
            Part::Real => {
                acc[0] += count;
                acc[1] = (real(acc[1]) + real(number)).to_bits() as i64;
            }
            Part::Least | Part::Greatest => {
                if acc[0] == 0 || self.better(number, acc[1]) {
                    acc[..2].copy_from_slice(&[1, number]);
                }
            }
        }
    }

    /// Adds another accumulator.
    pub fn absorb(self, acc: &mut [i64], other: &[i64]) {
        match self {
            Part::Count => acc[0] += other[0],
            _ if other[0] == 0 => {}
            _ => self.add(acc, other[0], other[1]),
        }
    }

    /// Reads an accumulator, and returns at least the count and the distance of the sum from 0. `None`: Python must read
    /// it.
    pub fn read(self, bytes: &[u8], into: &mut [i64]) -> Option<u64> {
        if self == Part::Count {
            into[0] = i64::from_be_bytes(bytes.try_into().ok()?);
            return Some(into[0].unsigned_abs());
        }
        let mut inner = Unread(bytes);
        let found = match (self, inner.array()?) {
            (Part::Total, 2) => [whole(&mut inner)?, whole(&mut inner)?],
            (Part::Real, 2) => [whole(&mut inner)?, bits(&mut inner)?],
            (Part::Least | Part::Greatest, 0) => [0, 0],
            (Part::Least | Part::Greatest, 1) => [1, whole(&mut inner)?],
            _ => return None,
        };
        inner.end()?;
        into[..2].copy_from_slice(&found);
        let sums = matches!(self, Part::Total | Part::Real);
        if sums && found[0] == 0 && found[1] != 0 {
            return None;
        }
        Some(match self {
            Part::Total => found[0].unsigned_abs().max(found[1].unsigned_abs()),
            Part::Real => found[0].unsigned_abs(),
            _ => 0,
        })
    }

    /// Adds what is stored of an accumulator.
    pub fn write(self, out: &mut Vec<u8>, acc: &[i64]) -> Option<()> {
        match self {
            Part::Count => put_long(out, acc[0]),
            Part::Total => put_framed(out, |inner| put_all(inner, acc))?,
            Part::Real => put_framed(out, |inner| {
                put_array(inner, 2)?;
                put(inner, Scalar::Int(acc[0]))?;
                put(inner, Scalar::Float(real(acc[1])))
            })?,
            Part::Least | Part::Greatest => put_framed(out, |inner| put_all(inner, &acc[1..1 + acc[0] as usize]))?,
        }
        Some(())
    }
}

fn real(bits: i64) -> f64 {
    f64::from_bits(bits as u64)
}

/// Whether there is a value in a row.
pub fn there(nulls: Option<&[u8]>, row: usize) -> bool {
    nulls.is_none_or(|nulls| nulls[row] == 0)
}

/// Reads accumulators, and returns at least any count and the distance of any sum from 0. `None`: Python must read them.
pub fn read(parts: &[Part], data: &[u8], into: &mut [i64]) -> Option<u64> {
    let mut unread = Unread(data);
    if unread.array()? != parts.len() {
        return None;
    }
    let (mut highest, mut at) = (0, 0);
    for &part in parts {
        highest = highest.max(part.read(unread.bytes()?, &mut into[at..at + part.width()])?);
        at += part.width();
    }
    unread.end()?;
    Some(highest)
}

fn whole(unread: &mut Unread) -> Option<i64> {
    match unread.scalar()? {
        Scalar::Int(number) => Some(number),
        _ => None,
    }
}

fn bits(unread: &mut Unread) -> Option<i64> {
    match unread.scalar()? {
        Scalar::Float(number) => Some(number.to_bits() as i64),
        _ => None,
    }
}

/// Adds what is stored of accumulators.
pub fn write(parts: &[Part], out: &mut Vec<u8>, numbers: &[i64]) -> Option<()> {
    put_array(out, parts.len())?;
    let mut at = 0;
    for &part in parts {
        part.write(out, &numbers[at..at + part.width()])?;
        at += part.width();
    }
    Some(())
}

fn put_all(out: &mut Vec<u8>, numbers: &[i64]) -> Option<()> {
    put_array(out, numbers.len())?;
    numbers.iter().try_for_each(|&number| put(out, Scalar::Int(number)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_floats_are_added_in_their_order_and_written_as_floats() {
        let mut acc = [0i64; 2];
        for number in [1e16, 1.0, -1e16, 0.5] {
            Part::Real.add(&mut acc, 1, f64::to_bits(number) as i64);
        }
        assert_eq!((acc[0], real(acc[1])), (4, 0.5));
        let (mut data, mut back) = (vec![], [0i64; 2]);
        Part::Real.write(&mut data, &acc).unwrap();
        assert_eq!(data[..4], [0xc4, 11, 0x92, 4]);
        assert_eq!((Part::Real.read(&data[2..], &mut back), back), (Some(4), acc));
        Part::Real.absorb(&mut acc, &[0, 0]);
        Part::Real.absorb(&mut acc, &back);
        assert_eq!((acc[0], real(acc[1])), (8, 1.0));
    }

    #[test]
    fn a_sum_of_whole_numbers_is_none_of_floats() {
        let mut data = vec![];
        Part::Total.write(&mut data, &[1, 7]).unwrap();
        assert_eq!(Part::Real.read(&data[2..], &mut [0, 0]), None);
        assert_eq!(Part::Least.read(&data[2..], &mut [0, 0]), None);
    }
}
