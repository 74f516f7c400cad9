"""Check on a small batch that compiled kernels give the same results as their Python twins, before they are used."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from penstock.state import native
from penstock.state.recovery.changelog import from_changelog_columns, from_packed_changelog
from penstock.state.serdes.serde import BYTES, INT, STRING, Serde, typed_json
from penstock.state.stores.count_store import CountStoreView, state_of
from penstock.state.stores.entry_cache import new_entries
from penstock.state.stores.memory_backend import MemoryBackend
from penstock.state.stores.segmented_store import DistinctKeys, SegmentedState
from penstock.state.stores.store import StampedPuts, StoreSpec, StoreWrites
from penstock.state.stores.store_view import KeyValueStoreView
from penstock.state.stores.write_buffer import put_entries
from penstock.topologies.aggregators.encoding import FLAT, joined
from penstock.topologies.aggregators.members_apart import DISTINCT_COUNT
from penstock.topologies.columnar import kernels
from penstock.topologies.columnar.avro_columns import AvroCoder, AvroForm, AvroProjection
from penstock.topologies.columnar.avro_writing import avro_writer
from penstock.topologies.columnar.column_parts import packed_values
from penstock.topologies.columnar.json_columns import JsonProjection
from penstock.topologies.columnar.json_writing import DictOf, written_json
from penstock.topologies.operator_api.columns import (
    BytesColumn,
    CodedColumn,
    Column,
    NumberColumn,
    StructColumn,
)
from penstock.topologies.operators.columnar.distinct_check import bags_written, members_kept
from penstock.topologies.operators.columnar.latest_check import latest_kept
from penstock.topologies.operators.columnar.pane_check import panes_counted
from penstock.topologies.operators.columnar.part_check import parts_tallied
from penstock.topologies.operators.columnar.row_texts import row_texts
from penstock.topologies.operators.columnar.session_check import sessions_joined, sessions_of_parts
from penstock.topologies.operators.columnar.text_check import texts_computed
from penstock.topologies.operators.patterns.pattern_check import patterns_matched

_KEYS: StoreSpec[Any] = StoreSpec("keys", "key_value", BYTES, BYTES)
_WINDOWS: StoreSpec[Any] = StoreSpec("windows", "window", BYTES, BYTES)


class _Sample(msgspec.Struct):
    s: str | None
    i: int = -1
    f: float = 0.5
    b: bool = True


class _Outer(msgspec.Struct):
    o: _Sample | None = None
    i: int | None = None


class _TrialRow(msgspec.Struct, frozen=True):
    s: str
    i: int | None
    b: bool


_TEXTS: list[bytes | None] = [
    *(
        b"two Words",
        b"",
        None,
        b" \x1cTwo\tWORDS\x1f",
        "é É".encode(),
        b"\xff",
        b"\x00",
        b"two",
        b"a key of some length" * 3,
    ),
    *(b'{"s":"x","i":12,"f":1.5,"b":false}', b'{"s":"y","i":-7,"f":1e-7,"b":true}', b'{"s":"x","i":0,"f":-0.0}'),
    # what opens a record, instead of a comma
    *(b'{"z":1{"s":"x","i":12}', b'{"z":"y"{"s":"x","i":12,"f":1.5,"b":false}', b'{"i":7{"s":"x","i":12}'),
    *(
        b' { "b" : false , "s" : null } ',
        b'{"s":"\\u0041","f":3}',
        b'{"s":"x","s":"y"}',
        b'{"s":"x","i":1.0}',
        b'{"s":"x"',
    ),
    *(
        '{"s":"é","z":[{"":[null]}]}'.encode(),
        b'{"s":"\xe9"}',
        b'{"s":"x","i":9223372036854775808}',
        b'{"s":"x","f":1e400}',
    ),
]


def why_not_trusted() -> str | None:
    """The first difference of the compiled kernels; ``None`` if they are right or not in use. Most of the time is the
    twins'."""
    module = native.compiled()
    if module is None:
        return None
    for name, run in _CHECKS.items():
        try:
            with native.without():
                expected = run()
            found = run()
        except Exception as exc:  # for any failure, the twins still work
            return f"the compiled part fails at {name}: {type(exc).__name__}: {exc}"
        if found != expected:
            return f"the compiled part is wrong at {name}: {found!r:.200}, not {expected!r:.200}"
    return None


def _columns() -> Any:
    column = BytesColumn.of(_TEXTS)
    return [column.to_list(), column.take(np.array([4, 2, 2, 0], np.intp)).to_list()]


def _codes() -> Any:
    coder = kernels.Coder()
    found = [coder.code(BytesColumn.of(_TEXTS[start:] + _TEXTS)) for start in (0, 5)]
    return [(column.codes.tolist(), column.values) for column in found]


def _changelogs() -> Any:
    """Records that a store of either kind may have written, two of each key."""
    keys = BytesColumn.of(
        [(text or b"") + (n % len(_TEXTS)).to_bytes(8, "big") + bytes(4) for n, text in enumerate(_TEXTS * 2)]
    )
    values, times = BytesColumn.of(_TEXTS * 2), np.arange(2 * len(_TEXTS), dtype=np.int64) - 1
    out: list[Any] = []
    for spec in (_KEYS, _WINDOWS):
        packed = from_packed_changelog(spec, keys.raw(), values.raw(), times)
        rows = from_changelog_columns(spec, keys.to_list(), values.to_list(), times.tolist())
        out.append(dict(rows) if packed is None else dict(zip(*packed.listed(), strict=True)))
    return out


def _partitions() -> Any:
    return kernels.partitions_of(BytesColumn.of(_TEXTS), 7).tolist()


def _groups() -> Any:
    out: list[Any] = []
    values = np.array([3, -1, 1 << 62, 1 << 62, 5, -2], np.int64)
    for codes, bound in (([2, 0, 2, 2, 1, 0], 3), ([1 << 40, 0, 7, 1 << 40, 7, 0], 1 << 41)):
        groups = kernels.grouped(np.array(codes, np.int64), bound)
        out += [part.tolist() for part in groups]
        out += [kernels.highest(groups, values).tolist(), kernels.highest_so_far(groups, values).tolist()]
        out.append(kernels.counted_so_far(groups).tolist())
        sums = kernels.summed(groups, values)
        out.append(None if sums is None else sums.tolist())
    return out


def _words() -> Any:
    found = kernels.split_words(BytesColumn.of(_TEXTS), lower=True)
    words = found.distinct.take(found.codes.astype(np.intp)).to_list()
    return words, found.counts.tolist(), [(row, str(exc)) for row, exc in found.failed]


def _fields() -> Any:
    projection = JsonProjection(_Sample, ["s", "i", "f", "b"], msgspec.json.Decoder(_Sample).decode)
    columns, failed = projection.read(BytesColumn.of(_TEXTS * 3))
    bad = [row for row, _ in failed]
    # by their text, which tells -0.0 from 0.0
    return [repr(np.delete(np.array(c.to_list(), object), bad).tolist()) for c in columns.values()], bad


def _objects() -> Any:
    texts = [b'{"i":%d,"o":%b}' % (len(text or b""), text or b"null") for text in _TEXTS * 2]
    names = ["s", "i", "f", "b"]
    projection = JsonProjection(_Outer, ["i", *(("o", name) for name in names)], msgspec.json.Decoder(_Outer).decode)
    columns, failed = projection.read(BytesColumn.of([*texts, None, b"{}"]))
    bad = [row for row, _ in failed]
    left = np.delete(np.arange(len(texts) + 2), bad)
    objects = columns["o"].take(left)
    assert isinstance(objects, StructColumn)
    parts = [columns["i"].take(left), objects, *(objects.fields[name] for name in names)]
    return [repr(part.to_list()) for part in parts], bad


_KINDS: dict[str, Any] = {"s": ["null", "string"], "i": "int", "f": "double", "b": "boolean"}
_FIRST: dict[int, Any] = {
    1: {"type": "record", "name": "r", "fields": [{"name": name, "type": kind} for name, kind in _KINDS.items()]}
}
_AVRO: dict[bytes, _Sample] = {
    b"\0\0\0\0\1\2\2x\x17" + bytes(6) + b"\xf8\x3f\1": _Sample("x", -12, 1.5, True),
    b"\0\0\0\0\1\0\x80\2" + bytes(8) + b"\0": _Sample(None, 128, 0.0, False),
    b"\0\0\0\0\2\x0f\4\xc3\xa9": _Sample("\u00e9", -1, -8.0, True),
}
"""Records of two schemas, and what they are."""


class _TrialAvro(AvroCoder):
    """Knows the records of the first schema."""

    def avro_form(self) -> AvroForm:
        return AvroForm(_Sample, None, True, _FIRST.get, _FIRST.get)

    def serialize(self, value: _Sample) -> bytes:
        return next(data for data, known in _AVRO.items() if known == value)

    def deserialize(self, data: bytes) -> _Sample:
        return _AVRO[data]


def _avro_written() -> Any:
    coder = _TrialAvro()
    serde: Serde[_Sample] = Serde("avro", coder.serialize, coder.deserialize)
    values = [*list(_AVRO.values())[:2], None] * 5
    writer = avro_writer(serde)
    if writer is None:
        return serde.serialize_all(values)
    found = writer.of_values(values)
    return None if found is None else found.to_list()


def _avro_fields() -> Any:
    second = {"type": "record", "name": "r", "fields": [{"name": "f", "type": "long"}, {"name": "s", "type": "string"}]}
    defaults = {"s": "z", "i": -1, "f": 0.5, "b": True}
    reader = {**_FIRST[1], "fields": [{**field, "default": defaults[field["name"]]} for field in _FIRST[1]["fields"]]}
    form = AvroForm(_Sample, reader, True, {**_FIRST, 2: second}.__getitem__)
    projection = AvroProjection(form, ["s", "i", "f", "b"], _AVRO.__getitem__)
    found = []
    for damage in (b"", b"\0"):
        columns, failed = projection.read(
            BytesColumn.of([None, *(data + damage for data in _AVRO), b"\0\0\0\0\3\0", *_AVRO])
        )
        bad = [row for row, _ in failed]
        found.append(([repr(np.delete(np.array(c.to_list(), object), bad).tolist()) for c in columns.values()], bad))
    return found


def _written() -> Any:
    texts = CodedColumn(np.array([0, 1, 2, 1], np.int32), ["plain", "two words", "not us\u00e9d"])
    numbers = np.array([0, -1, 1 << 62, -(1 << 63)], np.int64)
    nulls = np.array([False, True, False, False])
    inner = StructColumn({"n": NumberColumn(numbers)}, DictOf(["n"]), nulls)
    fields: dict[str, Column] = {"t": texts.slice(0, 2), "n": NumberColumn(numbers, nulls).slice(0, 2)}
    found = []
    for column in (
        StructColumn(fields, DictOf(fields)),
        StructColumn({"t": texts, "inner": inner, "f": NumberColumn(numbers / 3)}, DictOf(["t", "inner", "f"]), nulls),
    ):
        json = written_json(column, msgspec.json.encode)
        found.append(json.to_list() if isinstance(json, Column) else json)
    return found


def _forms() -> Any:
    serde = typed_json(_TrialRow)
    texts = row_texts(serde)
    backend = MemoryBackend([StoreSpec("rows", "key_value", STRING, serde)])
    rows = [b'{"s":"x","i":-12,"b":false}', b'{"i":1,"s":"x","b":true}', '{"s":"\u00e9","i":0, "b":true}'.encode()]
    keys = [b"%d" % i for i in range(len(rows))]
    backend.commit([StoreWrites("rows", [(k, bytes(8) + row) for k, row in zip(keys, rows, strict=True)], b"p")])
    state = KeyValueStoreView(StoreSpec("rows", "key_value", STRING, serde), backend)
    if texts is None:
        return [*(serde.serialize(serde.deserialize(row)) for row in rows), None]
    found = texts.of(BytesColumn.of([*keys, b"none"]), state)
    return None if found is None else found.raw.to_list()


def _tally() -> Any:
    spec = StoreSpec("counts", "key_value", BYTES, INT)
    backend = MemoryBackend([spec])
    state = state_of(spec, backend)
    keys = [text for text in _TEXTS * 20 if text is not None] + [b"%d" % n for n in range(1_100)]
    out: list[Any] = []
    for start in (0, 7, 400):
        _count(state, BytesColumn.of(keys[start:]), np.arange(len(keys) - start, dtype=np.int64) ^ 5)
        if start == 7:
            out.append(state.get(b"two"))  # has all of the tally put into the view
        written = state.pending()
        out.append(sorted(zip(*written, strict=True)))
        backend.commit([StoreWrites(spec.name, list(zip(*written[:2], strict=True)), b"")])
        state.committed()
    return out


def _count(state: KeyValueStoreView, column: BytesColumn, times: NDArray[np.int64]) -> None:
    data, offsets, _ = column.raw()
    if isinstance(state, CountStoreView) and state.count(data, offsets, times):
        return
    for key, ts in zip(column.to_list(), times.tolist(), strict=True):
        assert key is not None
        count, latest = state.get(key) or (0, ts)
        state.put(key, count + 1, max(ts, latest))


def _coded_tally() -> Any:
    """Rows, rows by code and rows with counts, in turns, into one tally and what a store held, which its memory
    knows in part."""
    keys: list[bytes] = [text for text in _TEXTS if text is not None] + [b"%d" % n for n in range(40)]
    distinct = [b"of no row", *sorted(set(keys), reverse=True)]
    codes = np.array([distinct.index(key) for key in keys], np.int32)
    times = np.arange(len(keys), dtype=np.int64) ^ 5
    counts = times % 3 + (1 << 40)
    compiled = native.compiled()
    if compiled is None:
        entries = dict.fromkeys(keys, (7, 9))
        for more in (np.ones_like(counts), counts, np.ones_like(counts)):
            for key, count, at in zip(keys, more.tolist(), times.tolist(), strict=True):
                before, latest = entries[key]
                entries[key] = before + count, max(latest, at)
        return [(key, *entry) for key, entry in entries.items()]
    tally, column, coded = compiled.Tally(), BytesColumn.of(keys), BytesColumn.of(distinct)
    taken = tally.add_coded(codes, coded.data, coded.offsets, times)
    taken &= tally.add(column.data, column.offsets, counts, times)
    stored, some = (9).to_bytes(8, "big") + (7).to_bytes(8, "big"), keys[::2]
    known, asked, values = compiled.EntryMap(), BytesColumn.of(some), BytesColumn.of([stored] * len(some))
    known.put_rows(asked.data, asked.offsets, values.data, values.offsets)
    tally.base_from(known, False)
    left = tally.unbased()
    taken &= set(left) == set(keys) - set(some)
    tally.base([stored] * len(left))
    taken &= tally.add_coded(codes, coded.data, coded.offsets, times)
    data, offsets, *sums = tally.columns()
    found = BytesColumn(data, np.frombuffer(offsets, np.int64)).to_list()
    return taken and list(zip(found, *(np.frombuffer(part, np.int64).tolist() for part in sums), strict=True))


def _lists() -> Any:
    """Entries of a list store: found, appended and committed by columns, with equal times, and some that came too late."""
    spec = StoreSpec("lists", "list", BYTES, BYTES, retention_ms=40)
    backend = MemoryBackend([spec])
    buffer = SegmentedState(state := state_of(spec, backend), only_appends=True)
    texts = [text for text in _TEXTS if text is not None]
    names = sorted(set(texts))
    column, values = BytesColumn.of(names), BytesColumn.of(texts)
    keys = DistinctKeys(names, (column.data, column.offsets))
    numbers = np.array([names.index(text) for text in texts], np.int64)
    out: list[Any] = []
    late: NDArray[np.bool_] = numbers == 1
    for start in (0, 30, 30, 110):
        times = start + np.arange(len(texts), dtype=np.int64) % 7
        expired = late if start == 110 else None
        if expired is not None:
            times[late] -= 60
        given = buffer.append_all(keys, numbers, times, (values.data, values.offsets), expired)
        buffer.expire_before(max(start - 40, 0))
        found = buffer.within(keys, start - 20, start + 5)
        read = found.values_at(np.arange(len(found.times) - 1, -1, -2))
        named = found.names_at(np.arange(0, len(found.times), 3))
        again, absent = buffer.values_named([*named, b"nobody" + bytes(12)])
        listed = [some if isinstance(some, list) else BytesColumn(*some).to_list() for some in (read, again)]
        written = state.pending()
        out.append((given.tolist(), found.counts.tolist(), found.times.tolist(), listed, named, written))
        out.append(None if absent is None else absent.tolist())
        backend.commit([StoreWrites(spec.name, list(zip(*written[:2], strict=True)), b"", state.drop_below)])
        state.committed()
    return out


def _stamped() -> Any:
    """Entries with numbers before keys and values, in the memory of a store."""
    texts = [text for text in _TEXTS if text is not None]
    numbers = np.arange(len(texts), dtype=np.int64) - 3
    column = BytesColumn.of(texts)
    puts = StampedPuts(numbers, column.data, column.offsets, numbers * 1_000, column.data, column.offsets)
    put_entries(entries := new_entries(), puts)
    entries.sort_written()
    return entries.written_part(b"p", 0, len(texts))


_TUPLES: list[Any] = [
    (3, (), (2, -1.5), 7),
    (-(1 << 63), ("two Words", "\u00e9" * 40, "x" * 300), (None, True, False, (1 << 64) - 1), 0),
    None,
    (0, (b"\xff", bytes(300), -0.0, float("nan"), float("-inf")), tuple(range(-40, 300, 20)), (1 << 63) - 1),
    (1, tuple(sign << bits for bits in (7, 8, 15, 16, 31, 32) for sign in (1, -1)), (1 << 70, Decimal("1.50")), 5),
]


def _tuples() -> Any:
    """Accumulators as serdes and stores write and read them."""
    serde = joined((INT, FLAT, FLAT, DISTINCT_COUNT))
    spec = StoreSpec("tuples", "key_value", BYTES, serde)
    out: list[Any] = []
    # the last of all is written by Python alone
    for values in (_TUPLES[:-1], _TUPLES):
        data = serde.serialize_all(values)
        out += [data, packed_values(values, serde).to_list(), repr(serde.deserialize_all(data))]
        backend, keys = MemoryBackend([spec]), [b"%d" % n for n in range(len(values))]
        state = KeyValueStoreView(spec, backend)
        for key, value in zip(keys, values, strict=True):
            state.put(key, value, -len(out))
        written = state.pending()
        backend.commit([StoreWrites(spec.name, list(zip(*written[:2], strict=True)), b"")])
        again = KeyValueStoreView(spec, backend)
        out += [written, repr(again.entries_of(keys))]
    flat = [value and value[1] for value in _TUPLES]
    data = FLAT.serialize_all(flat)
    return [*out, data, repr(FLAT.deserialize_all(data))]


_CHECKS: dict[str, Callable[[], Any]] = {
    "columns of bytes": _columns,
    "codes": _codes,
    "partitions": _partitions,
    "records of changelogs": _changelogs,
    "groups": _groups,
    "words": _words,
    "fields of JSON": _fields,
    "objects within JSON": _objects,
    "fields of Avro": _avro_fields,
    "records as Avro": _avro_written,
    "tallies": _tally,
    "tallies of codes": _coded_tally,
    "records as JSON": _written,
    "rows as JSON": _forms,
    "entries of lists": _lists,
    "entries with numbers": _stamped,
    "accumulators": _tuples,
    "sessions": sessions_joined,
    "aggregates of sessions": sessions_of_parts,
    "patterns": patterns_matched,
    "panes": panes_counted,
    "distinct values": bags_written,
    "members": members_kept,
    "latest values": latest_kept,
    "functions of texts": texts_computed,
    "aggregates": parts_tallied,
}
