//! Whether JSON objects stand as the encoder of their type writes them, so that their bytes may be passed on as they are.
//!
//! The promise is one-sided, as the projector's: what has the form is, byte for byte, what the encoder writes of what the
//! decoder reads of it. All else is left to those two.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::lexer::{Cursor, Number};
use crate::kernels::buffers::{Held, Rows, to_bytes};

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Str,
    Int,
    Bool,
}

struct Field {
    /// What stands before the value: a brace or a comma, the name, a colon.
    before: Vec<u8>,
    kind: Kind,
    nullable: bool,
}

impl Field {
    #[inline(always)]
    fn check(&self, cursor: &mut Cursor) -> Option<()> {
        cursor.word(&self.before)?;
        match (self.kind, cursor.peek()) {
            (_, b'n') if self.nullable => cursor.word(b"null"),
            (Kind::Str, b'"') => {
                cursor.pos += 1;
                let text = cursor.string()?;
                // Encoders differ on the control character behind ASCII.
                (!text.escaped && !cursor.data[text.start..text.end].contains(&0x7f)).then_some(())
            }
            (Kind::Bool, b't') => cursor.word(b"true"),
            (Kind::Bool, b'f') => cursor.word(b"false"),
            (Kind::Int, first) => match cursor.number::<true>()? {
                Number::Int(0) if first == b'-' => None,
                Number::Int(_) => Some(()),
                Number::Float(_) => None,
            },
            _ => None,
        }
    }
}

/// Objects of these fields, all of them there, in this order.
#[pyclass(module = "penstock_native")]
pub struct JsonForm {
    fields: Vec<Field>,
}

impl JsonForm {
    fn fits(&self, data: &[u8], start: usize, end: usize) -> bool {
        let mut cursor = Cursor { data, pos: start, end };
        self.fields.iter().all(|field| field.check(&mut cursor).is_some())
            && cursor.take(b'}').is_some()
            && cursor.pos == end
    }
}

#[pymethods]
impl JsonForm {
    /// `fields`: what stands before each value, its kind (`str`, `int`, `bool`), and whether it may be null.
    #[new]
    fn new(fields: Vec<(Vec<u8>, String, bool)>) -> PyResult<Self> {
        let fields = fields.into_iter().map(|(before, kind, nullable)| {
            let kind = match kind.as_str() {
                "str" => Kind::Str,
                "int" => Kind::Int,
                "bool" => Kind::Bool,
                other => return Err(PyValueError::new_err(format!("no kind {other:?}"))),
            };
            Ok(Field { before, kind, nullable })
        });
        Ok(JsonForm { fields: fields.collect::<PyResult<_>>()? })
    }

    /// A byte per row, 1 where a row has not the form; `None` when all have, nulls among them.
    fn others<'py>(
        &self,
        py: Python<'py>,
        data: Held<u8>,
        offsets: Held<i64>,
        nulls: Option<Held<u8>>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let rows = Rows::of(&data, &offsets, &nulls)?;
        let other = |row| {
            let (start, end) = rows.span(row);
            u8::from(!rows.is_null(row) && !self.fits(rows.data, start, end))
        };
        let others: Vec<u8> = py.detach(|| (0..rows.len()).map(other).collect());
        Ok(others.contains(&1).then(|| to_bytes(py, &others)))
    }
}
