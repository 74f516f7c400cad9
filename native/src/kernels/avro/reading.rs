//! Columns of the needed fields of Avro records, each read by the schema that wrote it.

use std::collections::HashMap;

use crate::kernels::json::projector::{Needed, Output, SURE, UNSURE};
use crate::kernels::json::record::Found;
use crate::kernels::rows::Rows;
use crate::refused::Refused;

/// A schema registry's frame: a zero, the number of the schema (big-endian), and at least one byte.
const FRAME_BYTES: usize = 5;
/// The most schemas that one batch asks for.
const UNKNOWN_MAX: usize = 64;

/// How a value is encoded.
#[derive(Debug, PartialEq)]
pub enum Kind {
    Null,
    Bool,
    /// Of 32 bits.
    Int,
    Long,
    Float,
    Double,
    Bytes,
    /// Bytes that must be UTF-8.
    Text,
    /// The texts of an enum; `None` for one that the reader does not know.
    Symbols(Vec<Option<Box<[u8]>>>),
}

/// A field of the writer's schema.
pub struct Step {
    pub kind: Kind,
    /// Of a union with null: the branch that is null.
    pub null_branch: Option<i64>,
    /// Whether the reader takes a null.
    pub nullable: bool,
    /// The place of its column among the needed ones.
    pub needed: Option<usize>,
}

/// A value: in the record, or a symbol of a step.
#[derive(Clone, Copy)]
enum Value {
    Found(Found),
    Symbol(usize, usize),
}

/// Reads records of one type. What it keeps between batches (schemas, texts) only saves time.
pub struct AvroProjector<T> {
    framed: bool,
    /// By number; `None`: its records are all unsure.
    plans: HashMap<u32, Option<Vec<Step>>>,
    /// The values of a record without the fields.
    defaults: Vec<Value>,
    pub needed: Vec<Needed<T>>,
    /// Numbers of schemas in the last batch that nobody has added.
    pub unknown: Vec<u32>,
}

struct Cursor<'a> {
    data: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    #[inline(always)]
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(count)?;
        let found = self.data.get(self.at..end)?;
        self.at = end;
        Some(found)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    /// `None` also for more than 64 bits, which libraries read in different ways.
    #[inline(always)]
    fn long(&mut self) -> Option<i64> {
        let (mut zigzag, mut shift) = (0u64, 0);
        loop {
            let byte = *self.data.get(self.at)?;
            self.at += 1;
            if shift == 63 && byte > 1 {
                return None;
            }
            zigzag |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some((zigzag >> 1) as i64 ^ -((zigzag & 1) as i64));
            }
            shift += 7;
        }
    }

    /// Where the bytes behind a length begin and end.
    #[inline(always)]
    fn counted(&mut self) -> Option<(usize, usize)> {
        let count = usize::try_from(self.long()?).ok()?;
        self.bytes(count)?;
        Some((self.at - count, self.at))
    }
}

impl Step {
    /// The value at the cursor, whose places count from `base` on; `None`: it is not certain.
    #[inline(always)]
    fn read(&self, index: usize, cursor: &mut Cursor, base: usize) -> Option<Value> {
        let null = match self.null_branch {
            None => self.kind == Kind::Null,
            Some(branch) => match cursor.long()? {
                chosen @ (0 | 1) => chosen == branch,
                _ => return None,
            },
        };
        if null {
            return self.nullable.then_some(Value::Found(Found::Null));
        }
        Some(Value::Found(match &self.kind {
            Kind::Null => return None,
            Kind::Bool => match cursor.array()? {
                [0] => Found::Bool(false),
                [1] => Found::Bool(true),
                _ => return None,
            },
            Kind::Int => Found::Int(i32::try_from(cursor.long()?).ok()?.into()),
            Kind::Long => Found::Int(cursor.long()?),
            Kind::Float => Found::Float(f32::from_le_bytes(cursor.array()?).into()),
            Kind::Double => Found::Float(f64::from_le_bytes(cursor.array()?)),
            Kind::Bytes => {
                let (from, to) = cursor.counted()?;
                Found::Text(base + from, base + to)
            }
            Kind::Text => {
                let (from, to) = cursor.counted()?;
                std::str::from_utf8(&cursor.data[from..to]).ok()?;
                Found::Text(base + from, base + to)
            }
            Kind::Symbols(symbols) => {
                let symbol = usize::try_from(cursor.long()?).ok()?;
                symbols.get(symbol)?.as_ref()?;
                return Some(Value::Symbol(index, symbol));
            }
        }))
    }
}

impl<T> AvroProjector<T> {
    /// `fields`: where each needed field's values go, and the value of a record without it (of a text: `Absent`).
    pub fn new(fields: Vec<(Output<T>, Found)>, framed: bool) -> Self {
        let defaults = fields.iter().map(|(_, default)| Value::Found(*default)).collect();
        let needed = fields.into_iter().enumerate().map(|(index, (output, _))| Needed::new(index, output)).collect();
        AvroProjector { framed, plans: HashMap::new(), defaults, needed, unknown: vec![] }
    }

    /// `steps`: the fields of the schema with this number, in order. Refuses those that do not fit the needed fields.
    pub fn add(&mut self, number: u32, steps: Option<Vec<Step>>) -> Result<(), Refused> {
        for step in steps.iter().flatten() {
            let Some(index) = step.needed else { continue };
            let Some(needed) = self.needed.get(index) else {
                return Err(Refused::Index(format!("no needed field {index}")));
            };
            let fits = matches!(
                (&step.kind, &needed.output),
                (Kind::Null, _)
                    | (Kind::Bool, Output::Bool(_))
                    | (Kind::Int | Kind::Long, Output::Int(_) | Output::Float(_))
                    | (Kind::Float | Kind::Double, Output::Float(_))
                    | (Kind::Bytes | Kind::Text | Kind::Symbols(_), Output::Text { .. })
            );
            if !fits {
                return Err(Refused::Value(format!("needed field {index} does not hold {:?}", step.kind)));
            }
        }
        self.plans.insert(number, steps);
        Ok(())
    }

    /// The status of each row. A null row is sure, and its fields are null.
    pub fn read(&mut self, rows: &Rows) -> Vec<u8> {
        let count = rows.len();
        for needed in &mut self.needed {
            needed.begin_batch(count);
        }
        self.unknown.clear();
        let mut values = self.defaults.clone();
        let mut last: Option<(u32, &[Step])> = None;
        let mut status = vec![SURE; count];
        for (row, unsure) in status.iter_mut().enumerate() {
            if rows.is_null(row) {
                for needed in &mut self.needed {
                    needed.put(row, count, rows.data, Found::Null);
                }
                continue;
            }
            *unsure = UNSURE;
            let (mut start, end) = rows.span(row);
            let number = if self.framed {
                let [0, a, b, c, d, _, ..] = rows.data[start..end] else { continue };
                start += FRAME_BYTES;
                u32::from_be_bytes([a, b, c, d])
            } else {
                0
            };
            let steps = match last {
                Some((known, steps)) if known == number => steps,
                _ => match self.plans.get(&number) {
                    Some(Some(steps)) => steps,
                    Some(None) => continue,
                    None => {
                        if self.unknown.len() < UNKNOWN_MAX && !self.unknown.contains(&number) {
                            self.unknown.push(number);
                        }
                        continue;
                    }
                },
            };
            last = Some((number, steps));
            values.copy_from_slice(&self.defaults);
            if parse(steps, &rows.data[start..end], start, &mut values).is_none() {
                continue;
            }
            *unsure = SURE;
            for (needed, value) in self.needed.iter_mut().zip(&values) {
                put(needed, row, count, rows.data, steps, *value);
            }
        }
        status
    }
}

/// Reads a whole record, which has no bytes left then.
#[inline(always)]
fn parse(steps: &[Step], data: &[u8], base: usize, values: &mut [Value]) -> Option<()> {
    let mut cursor = Cursor { data, at: 0 };
    for (index, step) in steps.iter().enumerate() {
        let value = step.read(index, &mut cursor, base)?;
        if let Some(place) = step.needed {
            values[place] = value;
        }
    }
    (cursor.at == data.len()).then_some(())
}

#[inline(always)]
fn put<T>(needed: &mut Needed<T>, row: usize, count: usize, data: &[u8], steps: &[Step], value: Value) {
    match value {
        Value::Symbol(index, symbol) => {
            let Kind::Symbols(symbols) = &steps[index].kind else { return };
            let Some(Some(text)) = symbols.get(symbol) else { return };
            needed.put(row, count, text, Found::Text(0, text.len()));
        }
        // A number that is read as a float is the nearest one, as in Python.
        Value::Found(Found::Int(number)) if matches!(needed.output, Output::Float(_)) => {
            needed.put(row, count, data, Found::Float(number as f64));
        }
        Value::Found(found) => needed.put(row, count, data, found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::json::record::Kind as Holds;

    fn step(kind: Kind, null_branch: Option<i64>, needed: Option<usize>) -> Step {
        Step { kind, null_branch, nullable: null_branch.is_some(), needed }
    }

    fn output(kind: Holds, default: Option<&[u8]>) -> Output<String> {
        Output::of(kind, default.map(Into::into), 1 << 20)
    }

    /// A text, an integer and a float.
    fn projector(framed: bool) -> AvroProjector<String> {
        let text = (output(Holds::Str, Some(b"none")), Found::Absent);
        let int = (output(Holds::Int, None), Found::Int(-1));
        AvroProjector::new(vec![text, int, (output(Holds::Float, None), Found::Absent)], framed)
    }

    fn read(projector: &mut AvroProjector<String>, records: &[&[u8]]) -> Vec<u8> {
        let mut offsets = vec![0];
        for record in records {
            offsets.push(offsets[offsets.len() - 1] + record.len() as i64);
        }
        projector.read(&Rows::of(&records.concat(), &offsets, None).unwrap())
    }

    fn texts(projector: &mut AvroProjector<String>) -> Vec<Option<String>> {
        let Output::Text { interned, codes, .. } = &mut projector.needed[0].output else { panic!("not a text") };
        let make = |bytes: &[u8]| String::from_utf8(bytes.to_vec());
        let values: Vec<_> = interned.values(make).unwrap().map(|value| value.cloned()).collect();
        codes.iter().map(|&code| values[code as usize].clone()).collect()
    }

    #[test]
    fn each_schema_has_its_own_order_and_what_it_lacks_has_a_default() {
        let mut projector = projector(true);
        let symbols = Kind::Symbols(vec![Some((*b"RED").into()), None]);
        projector.add(1, Some(vec![step(Kind::Text, None, Some(0)), step(Kind::Int, Some(0), Some(1))])).unwrap();
        let other = vec![step(Kind::Long, None, Some(2)), step(Kind::Bytes, None, None), step(symbols, None, Some(0))];
        projector.add(258, Some(other)).unwrap();
        projector.add(3, None).unwrap();
        let records: [&[u8]; 7] = [
            b"\0\0\0\0\x01\x02a\x02\x03",
            b"\0\0\0\x01\x02\x08\x04\xff\xff\x00",
            b"\0\0\0\0\x01\x00\x00",
            b"\0\0\0\x01\x02\x08\x00\x02",
            b"\0\0\0\0\x03\x00",
            b"\0\0\0\0\x04\x00",
            b"\x01\0\0\0\x01\x00\x00",
        ];
        assert_eq!(read(&mut projector, &records), [0, 0, 0, 1, 1, 1, 1]);
        assert_eq!(projector.unknown, [4]);
        let some = |text: &str| Some(text.to_string());
        assert_eq!(texts(&mut projector)[..3], [some("a"), some("RED"), some("")]);
        assert!(matches!(&projector.needed[1].output, Output::Int(numbers) if numbers[..3] == [-2, -1, 0]));
        assert_eq!(projector.needed[1].nulls[..3], [0, 0, 1]);
        assert!(matches!(&projector.needed[2].output, Output::Float(numbers) if numbers[..3] == [0.0, 4.0, 0.0]));
        assert_eq!(projector.needed[2].nulls[..3], [1, 0, 1]);
    }

    #[test]
    fn what_is_not_certain_is_left_to_the_decoder() {
        let one = |kind, null_branch, record: &[u8]| {
            let mut projector = projector(false);
            projector.add(0, Some(vec![step(kind, null_branch, None)])).unwrap();
            read(&mut projector, &[record])[0]
        };
        type Case<'a> = (fn() -> Kind, Option<i64>, Vec<&'a [u8]>, Vec<&'a [u8]>);
        let cases: [Case; 9] = [
            (|| Kind::Bool, None, vec![&b"\x00"[..], b"\x01"], vec![&b""[..], b"\x02", b"\x01\x01"]),
            (|| Kind::Int, None, vec![b"\xff\xff\xff\xff\x0f", b"\x80\x00"], vec![b"\x80\x80\x80\x80\x10", b"\x80"]),
            (
                || Kind::Long,
                None,
                vec![b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"],
                vec![b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x03", b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x00"],
            ),
            (|| Kind::Float, None, vec![b"\x00\x00\xc0\x7f"], vec![b"\x00\x00\xc0"]),
            (|| Kind::Double, None, vec![b"\x00\x00\x00\x00\x00\x00\xf8\x7f"], vec![b"\x00\x00\xc0\x7f"]),
            (
                || Kind::Bytes,
                None,
                vec![b"\x00", b"\x02\xff"],
                vec![b"\x04a", b"\x01", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"],
            ),
            (|| Kind::Text, None, vec![b"\x04\xc3\xa9"], vec![b"\x02\xff", b"\x04a"]),
            (|| Kind::Null, None, vec![], vec![b""]),
            (|| Kind::Long, Some(1), vec![b"\x02", b"\x00\x07"], vec![b"\x04\x00", b"\x01\x00", b"\x00", b""]),
        ];
        for (kind, null_branch, sure, unsure) in cases {
            for record in sure {
                assert_eq!(one(kind(), null_branch, record), SURE, "{:?} {record:?}", kind());
            }
            for record in unsure {
                assert_eq!(one(kind(), null_branch, record), UNSURE, "{:?} {record:?}", kind());
            }
        }
    }

    #[test]
    fn steps_that_do_not_fit_are_refused() {
        let mut projector = projector(false);
        assert!(projector.add(0, Some(vec![step(Kind::Text, None, Some(3))])).is_err());
        for (kind, needed) in [(Kind::Long, 0), (Kind::Text, 1), (Kind::Double, 1), (Kind::Bool, 2)] {
            assert!(projector.add(0, Some(vec![step(kind, None, Some(needed))])).is_err());
        }
        assert_eq!(read(&mut projector, &[b""]), [UNSURE]);
        assert_eq!(projector.unknown, [0]);
    }
}
