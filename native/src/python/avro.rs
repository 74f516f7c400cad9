//! Avro into columns, and out of them: see `kernels::avro`.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};

use super::buffers::{Held, large_bytes, rows_of, to_bytes};
use super::json_reading::finished;
use crate::kernels::avro::reading::{self, Kind, Step};
use crate::kernels::avro::writing::{self, Field, Part};
use crate::kernels::interner::check_rows;
use crate::kernels::json::projector::{Output, UNSURE};
use crate::kernels::json::record::{Found, Kind as Holds};

/// A field of the writer's schema: its kind, the branch that is null (-1: of another type), whether the reader takes a null,
/// the place of its column (-1: it is not needed), and of an enum the symbols, `None` where the reader does not know one.
type StepSpec = (String, i64, bool, i64, Vec<Option<Vec<u8>>>);

fn kind_of(name: &str, symbols: Vec<Option<Vec<u8>>>) -> PyResult<Kind> {
    Ok(match name {
        "null" => Kind::Null,
        "boolean" => Kind::Bool,
        "int" => Kind::Int,
        "long" => Kind::Long,
        "float" => Kind::Float,
        "double" => Kind::Double,
        "bytes" => Kind::Bytes,
        "string" => Kind::Text,
        "enum" => Kind::Symbols(symbols.into_iter().map(|symbol| symbol.map(Vec::into_boxed_slice)).collect()),
        other => return Err(PyValueError::new_err(format!("no kind {other:?}"))),
    })
}

fn step_of((kind, null_branch, nullable, needed, symbols): StepSpec) -> PyResult<Step> {
    let null_branch = (null_branch >= 0).then_some(null_branch);
    Ok(Step { kind: kind_of(&kind, symbols)?, null_branch, nullable, needed: usize::try_from(needed).ok() })
}

/// See `kernels::avro::reading::AvroProjector`.
#[pyclass(module = "penstock_native")]
pub struct AvroProjector {
    projector: reading::AvroProjector<Py<PyAny>>,
    /// Of each needed field, whether it is a text, else bytes or a number.
    texts: Vec<bool>,
}

#[pymethods]
impl AvroProjector {
    /// `fields`: of the needed ones, the kind (`str`, `bytes`, `int`, `float`, `bool`), and the value where it is missing.
    #[new]
    fn new(fields: Vec<(String, Option<Bound<'_, PyAny>>)>, framed: bool, texts_bytes_max: usize) -> PyResult<Self> {
        let (mut outputs, mut texts) = (vec![], vec![]);
        for (kind, default) in &fields {
            let default = default.as_ref();
            let (holds, number, text) = match kind.as_str() {
                "str" => {
                    (Holds::Str, None, default.map(|d| d.extract::<String>()).transpose()?.map(String::into_bytes))
                }
                "bytes" => (Holds::Str, None, default.map(|d| d.extract::<Vec<u8>>()).transpose()?),
                "int" => (Holds::Int, default.map(|d| d.extract().map(Found::Int)), None),
                "float" => (Holds::Float, default.map(|d| d.extract().map(Found::Float)), None),
                "bool" => (Holds::Bool, default.map(|d| d.extract().map(Found::Bool)), None),
                other => return Err(PyValueError::new_err(format!("no kind {other:?}"))),
            };
            let output = Output::of(holds, text.map(Vec::into_boxed_slice), texts_bytes_max);
            outputs.push((output, number.transpose()?.unwrap_or(Found::Absent)));
            texts.push(kind == "str");
        }
        Ok(AvroProjector { projector: reading::AvroProjector::new(outputs, framed), texts })
    }

    /// The steps of the schema of this number (0 without frames); `None`: its records are all unsure.
    fn add(&mut self, number: u32, steps: Option<Vec<StepSpec>>) -> PyResult<()> {
        let steps = steps.map(|steps| steps.into_iter().map(step_of).collect::<PyResult<_>>()).transpose()?;
        Ok(self.projector.add(number, steps)?)
    }

    /// As `JsonProjector.project`, and the numbers of schemas that have not been added.
    fn project<'py>(
        &mut self,
        py: Python<'py>,
        data: Held<u8>,
        offsets: Held<i64>,
        nulls: Option<Held<u8>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let rows = rows_of(&data, &offsets, nulls.as_ref())?;
        check_rows(rows.len())?;
        let projector = &mut self.projector;
        let status = py.detach(|| projector.read(&rows));
        let needed = projector.needed.iter_mut().zip(&self.texts);
        let columns = needed.map(|(n, text)| finished(py, n, *text)).collect::<PyResult<Vec<_>>>()?;
        let status = status.contains(&UNSURE).then(|| to_bytes(py, &status));
        (status, PyList::new(py, columns)?, projector.unknown.clone()).into_pyobject(py)
    }
}

/// A column as Python hands it over.
#[derive(FromPyObject)]
enum Given<'py> {
    /// Data, offsets, nulls.
    Raw(Held<u8>, Held<i64>, Option<Held<u8>>),
    /// Codes and values.
    Coded(Held<i32>, Bound<'py, PyList>),
    /// Numbers and nulls.
    Ints(Held<i64>, Option<Held<u8>>),
    Floats(Held<f64>, Option<Held<u8>>),
    Bools(Held<u8>, Option<Held<u8>>),
}

/// The values that codes use: texts or, of a field of bytes, bytes. `None`: one is neither that nor null.
fn used<'a>(codes: &[i32], values: &'a [Bound<'_, PyAny>], bytes: bool) -> PyResult<Option<Vec<Option<&'a [u8]>>>> {
    let mut found: Vec<Option<&[u8]>> = vec![None; values.len()];
    let mut seen = vec![false; values.len()];
    for &code in codes {
        let code = code as usize;
        if *seen.get(code).ok_or_else(|| PyValueError::new_err(format!("no value has code {code}")))? {
            continue;
        }
        seen[code] = true;
        let value = &values[code];
        found[code] = match (value.cast::<PyString>(), value.cast::<PyBytes>()) {
            _ if value.is_none() => None,
            (Ok(text), _) if !bytes => match text.to_str() {
                Ok(text) => Some(text.as_bytes()),
                Err(_) => return Ok(None),
            },
            (_, Ok(data)) if bytes => Some(data.as_bytes()),
            _ => return Ok(None),
        };
    }
    Ok(Some(found))
}

/// A field to write: its kind, the branch of its union that is null (-1: of another type), the symbols of an enum.
type FieldSpec = (String, i64, Vec<Option<Vec<u8>>>);

/// `prefix` and the columns' values, for each row, by the fields of the schema; nothing for a row that is null: `(data, int64
/// ends from 0 on)`. `None`: a value that its field does not hold, or of which it is not certain how it is written.
#[pyfunction]
pub fn write_avro<'py>(
    py: Python<'py>,
    prefix: Vec<u8>,
    fields: Vec<FieldSpec>,
    columns: Vec<Bound<'py, PyAny>>,
    nulls: Option<Held<u8>>,
    count: usize,
) -> PyResult<Option<Bound<'py, PyTuple>>> {
    let field_of = |(kind, null_branch, symbols): FieldSpec| {
        let null_branch = match null_branch {
            -1 => None,
            0 | 1 => Some(null_branch as u8),
            other => return Err(PyValueError::new_err(format!("no branch {other}"))),
        };
        Ok(Field { kind: kind_of(&kind, symbols)?, null_branch })
    };
    let fields: Vec<Field> = fields.into_iter().map(field_of).collect::<PyResult<_>>()?;
    let given: Vec<Given> = columns.iter().map(|column| column.extract()).collect::<PyResult<_>>()?;
    let lists: Vec<Vec<Bound<'_, PyAny>>> = given
        .iter()
        .map(|one| if let Given::Coded(_, values) = one { values.iter().collect() } else { vec![] })
        .collect();
    let mut parts = vec![];
    for (index, (one, values)) in given.iter().zip(&lists).enumerate() {
        let bytes = fields.get(index).is_some_and(|field| field.kind == Kind::Bytes);
        parts.push(match one {
            Given::Raw(data, offsets, nulls) => Part::Raw(rows_of(data, offsets, nulls.as_ref())?),
            Given::Coded(codes, _) => {
                let Some(values) = used(codes.slice(), values, bytes)? else { return Ok(None) };
                Part::Coded(codes.slice(), values)
            }
            Given::Ints(numbers, nulls) => Part::Ints(numbers.slice(), nulls.as_ref().map(Held::slice)),
            Given::Floats(numbers, nulls) => Part::Floats(numbers.slice(), nulls.as_ref().map(Held::slice)),
            Given::Bools(flagged, nulls) => Part::Bools(flagged.slice(), nulls.as_ref().map(Held::slice)),
        });
    }
    let nulls = nulls.as_ref().map(Held::slice);
    let Some((data, ends)) = py.detach(|| writing::write(&prefix, &fields, &parts, nulls, count))? else {
        return Ok(None);
    };
    Ok(Some((large_bytes(py, &data)?, to_bytes(py, &ends)).into_pyobject(py)?))
}
