"""A table's rows as texts: written to a store that keeps entries as bytes, and read from it, without decoding them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

import numpy as np

from penstock.state.serdes.serde import Serde
from penstock.state.stores.store import StoreSpec
from penstock.state.stores.store_view import KeyValueStoreView
from penstock.topologies.columnar.column_parts import nulls_of, serialized, written
from penstock.topologies.columnar.encoded_columns import ParsedColumn
from penstock.topologies.columnar.text_columns import FieldReaders, TextColumn, TextPool
from penstock.topologies.operator_api.batch import Batch, ColumnBatch
from penstock.topologies.operator_api.columns import BytesColumn, CodedColumn, Column, Places
from penstock.topologies.operators.columnar.row_texts import written_texts
from penstock.topologies.operators.columnar.source import json_decoder

_TIMESTAMP = struct.Struct(">q")


def why_no_texts(serde: Serde[object]) -> str | None:
    """Why rows of this serde cannot stay texts; ``None``: they may, where the compiled part reads them."""
    if not serde.immutable:
        return f"its values, of the serde {serde.name}, can be changed in place"
    return None if json_decoder(serde) is not None else f"it reads values with the serde {serde.name}"


def bytes_of_keys(batch: Batch, serde: Serde[object]) -> list[bytes | None] | None:
    """The keys of a batch as its serde writes them; keeps nulls. ``None``: one cannot be written."""
    column = batch.key_column
    data = None if column is None else serialized(column, serde)
    return written(batch.keys, serde) if data is None else data.to_list()


class RowValues:
    """Rows of ``serde`` as it writes them; see ``row_values``."""

    def __init__(self, serde: Serde[object], canonical: Callable[[BytesColumn], BytesColumn | None]) -> None:
        decoder = json_decoder(serde)
        assert decoder is not None
        self._serde = serde
        self._readers = FieldReaders(serde, decoder)
        self.canonical = canonical
        """The texts as the serde writes them; keeps nulls. ``None``: one cannot be read."""

    def of_column(self, column: Column | None) -> BytesColumn | None:
        """The values of a column, nulls kept; ``None``: they are not known to be values of the serde."""
        if not isinstance(column, (ParsedColumn, TextColumn)):
            return None
        if isinstance(column, TextColumn):
            return column.raw if column.pool.readers.serde == self._serde else None
        return self.canonical(column.raw) if column.serde == self._serde else None

    def pool(self, texts: BytesColumn) -> TextPool:
        """Texts as the serde writes them, none of which is null, as values."""
        return TextPool(texts, self._readers)

    def column(self, texts: BytesColumn) -> Column:
        """Texts as the serde writes them as values; keeps nulls."""
        places = np.arange(len(texts))
        if texts.nulls is None or not texts.nulls.any():
            return TextColumn(self.pool(texts), places)
        if texts.nulls.all():
            return CodedColumn(np.zeros(len(texts), np.int32), [None])
        there = np.flatnonzero(~texts.nulls)
        codes = np.full(len(texts), -1, np.intp)
        codes[there] = places[: len(there)]
        taken = texts.take(there)
        return TextColumn(self.pool(BytesColumn(taken.data, taken.offsets)), codes)


def row_values(serde: Serde[object]) -> RowValues | None:
    """For rows that are written as JSON of a type of plain texts, whole numbers and truth values; ``None`` for others, and
    without the compiled part."""
    texts = None if why_no_texts(serde) is not None else written_texts(serde)
    return None if texts is None else RowValues(serde, texts.of)


def entries_of(state: KeyValueStoreView, keys: Sequence[bytes]) -> list[bytes | None]:
    """The entries of keys in a store that keeps them as bytes."""
    state.load(keys)
    return list(map(state.entries.__getitem__, keys))


def texts_of(entries: Sequence[bytes | None]) -> BytesColumn:
    """The values of entries."""
    return BytesColumn.of([None if e is None else e[8:] for e in entries])


def present_texts(texts: BytesColumn, places: Places) -> BytesColumn:
    """The texts at these places, none of which is null."""
    taken = texts.take(places)
    return BytesColumn(taken.data, taken.offsets)


def rows_before(olds: BytesColumn, keys: Sequence[bytes], news: Sequence[bytes | None]) -> list[bytes | None]:
    """The row of each key before its change: the change of the key before it, or else the stored one in ``olds``."""
    listed, last = olds.to_list(), dict[bytes, bytes | None]()
    for i, (key, new) in enumerate(zip(keys, news, strict=True)):
        if key in last:
            listed[i] = last[key]
        last[key] = new
    return listed


def time_of(entry: bytes) -> int:
    """The timestamp of an entry."""
    time: int = _TIMESTAMP.unpack_from(entry)[0]
    return time


class StoredRows:
    """Writes the changes of a table to its store. ``reads``: a deletion of what is not there is left out; ``sends_olds``:
    so are none of the old rows, which go with the changes."""

    def __init__(
        self, values: RowValues, state: KeyValueStoreView, key_serde: Serde[object], *, reads: bool, sends_olds: bool
    ) -> None:
        self._values = values
        self._state = state
        self._key_serde = key_serde
        self._reads, self._sends_olds = reads, sends_olds

    def load(self, batch: ColumnBatch) -> bool:
        """Load what the changes of a batch meet. ``False``: nothing was done."""
        keys = bytes_of_keys(batch, self._key_serde) if self._reads else []
        if keys is None:
            return False
        self._state.load(key for key in keys if key is not None)
        return True

    def put(self, batch: ColumnBatch) -> Batch | None:
        """Write the changes of a batch, the last one of each key, and return those to pass on. ``None``: row by row;
        nothing was done."""
        column = batch.value_column
        news = self._values.of_column(column)
        keys = None if news is None else bytes_of_keys(batch, self._key_serde)
        if column is None or news is None or keys is None or None in keys:
            return None
        listed = news.to_list()
        if not self._reads:
            self._state.put_raw(keys, listed, [], batch.timestamps)  # type: ignore[arg-type]  # none is null
            return batch.replace(values=column)
        olds = self._before(keys, listed)  # type: ignore[arg-type]  # none is null
        if olds is None:
            return None
        out = batch.with_olds(column, self._values.column(olds)) if self._sends_olds else batch.replace(values=column)
        nulls, absent = nulls_of(news), olds.nulls
        if nulls is not None and absent is not None and (nothing := nulls & absent).any():
            kept = np.flatnonzero(~nothing)
            out = out.pick(kept)
            keys, listed = [keys[i] for i in kept.tolist()], [listed[i] for i in kept.tolist()]
        self._state.put_raw(keys, listed, [], out.timestamps)  # type: ignore[arg-type]  # none is null
        return out

    def _before(self, keys: list[bytes], news: list[bytes | None]) -> BytesColumn | None:
        """The row of each key before its change: what the store holds, or the change before it."""
        olds = self._values.canonical(texts_of(entries_of(self._state, keys)))
        if olds is None or len(set(keys)) == len(keys):
            return olds
        return BytesColumn.of(rows_before(olds, keys, news))


def stored_rows(store: StoreSpec, state: KeyValueStoreView, *, reads: bool, sends_olds: bool) -> StoredRows | None:
    """For a store that keeps texts as bytes; ``None`` for others."""
    values = row_values(store.value_serde) if store.as_bytes else None
    return None if values is None else StoredRows(values, state, store.key_serde, reads=reads, sends_olds=sends_olds)
