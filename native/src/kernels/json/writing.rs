//! Writes JSON objects from columns: every row has the same text around the texts of its values.

use super::scan::special;
use crate::kernels::rows::Rows;
use crate::refused::{Refused, no_room, room_for};

const NULL: &[u8] = b"null";
/// Digits of the longest int64, its sign included.
const INT_BYTES_MAX: usize = 20;
/// The most decimal places that are written: with more, small numbers have an exponent.
pub const PLACES_MAX: u32 = 6;
/// The most that is reserved ahead.
const AHEAD_BYTES_MAX: usize = 16 << 20;

/// A column of values.
pub enum Part<'a> {
    /// Numbers and nulls.
    Ints(&'a [i64], Option<&'a [u8]>),
    /// Decimals: numbers without their point, nulls, how many places are behind the point, and whether they are quoted.
    Decimals(&'a [i64], Option<&'a [u8]>, u32, bool),
    /// Codes, the texts that they stand for or that there is none, and whether texts must be quoted.
    Coded(&'a [i32], Vec<Option<&'a [u8]>>, bool),
    /// Texts that need no more than quotes.
    Texts(Rows<'a>),
    /// JSON.
    Raw(Rows<'a>),
}

/// Whether a text, which is UTF-8, needs no more than quotes.
pub fn is_plain(text: &[u8]) -> bool {
    special::<false>(text, 0) == text.len()
}

/// Whether none of the texts, which are UTF-8, needs more than quotes.
pub fn all_plain(rows: &Rows) -> bool {
    (0..rows.len()).all(|row| rows.get(row).is_none_or(is_plain))
}

impl Part<'_> {
    /// How many values it has; `None` where there are not as many null flags.
    fn len(&self) -> Option<usize> {
        match self {
            Part::Ints(numbers, nulls) | Part::Decimals(numbers, nulls, _, _) => {
                nulls.is_none_or(|n| n.len() == numbers.len()).then_some(numbers.len())
            }
            Part::Coded(codes, _, _) => Some(codes.len()),
            Part::Texts(rows) | Part::Raw(rows) => Some(rows.len()),
        }
    }

    /// How many bytes a value takes at most.
    fn one_max(&self) -> usize {
        match self {
            Part::Ints(..) => INT_BYTES_MAX,
            // the sign, a 0 and the point before the places, and quotes
            Part::Decimals(..) => INT_BYTES_MAX + 4,
            Part::Coded(_, texts, _) => texts.iter().flatten().map(|text| text.len()).max().unwrap_or(0).max(2) + 2,
            Part::Texts(rows) | Part::Raw(rows) => rows.longest().max(NULL.len()) + 2,
        }
    }

    /// How many bytes all values take at most.
    fn all_max(&self, count: usize) -> usize {
        match self {
            Part::Texts(rows) | Part::Raw(rows) => count.saturating_mul(NULL.len()).saturating_add(rows.extent()),
            _ => count.saturating_mul(self.one_max()),
        }
    }

    #[inline(always)]
    fn write(&self, row: usize, out: &mut Vec<u8>) {
        match self {
            Part::Ints(_, Some(nulls)) if nulls[row] != 0 => out.extend_from_slice(NULL),
            Part::Ints(numbers, _) => write_int(numbers[row], out),
            Part::Decimals(_, Some(nulls), _, _) if nulls[row] != 0 => out.extend_from_slice(NULL),
            Part::Decimals(numbers, _, places, quoted) => {
                if *quoted {
                    out.push(b'"');
                }
                write_decimal(numbers[row], *places, out);
                if *quoted {
                    out.push(b'"');
                }
            }
            Part::Coded(codes, texts, quoted) => match texts[codes[row] as usize] {
                Some(text) if *quoted => {
                    out.push(b'"');
                    out.extend_from_slice(text);
                    out.push(b'"');
                }
                text => out.extend_from_slice(text.unwrap_or(NULL)),
            },
            Part::Texts(rows) => match rows.get(row) {
                Some(text) => {
                    out.push(b'"');
                    out.extend_from_slice(text);
                    out.push(b'"');
                }
                None => out.extend_from_slice(NULL),
            },
            Part::Raw(rows) => out.extend_from_slice(rows.get(row).unwrap_or(NULL)),
        }
    }
}

#[inline(always)]
fn write_int(number: i64, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// The number with a point before its last `places` digits, at most `PLACES_MAX` of them.
#[inline(always)]
fn write_decimal(number: i64, places: u32, out: &mut Vec<u8>) {
    if places == 0 {
        return write_int(number, out);
    }
    if number < 0 {
        out.push(b'-');
    }
    let one = 10u64.pow(places);
    let (whole, mut behind) = (number.unsigned_abs() / one, number.unsigned_abs() % one);
    out.extend_from_slice(itoa::Buffer::new().format(whole).as_bytes());
    let mut digits = [b'.'; PLACES_MAX as usize + 1];
    for digit in digits[1..=places as usize].iter_mut().rev() {
        *digit = b'0' + (behind % 10) as u8;
        behind /= 10;
    }
    out.extend_from_slice(&digits[..=places as usize]);
}

/// `befores[i]` and the value of `parts[i]`, for each of them, and a closing brace, for each of `count` rows: the data and
/// where each row ends, from a 0 on.
///
/// One text may be long and used by every row, so that all rows together have no room although their columns do.
pub fn write(befores: &[Vec<u8>], parts: &[Part], count: usize) -> Result<(Vec<u8>, Vec<i64>), Refused> {
    if let Some(part) = parts.iter().find(|part| part.len() != Some(count)) {
        return Err(Refused::Value(match part.len() {
            Some(other) => format!("a column has {other} values, not {count}"),
            None => "a column has not one null flag per value".into(),
        }));
    }
    if parts.len() != befores.len() {
        return Err(Refused::Value("there are not as many columns as names".into()));
    }
    let mut data: Vec<u8> = vec![];
    let mut ends = room_for(count.saturating_add(1))?;
    ends.push(0);
    let around = befores.iter().map(Vec::len).sum::<usize>() + 1;
    let most = parts.iter().fold(around.saturating_mul(count), |sum, part| sum.saturating_add(part.all_max(count)));
    let roomy = data.try_reserve(most.min(AHEAD_BYTES_MAX)).is_ok() && most <= AHEAD_BYTES_MAX;
    let longest = if roomy { 0 } else { around + parts.iter().map(Part::one_max).sum::<usize>() };
    for row in 0..count {
        if data.capacity() - data.len() < longest {
            data.try_reserve(longest).map_err(no_room)?;
        }
        for (before, part) in befores.iter().zip(parts) {
            data.extend_from_slice(before);
            part.write(row, &mut data);
        }
        data.push(b'}');
        ends.push(data.len() as i64);
    }
    Ok((data, ends))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn befores(names: &[&str]) -> Vec<Vec<u8>> {
        names.iter().map(|name| name.as_bytes().to_vec()).collect()
    }

    #[test]
    fn columns_become_objects() {
        let raw = Rows::of(b"[1]{}", &[0, 3, 3, 5], Some(&[0, 1, 0])).unwrap();
        let texts = Rows::of("aé".as_bytes(), &[0, 1, 1, 3], Some(&[0, 1, 0])).unwrap();
        assert!(all_plain(&texts));
        let parts = [
            Part::Texts(texts),
            Part::Ints(&[i64::MIN, 0, i64::MAX], Some(&[0, 1, 0])),
            Part::Coded(&[1, 0, 2], vec![Some(b"a"), Some("long é".as_bytes()), None], true),
            Part::Coded(&[0, 0, 1], vec![Some(b"null"), Some(b"2.5")], false),
            Part::Raw(raw),
        ];
        let (data, ends) =
            write(&befores(&["{\"s\":", ",\"i\":", ",\"t\":", ",\"j\":", ",\"r\":"]), &parts, 3).unwrap();
        let row = |i: usize| std::str::from_utf8(&data[ends[i] as usize..ends[i + 1] as usize]).unwrap();
        assert_eq!(row(0), r#"{"s":"a","i":-9223372036854775808,"t":"long é","j":null,"r":[1]}"#);
        assert_eq!(row(1), r#"{"s":null,"i":null,"t":"a","j":null,"r":null}"#);
        assert_eq!(row(2), r#"{"s":"é","i":9223372036854775807,"t":null,"j":2.5,"r":{}}"#);
        assert_eq!(ends.len(), 4);
    }

    #[test]
    fn more_than_is_reserved_ahead_is_written_too() {
        let long = vec![b'x'; AHEAD_BYTES_MAX / 4];
        let (data, ends) = write(&befores(&["{"]), &[Part::Coded(&[0; 6], vec![Some(&long)], true)], 6).unwrap();
        assert_eq!((data.len(), ends[6] as usize), (6 * (long.len() + 4), 6 * (long.len() + 4)));
    }

    #[test]
    fn integers_are_written_as_rust_writes_them() {
        for number in [0, 7, -7, 10, 99, -100, 1_234_567_890, i64::MIN, i64::MAX] {
            let mut out = vec![];
            write_int(number, &mut out);
            assert_eq!(out, number.to_string().into_bytes());
        }
    }

    #[test]
    fn decimals_have_all_their_places() {
        let parts = [
            Part::Decimals(&[0, -5, 12_340, i64::MIN], Some(&[0, 0, 0, 0]), 3, true),
            Part::Decimals(&[7, 0, -1_000_000, i64::MAX], Some(&[0, 1, 0, 0]), 6, false),
            Part::Decimals(&[1, -2, 0, 4], None, 0, true),
        ];
        let (data, ends) = write(&befores(&["[", ",", ","]), &parts, 4).unwrap();
        let row = |i: usize| std::str::from_utf8(&data[ends[i] as usize..ends[i + 1] as usize]).unwrap();
        assert_eq!(row(0), r#"["0.000",0.000007,"1"}"#);
        assert_eq!(row(1), r#"["-0.005",null,"-2"}"#);
        assert_eq!(row(2), r#"["12.340",-1.000000,"0"}"#);
        assert_eq!(row(3), r#"["-9223372036854775.808",9223372036854.775807,"4"}"#);
    }

    #[test]
    fn texts_that_need_more_than_quotes_are_known() {
        for text in ["", "a longer text of more than sixteen bytes ~", "é \u{7f} \u{2028} \u{1f600}"] {
            assert!(is_plain(text.as_bytes()));
        }
        for text in [&b"\""[..], b"\\", b"\n", b"0123456789abcdef\x1f"] {
            assert!(!is_plain(text));
            assert!(!all_plain(&Rows::of(text, &[0, 0, text.len() as i64], None).unwrap()));
        }
    }

    #[test]
    fn columns_that_do_not_fit_are_refused() {
        let name = befores(&["{\"a\":"]);
        for part in [Part::Ints(&[1], None), Part::Ints(&[1, 2], Some(&[0])), Part::Coded(&[0], vec![Some(b"a")], true)]
        {
            assert!(write(&name, &[part], 2).is_err());
        }
        assert!(write(&name, &[], 0).is_err());
        assert_eq!(write(&[], &[], 2), Ok((b"}}".to_vec(), vec![0, 1, 2])));
    }
}
