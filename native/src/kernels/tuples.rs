//! Tuples of scalars in MessagePack, alone or as parts of other tuples: see `penstock.topologies.aggregators.encoding`.
//!
//! What is written is what msgspec writes. What is read is only what comes back as a scalar; all else is left to Python.

/// A value within a tuple.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar<'a> {
    Null,
    Flag(bool),
    Int(i64),
    /// Above all others of 64 bits with a sign.
    Above(u64),
    Float(f64),
    Text(&'a str),
    Bytes(&'a [u8]),
}

/// How a part of a tuple is written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Form {
    /// A whole number as 8 bytes, big-endian.
    Long,
    /// A whole number in MessagePack.
    Number,
    /// A tuple of scalars.
    Flat,
    /// Byte strings with their numbers: see `kernels::bags`.
    Bag,
}

impl Form {
    /// By its letter.
    pub fn of(letter: u8) -> Option<Self> {
        match letter {
            b'q' => Some(Form::Long),
            b'n' => Some(Form::Number),
            b'f' => Some(Form::Flat),
            b'b' => Some(Form::Bag),
            _ => None,
        }
    }
}

const NULL: u8 = 0xc0;
const FALSE: u8 = 0xc2;
const TRUE: u8 = 0xc3;
const FLOAT: u8 = 0xcb;
/// Bytes with a length of one byte; of two and four come after it.
const BYTES: u8 = 0xc4;
const TEXT: u8 = 0xd9;
/// Arrays have no length of one byte.
const ARRAY: u8 = 0xdc;
const FEW_TEXT: u8 = 0xa0;
const FEW_TEXT_MAX: usize = 31;
const FEW_ITEMS: u8 = 0x90;
const FEW_ITEMS_MAX: usize = 15;
const UNSIGNED: u8 = 0xcc;
const SIGNED: u8 = 0xd0;
const LONG_BYTES: usize = 8;

/// The number of bytes that a length takes, as 0, 1 or 2 for one, two or four. `None`: more than MessagePack has.
fn width(length: usize) -> Option<u8> {
    match u32::try_from(length).ok()? {
        0..=0xff => Some(0),
        0x100..=0xffff => Some(1),
        _ => Some(2),
    }
}

fn put_length(out: &mut Vec<u8>, width: u8, length: usize) {
    let whole = (length as u32).to_be_bytes();
    out.extend_from_slice(&whole[4 - (1 << width)..]);
}

fn put_int(out: &mut Vec<u8>, number: i64) {
    let whole = number.to_be_bytes();
    match number {
        -0x20..=0x7f => out.push(number as u8),
        0x80..=0xff => out.extend_from_slice(&[UNSIGNED, whole[7]]),
        0x100..=0xffff => out.extend_from_slice(&[UNSIGNED + 1, whole[6], whole[7]]),
        0x1_0000..=0xffff_ffff => {
            out.push(UNSIGNED + 2);
            out.extend_from_slice(&whole[4..]);
        }
        0x1_0000_0000.. => {
            out.push(UNSIGNED + 3);
            out.extend_from_slice(&whole);
        }
        -0x80..-0x20 => out.extend_from_slice(&[SIGNED, whole[7]]),
        -0x8000..-0x80 => out.extend_from_slice(&[SIGNED + 1, whole[6], whole[7]]),
        -0x8000_0000..-0x8000 => {
            out.push(SIGNED + 2);
            out.extend_from_slice(&whole[4..]);
        }
        _ => {
            out.push(SIGNED + 3);
            out.extend_from_slice(&whole);
        }
    }
}

/// Adds a scalar. `None`: it is longer than MessagePack has lengths.
pub fn put(out: &mut Vec<u8>, value: Scalar) -> Option<()> {
    match value {
        Scalar::Null => out.push(NULL),
        Scalar::Flag(flag) => out.push(if flag { TRUE } else { FALSE }),
        Scalar::Int(number) => put_int(out, number),
        Scalar::Above(number) => {
            out.push(UNSIGNED + 3);
            out.extend_from_slice(&number.to_be_bytes());
        }
        Scalar::Float(number) => {
            out.push(FLOAT);
            out.extend_from_slice(&number.to_be_bytes());
        }
        Scalar::Text(text) => {
            if text.len() <= FEW_TEXT_MAX {
                out.push(FEW_TEXT | text.len() as u8);
            } else {
                let width = width(text.len())?;
                out.push(TEXT + width);
                put_length(out, width, text.len());
            }
            out.extend_from_slice(text.as_bytes());
        }
        Scalar::Bytes(bytes) => {
            let width = width(bytes.len())?;
            out.push(BYTES + width);
            put_length(out, width, bytes.len());
            out.extend_from_slice(bytes);
        }
    }
    Some(())
}

/// Begins an array of this number of items.
pub fn put_array(out: &mut Vec<u8>, items: usize) -> Option<()> {
    if items <= FEW_ITEMS_MAX {
        out.push(FEW_ITEMS | items as u8);
    } else {
        let width = width(items)?.max(1);
        out.push(ARRAY + width - 1);
        put_length(out, width, items);
    }
    Some(())
}

/// Adds a number as the bytes of 8 bytes.
pub fn put_long(out: &mut Vec<u8>, number: i64) {
    out.extend_from_slice(&[BYTES, LONG_BYTES as u8]);
    out.extend_from_slice(&number.to_be_bytes());
}

/// Adds what `content` writes, as bytes. `None`: what it returns, or there is too much.
pub fn put_framed(out: &mut Vec<u8>, content: impl FnOnce(&mut Vec<u8>) -> Option<()>) -> Option<()> {
    // Mostly the length takes one byte, so that nothing has to move.
    out.extend_from_slice(&[BYTES, 0]);
    let start = out.len();
    content(out)?;
    let length = out.len() - start;
    let width = width(length)?;
    if width == 0 {
        out[start - 1] = length as u8;
    } else {
        let mut head = vec![BYTES + width];
        put_length(&mut head, width, length);
        out.splice(start - 2..start, head);
    }
    Some(())
}

/// Bytes that are read from the front.
pub(super) struct Unread<'a>(pub(super) &'a [u8]);

impl<'a> Unread<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }

    fn unsigned(&mut self, width: u8) -> Option<u64> {
        let bytes = self.take(1 << width)?;
        Some(bytes.iter().fold(0, |so_far, &byte| so_far << 8 | u64::from(byte)))
    }

    fn signed(&mut self, width: u8) -> Option<i64> {
        let unused = 64 - (8 << width);
        Some((self.unsigned(width)? as i64) << unused >> unused)
    }

    fn length(&mut self, width: u8) -> Option<usize> {
        usize::try_from(self.unsigned(width)?).ok()
    }

    fn text(&mut self, length: usize) -> Option<Scalar<'a>> {
        std::str::from_utf8(self.take(length)?).ok().map(Scalar::Text)
    }

    /// A scalar that Python would read as one of the same type. Floats of 4 bytes, extensions, and what has items, are none.
    pub(super) fn scalar(&mut self) -> Option<Scalar<'a>> {
        let kind = self.byte()?;
        Some(match kind {
            0..=0x7f => Scalar::Int(kind.into()),
            0xe0.. => Scalar::Int((kind as i8).into()),
            FEW_TEXT..=0xbf => self.text((kind - FEW_TEXT).into())?,
            NULL => Scalar::Null,
            FALSE | TRUE => Scalar::Flag(kind == TRUE),
            0xc4..=0xc6 => {
                let length = self.length(kind - BYTES)?;
                Scalar::Bytes(self.take(length)?)
            }
            FLOAT => Scalar::Float(f64::from_bits(self.unsigned(3)?)),
            0xcc..=0xcf => {
                let number = self.unsigned(kind - UNSIGNED)?;
                i64::try_from(number).map_or(Scalar::Above(number), Scalar::Int)
            }
            0xd0..=0xd3 => Scalar::Int(self.signed(kind - SIGNED)?),
            0xd9..=0xdb => {
                let length = self.length(kind - TEXT)?;
                self.text(length)?
            }
            _ => return None,
        })
    }

    /// The number of an array's items.
    pub(super) fn array(&mut self) -> Option<usize> {
        match self.byte()? {
            kind @ FEW_ITEMS..=0x9f => Some((kind - FEW_ITEMS).into()),
            kind @ 0xdc..=0xdd => self.length(kind - ARRAY + 1),
            _ => None,
        }
    }

    pub(super) fn bytes(&mut self) -> Option<&'a [u8]> {
        match self.scalar()? {
            Scalar::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    pub(super) fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

/// Rows that are read: the scalars of all their tuples, one after the other.
#[derive(Default)]
pub struct Found<'a> {
    pub scalars: Vec<Scalar<'a>>,
    /// Of each flat tuple the number of its scalars.
    pub sizes: Vec<usize>,
}

impl<'a> Found<'a> {
    pub fn clear(&mut self) {
        self.scalars.clear();
        self.sizes.clear();
    }

    /// Adds a flat tuple, of which these are the bytes. `None`: Python must read it.
    pub fn add_flat(&mut self, data: &'a [u8]) -> Option<()> {
        let mut unread = Unread(data);
        let size = unread.array()?;
        for _ in 0..size {
            self.scalars.push(unread.scalar()?);
        }
        self.sizes.push(size);
        unread.end()
    }

    /// Adds a tuple of such parts, of which these are the bytes. `None`: Python must read it, as one with a bag.
    pub fn add_parts(&mut self, data: &'a [u8], forms: &[Form]) -> Option<()> {
        self.add_parts_with(data, forms, |_| None)
    }

    /// As `add_parts`; what `bag` returns for one stands in its place.
    pub fn add_parts_with(
        &mut self,
        data: &'a [u8],
        forms: &[Form],
        mut bag: impl FnMut(&'a [u8]) -> Option<Scalar<'a>>,
    ) -> Option<()> {
        let mut unread = Unread(data);
        if unread.array()? != forms.len() {
            return None;
        }
        for form in forms {
            let part = unread.bytes()?;
            match form {
                Form::Flat => self.add_flat(part)?,
                Form::Bag => self.scalars.push(bag(part)?),
                Form::Long => self.scalars.push(Scalar::Int(i64::from_be_bytes(part.try_into().ok()?))),
                Form::Number => {
                    let mut number = Unread(part);
                    let found = number.scalar()?;
                    number.end()?;
                    if !matches!(found, Scalar::Int(_) | Scalar::Above(_)) {
                        return None;
                    }
                    self.scalars.push(found);
                }
            }
        }
        unread.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(value: Scalar) -> Vec<u8> {
        let mut out = vec![];
        put(&mut out, value).unwrap();
        out
    }

    fn array_of(data: &[u8]) -> Vec<u8> {
        [&[0x91], data].concat()
    }

    #[test]
    fn whole_numbers_take_the_fewest_bytes() {
        for (number, data) in [
            (0, &[0][..]),
            (127, &[0x7f]),
            (128, &[0xcc, 0x80]),
            (255, &[0xcc, 0xff]),
            (256, &[0xcd, 1, 0]),
            (0xffff, &[0xcd, 0xff, 0xff]),
            (0x1_0000, &[0xce, 0, 1, 0, 0]),
            (0xffff_ffff, &[0xce, 0xff, 0xff, 0xff, 0xff]),
            (0x1_0000_0000, &[0xcf, 0, 0, 0, 1, 0, 0, 0, 0]),
            (i64::MAX, &[0xcf, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
            (-1, &[0xff]),
            (-32, &[0xe0]),
            (-33, &[0xd0, 0xdf]),
            (-128, &[0xd0, 0x80]),
            (-129, &[0xd1, 0xff, 0x7f]),
            (-0x8000, &[0xd1, 0x80, 0]),
            (-0x8001, &[0xd2, 0xff, 0xff, 0x7f, 0xff]),
            (-0x8000_0000, &[0xd2, 0x80, 0, 0, 0]),
            (-0x8000_0001, &[0xd3, 0xff, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff]),
            (i64::MIN, &[0xd3, 0x80, 0, 0, 0, 0, 0, 0, 0]),
        ] {
            assert_eq!(written(Scalar::Int(number)), data, "{number}");
        }
    }

    #[test]
    fn every_scalar_comes_back() {
        let (text, bytes) = ("é".repeat(40_000), vec![7; 70_000]);
        let mut scalars = vec![Scalar::Null, Scalar::Flag(true), Scalar::Flag(false), Scalar::Above(1 << 63)];
        scalars.extend([0, 127, 128, 255, 256, 65_535, 65_536, -32, -33, -129, i64::MIN, i64::MAX].map(Scalar::Int));
        scalars.extend([0.0, -0.0, 1.5, f64::INFINITY, f64::NEG_INFINITY].map(Scalar::Float));
        scalars.extend([0, 2, 30, 32, 254, 256, 65_534, 65_536].map(|length| Scalar::Text(&text[..length])));
        scalars.extend([0, 255, 256, 65_535, 65_536].map(|length| Scalar::Bytes(&bytes[..length])));
        for count in [0, 1, 15, 16, scalars.len()] {
            let mut out = vec![];
            put_array(&mut out, count).unwrap();
            for &scalar in &scalars[..count] {
                put(&mut out, scalar).unwrap();
            }
            let mut found = Found::default();
            found.add_flat(&out).unwrap();
            assert_eq!((&found.scalars[..], &found.sizes[..]), (&scalars[..count], &[count][..]));
            for end in (0..out.len()).filter(|end| end % 977 == 0 || out.len() - end < 3) {
                assert_eq!(Found::default().add_flat(&out[..end]), None);
            }
            out.push(0);
            assert_eq!(Found::default().add_flat(&out), None);
        }
        let nan = f64::from_bits(0x7ff8_0000_0000_0001);
        assert_eq!(written(Scalar::Float(nan)), [&[0xcb][..], &nan.to_be_bytes()].concat());
    }

    #[test]
    fn numbers_in_other_forms_are_read_too() {
        for (data, number) in [
            (&[0xcc, 1][..], 1),
            (&[0xcf, 0, 0, 0, 0, 0, 0, 0, 1], 1),
            (&[0xd0, 1], 1),
            (&[0xd1, 0xff, 0xff], -1),
            (&[0xd3, 0, 0, 0, 0, 0, 0, 0, 5], 5),
        ] {
            let (data, mut found) = (array_of(data), Found::default());
            found.add_flat(&data).unwrap();
            assert_eq!(found.scalars, [Scalar::Int(number)]);
        }
    }

    #[test]
    fn what_is_no_flat_tuple_is_left_to_python() {
        for data in [
            &[0xca, 0, 0, 0, 0][..],
            &[0xd4, 1, 0],
            &[0xc7, 1, 1, 0],
            &[0x90],
            &[0x80],
            &[0xc1],
            &[0xa1, 0xff],
            &[0xa3, 0xed, 0xa0, 0x80],
        ] {
            assert_eq!(Found::default().add_flat(&array_of(data)), None, "{data:?}");
        }
        for data in [&[][..], &[0], &[0xa1, b'a'], &[0x80], &[0xdd, 0xff, 0xff, 0xff, 0xff, 0]] {
            assert_eq!(Found::default().add_flat(data), None, "{data:?}");
        }
    }

    #[test]
    fn parts_are_bytes_of_their_own() {
        let long = "x".repeat(300);
        let mut out = vec![];
        put_array(&mut out, 3).unwrap();
        put_long(&mut out, -2);
        put_framed(&mut out, |inner| {
            put_array(inner, 2)?;
            put(inner, Scalar::Text(&long))?;
            put(inner, Scalar::Int(7))
        })
        .unwrap();
        put_framed(&mut out, |inner| put(inner, Scalar::Above(u64::MAX))).unwrap();
        assert_eq!(&out[11..15], [0xc5, 1, 0x31, 0x92]);
        let (mut found, forms) = (Found::default(), [Form::Long, Form::Flat, Form::Number]);
        found.add_parts(&out, &forms).unwrap();
        assert_eq!(found.sizes, [2]);
        let expected = [Scalar::Int(-2), Scalar::Text(&long), Scalar::Int(7), Scalar::Above(u64::MAX)];
        assert_eq!(found.scalars, expected);
        found.clear();
        assert!(found.scalars.is_empty() && found.sizes.is_empty());
        for other in [&forms[..2], &[Form::Flat, Form::Flat, Form::Number], &[Form::Long, Form::Number, Form::Number]] {
            assert_eq!(Found::default().add_parts(&out, other), None);
        }
        out.push(0);
        assert_eq!(Found::default().add_parts(&out, &forms), None);
        for part in [&[0xc4, 1, 0xc0][..], &[0xc4, 2, 0, 0], &[0xc4, 0], &[0], &[0xa1, b'a']] {
            assert_eq!(Found::default().add_parts(&array_of(part), &[Form::Number]), None, "{part:?}");
        }
        assert_eq!(Found::default().add_parts(&array_of(&[0xc4, 7, 0, 0, 0, 0, 0, 0, 0]), &[Form::Long]), None);
    }

    #[test]
    fn forms_have_letters() {
        let found: Vec<_> = b"qnfx".iter().map(|&letter| Form::of(letter)).collect();
        assert_eq!(found, [Some(Form::Long), Some(Form::Number), Some(Form::Flat), None]);
    }

    #[test]
    fn lengths_beyond_those_of_messagepack_are_refused() {
        assert_eq!((width(0xff), width(0x100), width(0xffff), width(0x1_0000)), (Some(0), Some(1), Some(1), Some(2)));
        assert_eq!((width(0xffff_ffff), width(0x1_0000_0000)), (Some(2), None));
        assert_eq!(put_array(&mut vec![], 0x1_0000_0000), None);
    }
}
