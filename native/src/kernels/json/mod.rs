//! JSON straight into columns: of each record only the needed fields are made, and none as a Python object.
//!
//! The promise is one-sided. What a record's status calls certain is what `msgspec.json.Decoder` of the type gives, value
//! for value; all else is *unsure* and left to that decoder, which then gives the value or the error.

mod form;
mod lexer;
mod record;
mod scan;
mod writing;

pub use form::JsonForm;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
pub use writing::*;

use super::buffers::{Held, Rows, to_bytes};
use super::interner::{Interned, Shape, check_rows};
use record::{FIELDS_MAX, Field, Found, Kind, RecordParser};

/// A needed field's values, row by row; rows that are unsure hold zeros.
enum Output {
    Text { interned: Interned, codes: Vec<i32>, default: Option<Box<[u8]>> },
    Int(Vec<i64>),
    Float(Vec<f64>),
    Bool(Vec<u8>),
}

struct Needed {
    field: usize,
    output: Output,
    /// Of numbers: 1 where there is none. Empty while none is missing.
    nulls: Vec<u8>,
}

impl Needed {
    fn begin_batch(&mut self, rows: usize) {
        self.nulls.clear();
        match &mut self.output {
            Output::Text { interned, codes, .. } => {
                interned.begin_batch();
                start(codes, rows);
            }
            Output::Int(numbers) => start(numbers, rows),
            Output::Float(numbers) => start(numbers, rows),
            Output::Bool(numbers) => start(numbers, rows),
        }
    }

    #[inline(always)]
    fn put(&mut self, row: usize, rows: usize, data: &[u8], found: Found) {
        match (&mut self.output, found) {
            (Output::Text { interned, codes, default }, found) => {
                codes[row] = match (found, default) {
                    (Found::Text(from, to), _) => interned.codes.code(&data[from..to]),
                    (Found::Absent, Some(text)) => interned.codes.code(text),
                    _ => interned.codes.null(),
                }
            }
            (Output::Int(numbers), Found::Int(number)) => numbers[row] = number,
            (Output::Float(numbers), Found::Float(number)) => numbers[row] = number,
            (Output::Bool(flags), Found::Bool(flag)) => flags[row] = flag.into(),
            _ => {
                if self.nulls.is_empty() {
                    self.nulls = vec![0; rows];
                }
                self.nulls[row] = 1;
            }
        }
    }

    /// Text: `(codes, values)`. Others: `(numbers, nulls or None)`.
    fn finish<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let numbers = match &mut self.output {
            Output::Text { interned, codes, .. } => {
                let values = interned.values(py)?;
                return (to_bytes(py, codes), values).into_pyobject(py);
            }
            Output::Int(numbers) => to_bytes(py, numbers),
            Output::Float(numbers) => to_bytes(py, numbers),
            Output::Bool(numbers) => to_bytes(py, numbers),
        };
        let nulls = (!self.nulls.is_empty()).then(|| to_bytes(py, &self.nulls));
        (numbers, nulls).into_pyobject(py)
    }
}

fn start<T: Clone + Default>(column: &mut Vec<T>, rows: usize) {
    column.clear();
    column.resize(rows, T::default());
}

/// A field as Python names it: kinds are `str`, `int`, `float`, `bool` and, where it is not needed, `any`. A field that is not required is `default` where
/// it is missing, which is null or of the field's kind.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct FieldSpec<'py> {
    name: String,
    kind: String,
    nullable: bool,
    required: bool,
    needed: bool,
    default: Option<Bound<'py, PyAny>>,
}

fn opened(spec: FieldSpec<'_>, texts_bytes_max: usize) -> PyResult<(Field, Output)> {
    let default = spec.default.as_ref();
    let (kind, default, output) = match spec.kind.as_str() {
        "str" => {
            let default = default.map(|d| d.extract::<String>()).transpose()?.map(|text| text.into_bytes().into());
            let interned = Interned::new(Shape::Str, texts_bytes_max);
            (Kind::Str, None, Output::Text { interned, codes: vec![], default })
        }
        "int" => (Kind::Int, default.map(|d| d.extract().map(Found::Int)), Output::Int(vec![])),
        "float" => (Kind::Float, default.map(|d| d.extract().map(Found::Float)), Output::Float(vec![])),
        "bool" => (Kind::Bool, default.map(|d| d.extract().map(Found::Bool)), Output::Bool(vec![])),
        "any" if !spec.needed => (Kind::Any, None, Output::Bool(vec![])),
        other => return Err(PyValueError::new_err(format!("field {}: no kind {other:?}", spec.name))),
    };
    let FieldSpec { name, nullable, required, needed, .. } = spec;
    let default = default.transpose()?.unwrap_or(Found::Absent);
    Ok((Field { name: name.into_bytes().into(), kind, nullable, required, needed, default }, output))
}

const SURE: u8 = 0;
const UNSURE: u8 = 1;

/// Reads records of one type. Its state between batches (the layout of the last record, the texts seen) only saves time.
#[pyclass(module = "penstock_native")]
pub struct JsonProjector {
    parser: RecordParser,
    needed: Vec<Needed>,
}

#[pymethods]
impl JsonProjector {
    /// `fields`: of every field that the type declares; see `FieldSpec`.
    #[new]
    fn new(fields: Vec<FieldSpec>, unknown_allowed: bool, texts_bytes_max: usize) -> PyResult<Self> {
        if fields.len() > FIELDS_MAX {
            return Err(PyValueError::new_err(format!("{} fields, at most {FIELDS_MAX}", fields.len())));
        }
        let mut declared = vec![];
        let mut outputs = vec![];
        for (index, spec) in fields.into_iter().enumerate() {
            let needed = spec.needed;
            let (field, output) = opened(spec, texts_bytes_max)?;
            declared.push(field);
            if needed {
                outputs.push(Needed { field: index, output, nulls: vec![] });
            }
        }
        Ok(JsonProjector { parser: RecordParser::new(declared, unknown_allowed), needed: outputs })
    }

    /// `(status per row as bytes, or None if all are sure; one tuple per needed field)`. A null row is sure, and its
    /// fields are null.
    fn project<'py>(
        &mut self,
        py: Python<'py>,
        data: Held<u8>,
        offsets: Held<i64>,
        nulls: Option<Held<u8>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let rows = Rows::of(&data, &offsets, &nulls)?;
        check_rows(rows.len())?;
        let this = &mut *self;
        let status = py.detach(|| this.read(&rows));
        let columns = self.needed.iter_mut().map(|n| n.finish(py)).collect::<PyResult<Vec<_>>>()?;
        let status = status.contains(&UNSURE).then(|| to_bytes(py, &status));
        (status, PyList::new(py, columns)?).into_pyobject(py)
    }
}

impl JsonProjector {
    fn read(&mut self, rows: &Rows) -> Vec<u8> {
        let count = rows.len();
        for needed in &mut self.needed {
            needed.begin_batch(count);
        }
        let mut status = vec![SURE; count];
        for (row, unsure) in status.iter_mut().enumerate() {
            if rows.is_null(row) {
                for needed in &mut self.needed {
                    needed.put(row, count, rows.data, Found::Null);
                }
                continue;
            }
            let (start, end) = rows.span(row);
            if self.parser.parse(rows.data, start, end).is_none() {
                *unsure = UNSURE;
                continue;
            }
            for needed in &mut self.needed {
                needed.put(row, count, rows.data, self.parser.found[needed.field]);
            }
        }
        status
    }
}
