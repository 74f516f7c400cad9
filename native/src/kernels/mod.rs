//! Work on whole columns: each kernel is a function of buffers, and none keeps the GIL while it runs over rows.

use pyo3::prelude::*;

mod buffers;
mod distinct;
mod entry_map;
mod entry_rows;
mod group;
mod interner;
mod json;
mod murmur;
mod rows;
mod tally;
mod words;

/// Adds the kernels to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<entry_map::EntryMap>()?;
    module.add_class::<interner::Interner>()?;
    module.add_class::<json::JsonProjector>()?;
    module.add_class::<json::JsonForm>()?;
    module.add_function(wrap_pyfunction!(json::write_records, module)?)?;
    module.add_class::<tally::Tally>()?;
    module.add_function(wrap_pyfunction!(group::group_rows, module)?)?;
    module.add_function(wrap_pyfunction!(group::highest_rows, module)?)?;
    module.add_function(wrap_pyfunction!(group::count_rows_so_far, module)?)?;
    module.add_function(wrap_pyfunction!(group::sum_rows, module)?)?;
    module.add_function(wrap_pyfunction!(rows::pack_rows, module)?)?;
    module.add_function(wrap_pyfunction!(rows::list_rows, module)?)?;
    module.add_function(wrap_pyfunction!(rows::take_rows, module)?)?;
    module.add_function(wrap_pyfunction!(rows::partition_rows, module)?)?;
    module.add_function(wrap_pyfunction!(words::split_words, module)?)
}
