//! Columns of byte strings: checked once, read by row, and taken at places.

use crate::refused::{Refused, room_for};

/// A column of byte strings in borrowed buffers.
pub struct Rows<'a> {
    pub data: &'a [u8],
    offsets: &'a [i64],
    nulls: Option<&'a [u8]>,
}

impl<'a> Rows<'a> {
    /// Refuses offsets that do not ascend within the data, so that no later step has to check.
    pub fn of(data: &'a [u8], offsets: &'a [i64], nulls: Option<&'a [u8]>) -> Result<Self, Refused> {
        let rows = Rows { data, offsets, nulls };
        let rising = rows.offsets.windows(2).fold(true, |so_far, pair| so_far & (pair[0] <= pair[1]));
        let within = match (rows.offsets.first(), rows.offsets.last()) {
            (Some(&first), Some(&last)) => first >= 0 && last <= rows.data.len() as i64,
            _ => false,
        };
        if !(rising && within) {
            return Err(Refused::Value("the offsets do not rise from 0 on within the data".into()));
        }
        if rows.nulls.is_some_and(|nulls| nulls.len() != rows.len()) {
            return Err(Refused::Value("there is not one null flag per row".into()));
        }
        Ok(rows)
    }

    pub fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    /// How many bytes lie between the first row's begin and the last one's end: a slice has less of them than its data.
    pub fn extent(&self) -> usize {
        let (first, last) = (self.offsets[0], self.offsets[self.len()]);
        (last - first) as usize
    }

    /// How many bytes the longest row has.
    pub fn longest(&self) -> usize {
        self.offsets.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0) as usize
    }

    #[inline(always)]
    pub fn is_null(&self, row: usize) -> bool {
        self.nulls.is_some_and(|nulls| nulls[row] != 0)
    }

    /// Where the row's bytes begin and end; the offsets have been checked.
    #[inline(always)]
    pub fn span(&self, row: usize) -> (usize, usize) {
        (self.offsets[row] as usize, self.offsets[row + 1] as usize)
    }

    /// A null has none.
    #[inline(always)]
    pub fn bytes(&self, row: usize) -> &'a [u8] {
        let (start, end) = self.span(row);
        &self.data[start..end]
    }

    /// `None` for a null.
    #[inline(always)]
    pub fn get(&self, row: usize) -> Option<&'a [u8]> {
        if self.is_null(row) { None } else { Some(self.bytes(row)) }
    }
}

/// Rows that were copied out of others.
#[derive(Debug, PartialEq)]
pub struct Taken {
    pub data: Vec<u8>,
    /// Where each row ends, from a 0 on.
    pub ends: Vec<i64>,
    /// 1 for each row that is null.
    pub nulls: Vec<u8>,
}

impl Taken {
    /// Without rows yet, with room for these numbers of rows and bytes.
    pub fn with_room(rows: usize, bytes: usize) -> Result<Self, Refused> {
        let mut ends = Vec::with_capacity(rows + 1);
        ends.push(0);
        Ok(Taken { data: room_for(bytes)?, ends, nulls: Vec::with_capacity(rows) })
    }

    /// Adds a row of these parts, one after the other; `None`: a null.
    #[inline(always)]
    pub fn push(&mut self, parts: Option<[&[u8]; 2]>) {
        for part in parts.iter().flatten() {
            self.data.extend_from_slice(part);
        }
        self.nulls.push(parts.is_none().into());
        self.ends.push(self.data.len() as i64);
    }
}

/// The rows at these places. Refuses a place that does not exist.
///
/// One row may be long and taken often, so the result may be too large although the column is not.
pub fn take(rows: &Rows, places: &[i64]) -> Result<Taken, Refused> {
    let count = rows.len();
    if let Some(outside) = places.iter().find(|&&place| place < 0 || place >= count as i64) {
        return Err(Refused::Index(format!("place {outside} of a column of {count} rows")));
    }
    let spans = || places.iter().map(|&place| rows.span(place as usize));
    let mut data = room_for(spans().fold(0, |sum: usize, (start, end)| sum.saturating_add(end - start)))?;
    let mut ends = Vec::with_capacity(places.len() + 1);
    ends.push(0);
    for (start, end) in spans() {
        data.extend_from_slice(&rows.data[start..end]);
        ends.push(data.len() as i64);
    }
    Ok(Taken { data, ends, nulls: places.iter().map(|&place| rows.is_null(place as usize).into()).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_by_place() {
        let rows = Rows::of(b"-abcd", &[1, 3, 3, 5], Some(&[0, 1, 0])).unwrap();
        assert_eq!((0..rows.len()).map(|row| rows.get(row)).collect::<Vec<_>>(), [Some(&b"ab"[..]), None, Some(b"cd")]);
        assert_eq!((rows.len(), rows.extent(), rows.longest(), rows.span(2)), (3, 4, 2, (3, 5)));
        assert_eq!(rows.bytes(1), b"");
        let none = Rows::of(b"", &[0], None).unwrap();
        assert_eq!((none.len(), none.extent(), none.longest()), (0, 0, 0));
    }

    #[test]
    fn columns_that_do_not_fit_are_refused() {
        for offsets in [&[][..], &[0, 2, 1], &[-1, 2], &[0, 4]] {
            assert!(matches!(Rows::of(b"abc", offsets, None), Err(Refused::Value(why)) if why.contains("offsets")));
        }
        assert!(matches!(Rows::of(b"abc", &[0, 3], Some(&[0, 0])), Err(Refused::Value(why)) if why.contains("null")));
    }

    #[test]
    fn rows_are_taken_in_any_order_and_more_than_once() {
        let rows = Rows::of(b"abbccc", &[0, 1, 3, 3, 6], Some(&[0, 0, 1, 0])).unwrap();
        let taken = take(&rows, &[3, 2, 0, 3]).unwrap();
        let expected = Taken { data: b"cccaccc".to_vec(), ends: vec![0, 3, 3, 4, 7], nulls: vec![0, 1, 0, 0] };
        assert_eq!(taken, expected);
        assert_eq!(take(&rows, &[]).unwrap().ends, [0]);
        for outside in [-1, 4] {
            let why = format!("place {outside} of a column of 4 rows");
            assert_eq!(take(&rows, &[0, outside]), Err(Refused::Index(why)));
        }
    }
}
