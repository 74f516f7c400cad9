//! Writes Avro records from columns, one step of the schema after the other.

use super::reading::Kind;
use crate::kernels::rows::Rows;
use crate::refused::{Refused, no_room, room_for};

/// Bytes of the longest integer.
const LONG_BYTES_MAX: usize = 10;
/// A branch of a union, and a number.
const PLAIN_BYTES_MAX: usize = 1 + LONG_BYTES_MAX;

/// A column of values, with 1 in `nulls` for each that is null.
pub enum Part<'a> {
    Ints(&'a [i64], Option<&'a [u8]>),
    Floats(&'a [f64], Option<&'a [u8]>),
    Bools(&'a [u8], Option<&'a [u8]>),
    /// Codes of distinct texts or bytes; those that no code uses may be `None`, as null is.
    Coded(&'a [i32], Vec<Option<&'a [u8]>>),
    Raw(Rows<'a>),
}

/// A field of the schema: how its values are encoded, and which branch of its union is null.
pub struct Field {
    pub kind: Kind,
    pub null_branch: Option<u8>,
}

/// Distinct values as they are encoded: one after the other, and where each begins and ends.
#[derive(Default)]
struct Encoded {
    data: Vec<u8>,
    spans: Vec<Option<(usize, usize)>>,
}

impl Part<'_> {
    fn len(&self) -> usize {
        match self {
            Part::Ints(numbers, _) => numbers.len(),
            Part::Floats(numbers, _) => numbers.len(),
            Part::Bools(flags, _) => flags.len(),
            Part::Coded(codes, _) => codes.len(),
            Part::Raw(rows) => rows.len(),
        }
    }

    fn fits(&self, count: usize) -> bool {
        let nulls = match self {
            Part::Ints(_, nulls) | Part::Floats(_, nulls) | Part::Bools(_, nulls) => *nulls,
            Part::Coded(codes, values) => return codes.len() == count && in_range(codes, values.len()),
            Part::Raw(_) => None,
        };
        self.len() == count && nulls.is_none_or(|nulls| nulls.len() == count)
    }

    /// How many bytes one value takes at most.
    fn one_max(&self, encoded: &Encoded) -> usize {
        match self {
            Part::Raw(rows) => PLAIN_BYTES_MAX + rows.longest(),
            Part::Coded(..) => encoded.spans.iter().flatten().map(|(from, to)| to - from).max().unwrap_or(0),
            _ => PLAIN_BYTES_MAX,
        }
    }
}

fn in_range(codes: &[i32], count: usize) -> bool {
    codes.iter().all(|&code| usize::try_from(code).is_ok_and(|code| code < count))
}

fn write_long(number: i64, out: &mut Vec<u8>) {
    let mut rest = ((number << 1) ^ (number >> 63)) as u64;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

fn is_null(nulls: &Option<&[u8]>, row: usize) -> bool {
    nulls.is_some_and(|nulls| nulls[row] != 0)
}

impl Field {
    /// Writes which branch of a union follows. `None`: a null where none may be.
    #[inline(always)]
    fn branch(&self, null: bool, out: &mut Vec<u8>) -> Option<()> {
        match self.null_branch {
            Some(branch) => out.push(2 * if null { branch } else { 1 - branch }),
            None if null => return None,
            None => {}
        }
        Some(())
    }

    /// Writes a text, bytes or a symbol. `None`: a field of this kind does not hold it.
    fn bytes(&self, value: Option<&[u8]>, out: &mut Vec<u8>) -> Option<()> {
        self.branch(value.is_none(), out)?;
        let Some(value) = value else { return Some(()) };
        match &self.kind {
            Kind::Bytes | Kind::Text => {
                write_long(value.len() as i64, out);
                out.extend_from_slice(value);
            }
            Kind::Symbols(symbols) => {
                let place = symbols.iter().position(|symbol| symbol.as_deref() == Some(value))?;
                write_long(place as i64, out);
            }
            _ => return None,
        }
        Some(())
    }

    /// Each distinct value. Those that cannot be written are left out: perhaps no row has them.
    fn encoded(&self, part: &Part) -> Encoded {
        let mut encoded = Encoded::default();
        let Part::Coded(_, values) = part else { return encoded };
        for value in values {
            let from = encoded.data.len();
            let written = self.bytes(*value, &mut encoded.data).is_some();
            encoded.spans.push(written.then_some((from, encoded.data.len())));
        }
        encoded
    }

    /// Writes a row's value. `None`: the field does not hold it, or it is not certain how it is written.
    #[inline(always)]
    fn write(&self, part: &Part, encoded: &Encoded, row: usize, out: &mut Vec<u8>) -> Option<()> {
        match part {
            Part::Coded(codes, _) => {
                let (from, to) = encoded.spans[codes[row] as usize]?;
                out.extend_from_slice(&encoded.data[from..to]);
            }
            Part::Raw(rows) => self.bytes(rows.get(row), out)?,
            Part::Ints(_, nulls) | Part::Floats(_, nulls) | Part::Bools(_, nulls) if is_null(nulls, row) => {
                self.branch(true, out)?;
            }
            Part::Ints(numbers, _) => {
                self.branch(false, out)?;
                match self.kind {
                    Kind::Long => {}
                    Kind::Int if i32::try_from(numbers[row]).is_ok() => {}
                    _ => return None,
                }
                write_long(numbers[row], out);
            }
            Part::Floats(numbers, _) => {
                self.branch(false, out)?;
                match self.kind {
                    Kind::Double => out.extend_from_slice(&numbers[row].to_le_bytes()),
                    // Which bits of a nan are left depends on the machine.
                    Kind::Float if !numbers[row].is_nan() => {
                        out.extend_from_slice(&(numbers[row] as f32).to_le_bytes());
                    }
                    _ => return None,
                }
            }
            Part::Bools(flags, _) => {
                self.branch(false, out)?;
                if self.kind != Kind::Bool {
                    return None;
                }
                out.push(u8::from(flags[row] != 0));
            }
        }
        Some(())
    }
}

/// The records and where each ends, from a 0 on.
pub type Written = (Vec<u8>, Vec<i64>);

/// `prefix` and the value of each field, for each of `count` rows; nothing for a row that is null. `None`: a value that its
/// field does not hold, or of which it is not certain how it is written.
pub fn write(
    prefix: &[u8],
    fields: &[Field],
    parts: &[Part],
    nulls: Option<&[u8]>,
    count: usize,
) -> Result<Option<Written>, Refused> {
    let fit = nulls.is_none_or(|nulls| nulls.len() == count) && parts.iter().all(|part| part.fits(count));
    if fields.len() != parts.len() || !fit {
        return Err(Refused::Value("the columns do not fit the fields, their codes or one another".into()));
    }
    let columns: Vec<_> = fields.iter().zip(parts).map(|(field, part)| (field, part, field.encoded(part))).collect();
    let longest =
        columns.iter().fold(prefix.len(), |sum, (_, part, encoded)| sum.saturating_add(part.one_max(encoded)));
    let mut data: Vec<u8> = vec![];
    let mut ends = room_for(count.saturating_add(1))?;
    ends.push(0);
    for row in 0..count {
        if !is_null(&nulls, row) {
            data.try_reserve(longest).map_err(no_room)?;
            data.extend_from_slice(prefix);
            for (field, part, encoded) in &columns {
                if field.write(part, encoded, row, &mut data).is_none() {
                    return Ok(None);
                }
            }
        }
        ends.push(data.len() as i64);
    }
    Ok(Some((data, ends)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(kind: Kind, null_branch: Option<u8>) -> Field {
        Field { kind, null_branch }
    }

    fn one(kind: Kind, null_branch: Option<u8>, part: Part) -> Option<Vec<u8>> {
        write(b"", &[field(kind, null_branch)], &[part], None, 1).unwrap().map(|(data, _)| data)
    }

    #[test]
    fn columns_become_records() {
        let colours = || Kind::Symbols(vec![Some((*b"RED").into()), Some((*b"BLUE").into())]);
        let fields = [
            field(Kind::Text, None),
            field(Kind::Long, Some(0)),
            field(colours(), Some(1)),
            field(Kind::Double, None),
            field(Kind::Bytes, Some(0)),
            field(Kind::Bool, None),
        ];
        let parts = [
            Part::Coded(&[1, 0, 1], vec![Some(b"a"), Some(b"bc")]),
            Part::Ints(&[-1, 0, 64], Some(&[0, 1, 0])),
            Part::Coded(&[0, 1, 0], vec![Some(b"BLUE"), None, Some(b"none")]),
            Part::Floats(&[1.0, 0.0, 1.0], None),
            Part::Raw(Rows::of(b"xy", &[0, 0, 2, 2], Some(&[0, 0, 1])).unwrap()),
            Part::Bools(&[1, 0, 1], None),
        ];
        let (data, ends) = write(b"\0!", &fields, &parts, Some(&[0, 0, 1]), 3).unwrap().unwrap();
        let rows: Vec<_> = ends.windows(2).map(|pair| &data[pair[0] as usize..pair[1] as usize]).collect();
        let first: &[u8] = b"\0!\x04bc\x02\x01\x00\x02\0\0\0\0\0\0\xf0\x3f\x02\x00\x01";
        assert_eq!(rows, [first, b"\0!\x02a\x00\x02\0\0\0\0\0\0\0\0\x02\x04xy\x00", b""]);
    }

    #[test]
    fn integers_are_as_short_as_they_can_be() {
        for (number, bytes) in [
            (0, &b"\x00"[..]),
            (-64, b"\x7f"),
            (64, b"\x80\x01"),
            (i64::MAX, b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
            (i64::MIN, b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
        ] {
            assert_eq!(one(Kind::Long, None, Part::Ints(&[number], None)).as_deref(), Some(bytes));
        }
        assert!(one(Kind::Int, None, Part::Ints(&[i64::from(i32::MIN)], None)).is_some());
    }

    #[test]
    fn what_a_field_does_not_hold_is_left_to_the_serde() {
        assert_eq!(one(Kind::Int, None, Part::Ints(&[1 << 31], None)), None);
        assert_eq!(one(Kind::Long, None, Part::Ints(&[0], Some(&[1]))), None);
        assert_eq!(one(Kind::Float, None, Part::Floats(&[f64::NAN], None)), None);
        assert_eq!(one(Kind::Double, None, Part::Ints(&[1], None)), None);
        assert_eq!(one(Kind::Text, None, Part::Bools(&[1], None)), None);
        assert_eq!(one(Kind::Long, None, Part::Coded(&[0], vec![Some(b"1")])), None);
        assert_eq!(one(Kind::Symbols(vec![]), None, Part::Coded(&[0], vec![Some(b"A")])), None);
        assert_eq!(one(Kind::Text, None, Part::Coded(&[0], vec![None])), None);
        assert!(one(Kind::Float, None, Part::Floats(&[1e300], None)).is_some());
    }

    #[test]
    fn columns_that_do_not_fit_are_refused() {
        let long = || [field(Kind::Long, None)];
        for part in [Part::Ints(&[1], None), Part::Ints(&[1, 2], Some(&[0])), Part::Coded(&[0, 1], vec![None])] {
            assert!(write(b"", &long(), &[part], None, 2).is_err());
        }
        assert!(write(b"", &long(), &[Part::Coded(&[-1], vec![None])], None, 1).is_err());
        assert!(write(b"", &long(), &[], None, 0).is_err());
        assert!(write(b"", &long(), &[Part::Ints(&[1], None)], Some(&[]), 1).is_err());
    }
}
