//! Columns of the needed fields of JSON records.

use super::record::{FIELDS_MAX, Field, Found, Kind, RecordParser};
use crate::kernels::interner::Interned;
use crate::kernels::rows::Rows;
use crate::refused::Refused;

/// A needed field's values, row by row; rows that are unsure hold zeros.
pub enum Output<T> {
    Text {
        interned: Interned<T>,
        codes: Vec<i32>,
        default: Option<Box<[u8]>>,
        places: Places,
    },
    Int(Vec<i64>),
    Float(Vec<f64>),
    Bool(Vec<u8>),
    /// Objects: where each begins and ends in the buffer, two numbers a row, which never fall, and their needed fields.
    Object {
        ends: Vec<i64>,
        fields: Vec<Needed<T>>,
    },
}

/// How many batches of texts that hardly repeat are left where they stand before one is coded again, to see whether they do.
const BATCHES_IN_PLACE: u32 = 16;
/// A smaller batch says little about the next ones.
const ROWS_TOLD_BY: usize = 64;

/// Texts that are left where they stand in the buffer, as it does not pay to code what hardly repeats.
#[derive(Default)]
pub struct Places {
    allowed: bool,
    /// Whether this batch's are.
    used: bool,
    left: u32,
    /// Where each begins and ends, two numbers a row, which never fall.
    pub ends: Vec<i64>,
}

impl Places {
    /// `distinct`: of the `rows` of the batch before, if that was coded.
    fn choose(&mut self, distinct: usize, rows: usize) {
        if self.allowed && !self.used && rows >= ROWS_TOLD_BY && 2 * distinct > rows {
            self.left = BATCHES_IN_PLACE;
        }
        self.used = self.left > 0;
        self.left = self.left.saturating_sub(1);
    }
}

pub struct Needed<T> {
    field: usize,
    pub output: Output<T>,
    /// Of numbers, objects and texts in place: 1 where there is none. Empty while none is missing.
    pub nulls: Vec<u8>,
}

impl<T> Needed<T> {
    pub fn new(field: usize, output: Output<T>) -> Self {
        Needed { field, output, nulls: vec![] }
    }

    pub fn begin_batch(&mut self, rows: usize) {
        self.nulls.clear();
        match &mut self.output {
            Output::Text { interned, codes, places, .. } => {
                places.choose(interned.codes.distinct(), codes.len());
                interned.begin_batch();
                start(codes, if places.used { 0 } else { rows });
                start(&mut places.ends, if places.used { 2 * rows } else { 0 });
            }
            Output::Int(numbers) => start(numbers, rows),
            Output::Float(numbers) => start(numbers, rows),
            Output::Bool(numbers) => start(numbers, rows),
            Output::Object { ends, fields } => {
                start(ends, 2 * rows);
                for field in fields {
                    field.begin_batch(rows);
                }
            }
        }
    }

    /// `data` is what the places of a text count in.
    #[inline(always)]
    pub fn put(&mut self, row: usize, rows: usize, data: &[u8], found: Found) {
        match (&mut self.output, found) {
            (Output::Text { places, .. }, Found::Text(from, to)) if places.used => {
                places.ends[2 * row] = from as i64;
                places.ends[2 * row + 1] = to as i64;
            }
            (Output::Text { interned, codes, default, places }, found) if !places.used => {
                codes[row] = match (found, default) {
                    (Found::Text(from, to), _) => interned.codes.code(&data[from..to]),
                    (Found::Absent, Some(text)) => interned.codes.code(text),
                    _ => interned.codes.null(),
                }
            }
            (Output::Int(numbers), Found::Int(number)) => numbers[row] = number,
            (Output::Float(numbers), Found::Float(number)) => numbers[row] = number,
            (Output::Bool(flags), Found::Bool(flag)) => flags[row] = flag.into(),
            (Output::Object { ends, .. }, Found::Object(from, to)) => {
                ends[2 * row] = from as i64;
                ends[2 * row + 1] = to as i64;
            }
            _ => {
                if self.nulls.is_empty() {
                    self.nulls = vec![0; rows];
                }
                self.nulls[row] = 1;
            }
        }
    }
}

fn start<T: Clone + Default>(column: &mut Vec<T>, rows: usize) {
    column.clear();
    column.resize(rows, T::default());
}

impl<T> Output<T> {
    /// Of a field of this kind; `default` is what a text has where it is missing.
    pub fn of(kind: Kind, default: Option<Box<[u8]>>, texts_bytes_max: usize) -> Self {
        match kind {
            Kind::Str => Output::Text {
                interned: Interned::new(texts_bytes_max),
                codes: vec![],
                default,
                places: Places::default(),
            },
            Kind::Int => Output::Int(vec![]),
            Kind::Float => Output::Float(vec![]),
            Kind::Bool | Kind::Any => Output::Bool(vec![]),
            Kind::Object => Output::Object { ends: vec![], fields: vec![] },
        }
    }
}

impl<T> Output<T> {
    /// The same, but texts that hardly repeat may be left where they stand: if none has a default, which stands nowhere.
    pub fn in_place(mut self) -> Self {
        if let Output::Text { default: None, places, .. } = &mut self {
            places.allowed = true;
        }
        self
    }

    /// Where the texts of this batch stand; `None`: they are coded, or no texts.
    pub fn places(&mut self) -> Option<&mut Vec<i64>> {
        match self {
            Output::Text { places, .. } if places.used => Some(&mut places.ends),
            _ => None,
        }
    }
}

/// Puts a row of an object that `parser` has read, or of one that is not there, into its fields.
#[inline]
fn put_all<T>(all: &mut [Needed<T>], parser: Option<&RecordParser>, row: usize, rows: usize, data: &[u8], at: usize) {
    for needed in all {
        let found = parser.map_or(Found::Null, |parser| parser.found[needed.field]);
        needed.put(row, rows, data, found);
        if let (Some(ends), false) = (needed.output.places(), matches!(found, Found::Text(..))) {
            ends[2 * row..2 * row + 2].fill(at as i64);
        }
        if let Output::Object { ends, fields } = &mut needed.output {
            let inner = match found {
                Found::Object(..) => parser.and_then(|parser| parser.fields[needed.field].inner.as_deref()),
                _ => {
                    ends[2 * row..2 * row + 2].fill(at as i64);
                    None
                }
            };
            put_all(fields, inner, row, rows, data, at);
        }
    }
}

/// Gives the objects and texts of a row that is unsure a place, so that the places never fall.
fn place_all<T>(all: &mut [Needed<T>], row: usize, at: usize) {
    for needed in all {
        if let Some(ends) = needed.output.places() {
            ends[2 * row..2 * row + 2].fill(at as i64);
        }
        if let Output::Object { ends, fields } = &mut needed.output {
            ends[2 * row..2 * row + 2].fill(at as i64);
            place_all(fields, row, at);
        }
    }
}

/// What reads objects with these fields, and where the needed ones go.
pub fn parts<T>(
    fields: Vec<(Field, Output<T>)>,
    unknown_allowed: bool,
) -> Result<(RecordParser, Vec<Needed<T>>), Refused> {
    if fields.len() > FIELDS_MAX {
        return Err(Refused::Value(format!("{} fields, at most {FIELDS_MAX}", fields.len())));
    }
    let (mut declared, mut needed) = (vec![], vec![]);
    for (index, (field, output)) in fields.into_iter().enumerate() {
        if field.needed {
            needed.push(Needed::new(index, output));
        }
        declared.push(field);
    }
    Ok((RecordParser::new(declared, unknown_allowed), needed))
}

pub const SURE: u8 = 0;
pub const UNSURE: u8 = 1;

/// Reads records of one type. Its state between batches (the layout of the last record, the texts seen) only saves time.
pub struct Projector<T> {
    parser: RecordParser,
    pub needed: Vec<Needed<T>>,
}

impl<T> Projector<T> {
    /// `fields`: every field that the type declares, with where its values go if it is needed.
    pub fn new(fields: Vec<(Field, Output<T>)>, unknown_allowed: bool) -> Result<Self, Refused> {
        let (parser, needed) = parts(fields, unknown_allowed)?;
        Ok(Projector { parser, needed })
    }

    /// The status of each row. A null row is sure, and its fields are null.
    pub fn read(&mut self, rows: &Rows) -> Vec<u8> {
        let count = rows.len();
        for needed in &mut self.needed {
            needed.begin_batch(count);
        }
        let mut status = vec![SURE; count];
        for (row, unsure) in status.iter_mut().enumerate() {
            let (start, end) = rows.span(row);
            if rows.is_null(row) {
                put_all(&mut self.needed, None, row, count, rows.data, start);
            } else if self.parser.parse(rows.data, start, end).is_some() {
                put_all(&mut self.needed, Some(&self.parser), row, count, rows.data, start);
            } else {
                *unsure = UNSURE;
                place_all(&mut self.needed, row, start);
            }
        }
        status
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn projector() -> Projector<String> {
        let field = |name: &str, kind, nullable, required, default| Field {
            name: name.as_bytes().into(),
            kind,
            nullable,
            required,
            needed: kind != Kind::Any,
            default,
            inner: None,
        };
        let fields = vec![
            (
                field("t", Kind::Str, true, false, Found::Absent),
                Output::of(Kind::Str, Some((*b"none").into()), 1 << 20),
            ),
            (field("skipped", Kind::Any, true, false, Found::Absent), Output::of(Kind::Any, None, 0)),
            (field("i", Kind::Int, true, false, Found::Int(-1)), Output::of(Kind::Int, None, 0)),
            (field("f", Kind::Float, false, true, Found::Absent), Output::of(Kind::Float, None, 0)),
            (field("b", Kind::Bool, false, false, Found::Absent), Output::of(Kind::Bool, None, 0)),
        ];
        Projector::new(fields, true).unwrap()
    }

    fn texts(needed: &mut Needed<String>) -> (Vec<i32>, Vec<Option<String>>) {
        let Output::Text { interned, codes, .. } = &mut needed.output else { panic!("not a text") };
        let make = |bytes: &[u8]| String::from_utf8(bytes.to_vec());
        let values = interned.values(make).unwrap().map(|value| value.cloned()).collect();
        (codes.clone(), values)
    }

    #[test]
    fn records_become_a_column_per_needed_field() {
        let mut projector = projector();
        let records = [
            r#"{"t":"a","f":1.5,"b":true}"#,
            "",
            "bad",
            r#"{"f":2,"i":7,"skipped":[]}"#,
            r#"{"t":null,"i":null,"f":0}"#,
        ];
        let data = records.concat();
        let mut offsets = vec![0];
        offsets.extend(records.iter().scan(0, |at, record| {
            *at += record.len() as i64;
            Some(*at)
        }));
        let rows = Rows::of(data.as_bytes(), &offsets, Some(&[0, 1, 0, 0, 0])).unwrap();
        for _ in 0..2 {
            assert_eq!(projector.read(&rows), [SURE, SURE, UNSURE, SURE, SURE]);
            let [text, int, float, flag] = &mut projector.needed[..] else { panic!("four fields are needed") };
            let (codes, values) = texts(text);
            assert_eq!(values, [Some("a".to_string()), None, Some("none".to_string())]);
            assert_eq!([codes[0], codes[1], codes[3], codes[4]], [0, 1, 2, 1]);
            assert!(matches!(&int.output, Output::Int(numbers) if *numbers == [-1, 0, 0, 7, 0]));
            assert_eq!(int.nulls, [0, 1, 0, 0, 1]);
            assert!(matches!(&float.output, Output::Float(numbers) if *numbers == [1.5, 0.0, 0.0, 2.0, 0.0]));
            assert_eq!(float.nulls, [0, 1, 0, 0, 0]);
            assert!(matches!(&flag.output, Output::Bool(flags) if *flags == [1, 0, 0, 0, 0]));
            assert_eq!(flag.nulls, [0, 1, 0, 1, 1]);
        }
    }

    #[test]
    fn objects_become_places_and_columns_of_their_fields() {
        let field = |name: &str, kind, inner| Field {
            name: name.as_bytes().into(),
            kind,
            nullable: true,
            required: false,
            needed: true,
            default: Found::Absent,
            inner,
        };
        let inner = vec![(field("i", Kind::Int, None), Output::<String>::of(Kind::Int, None, 0))];
        let (parser, fields) = parts(inner, true).unwrap();
        let object = field("o", Kind::Object, Some(Box::new(parser)));
        let mut projector = Projector::new(vec![(object, Output::Object { ends: vec![], fields })], true).unwrap();
        let records = [r#"{"o":{"i":7}}"#, "bad", r#"{"o":null}"#, "{}", "", r#"{"o":{}}"#];
        let data = records.concat();
        let rows = Rows::of(data.as_bytes(), &[0, 13, 16, 26, 28, 28, 36], Some(&[0, 0, 0, 0, 1, 0])).unwrap();
        for _ in 0..2 {
            assert_eq!(projector.read(&rows), [SURE, UNSURE, SURE, SURE, SURE, SURE]);
            let Output::Object { ends, fields } = &projector.needed[0].output else { panic!("an object is needed") };
            assert_eq!(*ends, [5, 12, 13, 13, 16, 16, 26, 26, 28, 28, 33, 35]);
            assert_eq!(projector.needed[0].nulls, [0, 0, 1, 1, 1, 0]);
            assert!(matches!(&fields[0].output, Output::Int(numbers) if *numbers == [7, 0, 0, 0, 0, 0]));
            assert_eq!(fields[0].nulls, [0, 0, 1, 1, 1, 1]);
        }
    }

    #[test]
    fn more_fields_than_bits_are_refused() {
        let fields = (0..=FIELDS_MAX).map(|i| {
            let name = format!("f{i}").into_bytes().into();
            let default = Found::Absent;
            let field =
                Field { name, kind: Kind::Int, nullable: false, required: true, needed: true, default, inner: None };
            (field, Output::<String>::of(Kind::Int, None, 0))
        });
        assert!(Projector::new(fields.collect(), true).is_err());
    }
}
