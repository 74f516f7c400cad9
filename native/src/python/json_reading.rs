//! JSON into columns, and JSON that has its encoder's form: see `kernels::json`.

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use std::sync::Arc;

use super::buffers::{Held, rows_of, to_bytes};
use super::interner::values_of;
use crate::kernels::interner::check_rows;
use crate::kernels::json::ahead::{Kept, SharedProjector};
use crate::kernels::json::form::Form;
use crate::kernels::json::projector::{Needed, Output, Projector, UNSURE, parts};
use crate::kernels::json::record::{Field, Found, Kind};

/// A field as Python names it: kinds are `str`, `int`, `float`, `bool`, `object` and, where it is not needed, `any`. A field
/// that is not required is `default` where it is missing, which is null or of the field's kind. `inner`: of an object, its
/// fields, and whether it may have others.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct FieldSpec<'py> {
    name: String,
    kind: String,
    nullable: bool,
    required: bool,
    needed: bool,
    default: Option<Bound<'py, PyAny>>,
    inner: Option<(Vec<FieldSpec<'py>>, bool)>,
}

fn opened(spec: FieldSpec<'_>, texts_bytes_max: usize) -> PyResult<(Field, Output<Py<PyAny>>)> {
    let name = spec.name.into_bytes().into();
    let (nullable, required, needed) = (spec.nullable, spec.required, spec.needed);
    if let Some((fields, unknown_allowed)) = spec.inner {
        let fields = fields.into_iter().map(|spec| opened(spec, texts_bytes_max)).collect::<PyResult<_>>()?;
        let (parser, fields) = parts(fields, unknown_allowed)?;
        let (kind, default, inner) = (Kind::Object, Found::Absent, Some(Box::new(parser)));
        let field = Field { name, kind, nullable, required, needed, default, inner };
        return Ok((field, Output::Object { ends: vec![], fields }));
    }
    let default = spec.default.as_ref();
    let (kind, number) = match spec.kind.as_str() {
        "str" => (Kind::Str, None),
        "int" => (Kind::Int, default.map(|d| d.extract().map(Found::Int))),
        "float" => (Kind::Float, default.map(|d| d.extract().map(Found::Float))),
        "bool" => (Kind::Bool, default.map(|d| d.extract().map(Found::Bool))),
        "any" if !needed => (Kind::Any, None),
        other => return Err(PyValueError::new_err(format!("no kind {other:?}"))),
    };
    let text = default.filter(|_| kind == Kind::Str).map(|d| d.extract::<String>()).transpose()?;
    let output = Output::of(kind, text.map(|text| text.into_bytes().into()), texts_bytes_max).in_place();
    let default = number.transpose()?.unwrap_or(Found::Absent);
    Ok((Field { name, kind, nullable, required, needed, default, inner: None }, output))
}

/// Text, or bytes where they are not `text`: `(codes, values)`, or in place: `(begin and end of each, nulls or None, None)`.
/// Numbers: `(numbers, nulls or None)`. Objects: `(begin and end of each, nulls or None, one tuple per needed field)`.
pub fn finished<'py>(py: Python<'py>, needed: &mut Needed<Py<PyAny>>, text: bool) -> PyResult<Bound<'py, PyTuple>> {
    if let Some(ends) = needed.output.places() {
        let ends = to_bytes(py, ends);
        let nulls = (!needed.nulls.is_empty()).then(|| to_bytes(py, &needed.nulls));
        return (ends, nulls, py.None()).into_pyobject(py);
    }
    let numbers = match &mut needed.output {
        Output::Text { interned, codes, .. } => {
            let values = values_of(py, interned, text)?;
            return (to_bytes(py, codes), values).into_pyobject(py);
        }
        Output::Int(numbers) => to_bytes(py, numbers),
        Output::Float(numbers) => to_bytes(py, numbers),
        Output::Bool(numbers) => to_bytes(py, numbers),
        Output::Object { ends, fields } => {
            let fields = fields.iter_mut().map(|field| finished(py, field, true)).collect::<PyResult<Vec<_>>>()?;
            let nulls = (!needed.nulls.is_empty()).then(|| to_bytes(py, &needed.nulls));
            return (to_bytes(py, ends), nulls, PyList::new(py, fields)?).into_pyobject(py);
        }
    };
    let nulls = (!needed.nulls.is_empty()).then(|| to_bytes(py, &needed.nulls));
    (numbers, nulls).into_pyobject(py)
}

type Read<'py> = (Option<Bound<'py, PyBytes>>, Bound<'py, PyList>);

/// What `JsonProjector.project` returns of a batch that was read.
fn results<'py>(py: Python<'py>, projector: &mut Projector<Py<PyAny>>, status: &[u8]) -> PyResult<Read<'py>> {
    let columns = projector.needed.iter_mut().map(|n| finished(py, n, true)).collect::<PyResult<Vec<_>>>()?;
    let status = status.contains(&UNSURE).then(|| to_bytes(py, status));
    Ok((status, PyList::new(py, columns)?))
}

/// The same of a batch that was read ahead.
pub fn results_ahead<'py>(py: Python<'py>, kept: &Kept<Py<PyAny>>) -> PyResult<Bound<'py, PyTuple>> {
    kept.taken(|projector| results(py, projector, &kept.status))?.into_pyobject(py)
}

/// See `kernels::json::projector::Projector`.
#[pyclass(frozen, module = "penstock_native")]
pub struct JsonProjector(pub Arc<SharedProjector<Py<PyAny>>>);

#[pymethods]
impl JsonProjector {
    /// `fields`: of every field that the type declares; see `FieldSpec`.
    #[new]
    fn new(fields: Vec<FieldSpec>, unknown_allowed: bool, texts_bytes_max: usize) -> PyResult<Self> {
        let fields = fields.into_iter().map(|spec| opened(spec, texts_bytes_max)).collect::<PyResult<_>>()?;
        Ok(JsonProjector(Arc::new(SharedProjector::new(Projector::new(fields, unknown_allowed)?))))
    }

    /// What tells this projector from others.
    fn token(&self) -> usize {
        Arc::as_ptr(&self.0) as usize
    }

    /// `(status per row as bytes, or None if all are sure; one tuple per needed field)`. A null row is sure, and its
    /// fields are null. Refused where a reader reads ahead with it.
    fn project<'py>(
        &self,
        py: Python<'py>,
        data: Held<u8>,
        offsets: Held<i64>,
        nulls: Option<Held<u8>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let rows = rows_of(&data, &offsets, nulls.as_ref())?;
        check_rows(rows.len())?;
        let read = self.0.used(|projector| {
            let status = py.detach(|| projector.read(&rows));
            results(py, projector, &status)
        });
        let refused = || PyRuntimeError::new_err("a reader reads ahead with this projector; make another one");
        read.ok_or_else(refused)??.into_pyobject(py)
    }
}

/// What stands before a value, its kind (`str`, `int`, `bool`, `object`), whether it may be null, and of an object its fields.
#[derive(FromPyObject)]
struct FormSpec(Vec<u8>, String, bool, Option<Vec<FormSpec>>);

fn form_of(fields: Vec<FormSpec>) -> PyResult<Form> {
    let fields = fields
        .into_iter()
        .map(|FormSpec(before, kind, nullable, inner)| Ok((before, kind, nullable, inner.map(form_of).transpose()?)));
    Ok(Form::new(fields.collect::<PyResult<_>>()?)?)
}

/// See `kernels::json::form::Form`.
#[pyclass(module = "penstock_native")]
pub struct JsonForm(Form);

#[pymethods]
impl JsonForm {
    /// See `FormSpec`.
    #[new]
    fn new(fields: Vec<FormSpec>) -> PyResult<Self> {
        Ok(JsonForm(form_of(fields)?))
    }

    /// A byte per row, 1 where a row has not the form; `None` when all have, nulls among them.
    fn others<'py>(
        &self,
        py: Python<'py>,
        data: Held<u8>,
        offsets: Held<i64>,
        nulls: Option<Held<u8>>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let rows = rows_of(&data, &offsets, nulls.as_ref())?;
        let others = py.detach(|| self.0.others(&rows));
        Ok(others.contains(&1).then(|| to_bytes(py, &others)))
    }
}
