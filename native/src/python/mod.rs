//! The module `penstock_native` as Python sees it. Only this part depends on Python: all else works on slices.

use pyo3::exceptions::{PyIndexError, PyMemoryError, PyValueError};
use pyo3::prelude::*;

use crate::refused::Refused;

mod avro;
mod bags;
mod buffers;
mod client;
mod entry_map;
mod group;
mod handed;
mod interner;
mod json_reading;
mod json_writing;
mod latest;
mod lists;
mod members;
mod panes;
mod part_tally;
mod patterns;
mod reader;
mod rows;
mod sessions;
mod strings;
mod tally;
mod texts;
mod tuples;
mod words;
mod writer;

/// Changes with every change of a signature: a module that was built from other sources is not used.
const INTERFACE: u32 = 28;

impl From<Refused> for PyErr {
    fn from(refused: Refused) -> PyErr {
        match refused {
            Refused::Value(text) => PyValueError::new_err(text),
            Refused::Index(text) => PyIndexError::new_err(text),
            Refused::NoRoom => PyMemoryError::new_err(()),
        }
    }
}

#[pymodule]
fn penstock_native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("INTERFACE", INTERFACE)?;
    module.add_class::<reader::Reader>()?;
    module.add_class::<writer::Writer>()?;
    module.add_class::<entry_map::EntryMap>()?;
    module.add_class::<interner::Interner>()?;
    module.add_class::<avro::AvroProjector>()?;
    module.add_function(wrap_pyfunction!(avro::write_avro, module)?)?;
    module.add_class::<json_reading::JsonProjector>()?;
    module.add_class::<json_reading::JsonForm>()?;
    module.add_function(wrap_pyfunction!(json_writing::write_records, module)?)?;
    module.add_class::<lists::ListEntries>()?;
    module.add_class::<bags::Bags>()?;
    module.add_class::<members::Members>()?;
    module.add_class::<sessions::SessionCounts>()?;
    module.add_class::<sessions::SessionParts>()?;
    module.add_class::<panes::PaneCounts>()?;
    module.add_class::<latest::Latest>()?;
    module.add_class::<part_tally::PartTally>()?;
    module.add_class::<patterns::Patterns>()?;
    module.add_class::<tally::Tally>()?;
    module.add_function(wrap_pyfunction!(group::group_rows, module)?)?;
    module.add_function(wrap_pyfunction!(group::highest_rows, module)?)?;
    module.add_function(wrap_pyfunction!(group::count_rows_so_far, module)?)?;
    module.add_function(wrap_pyfunction!(group::sum_rows, module)?)?;
    module.add_function(wrap_pyfunction!(rows::pack_rows, module)?)?;
    module.add_function(wrap_pyfunction!(rows::list_rows, module)?)?;
    module.add_function(wrap_pyfunction!(rows::take_rows, module)?)?;
    module.add_function(wrap_pyfunction!(rows::stamp_rows, module)?)?;
    module.add_function(wrap_pyfunction!(rows::window_key_rows, module)?)?;
    module.add_function(wrap_pyfunction!(rows::partition_rows, module)?)?;
    module.add_function(wrap_pyfunction!(tuples::write_tuples, module)?)?;
    module.add_function(wrap_pyfunction!(tuples::pack_tuples, module)?)?;
    module.add_function(wrap_pyfunction!(tuples::read_tuples, module)?)?;
    module.add_function(wrap_pyfunction!(members::read_partials, module)?)?;
    module.add_function(wrap_pyfunction!(texts::text_lengths, module)?)?;
    module.add_function(wrap_pyfunction!(texts::texts_found, module)?)?;
    module.add_function(wrap_pyfunction!(texts::texts_replaced, module)?)?;
    module.add_function(wrap_pyfunction!(texts::texts_split, module)?)?;
    module.add_function(wrap_pyfunction!(words::split_words, module)?)
}
