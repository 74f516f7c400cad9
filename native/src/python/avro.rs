//! Avro into columns: see `kernels::avro`.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use super::buffers::{Held, rows_of, to_bytes};
use super::json_reading::finished;
use crate::kernels::avro::reading::{self, Kind, Step};
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
