"""Objects within JSON records, read into columns, are what the row decoder says, with and without the compiled part."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.state import native
from penstock.topologies.columnar.json_columns import JsonProjection
from penstock.topologies.columnar.record_shapes import why_not_projected
from penstock.topologies.operator_api.columns import BytesColumn, Column, StructColumn
from penstock.topologies.operator_api.required_columns import FieldPath, path_of
from tests.properties.object_records import Event, Row, Whole, Written, record_of

TYPES: list[tuple[Any, list[FieldPath]]] = [
    (Event, ["kind", ("leaf", "s"), ("middle", "leaf", "i"), "strict"]),
    (Event, ["leaf", ("leaf", "b"), ("leaf", "f"), ("middle", "other"), ("middle", "n"), ("strict", "leaf", "s")]),
    (Event, ["kind"]),
    (Event, ["middle"]),
    (Whole, [("middle", "leaf", "s"), ("middle", "other", "f"), ("leaf", "i"), "leaf", "kind"]),
    (Written, [("inner", "leaf", "i"), "inner", ("leaf", "s"), "kind"]),
    (Row, [("leaf", "s"), ("maybe", "f"), "maybe", "kind"]),
]


@pytest.fixture(params=["auto", "off"])
def choice(request: pytest.FixtureRequest) -> Iterator[native.Choice]:
    """With the compiled part, where it is there, and without."""
    native.choose(request.param)
    yield request.param
    native.choose("auto")


def at(record: Any, path: tuple[str, ...]) -> Any:
    """The value at a path; null within null."""
    for name in path:
        record = None if record is None else record[name] if isinstance(record, dict) else getattr(record, name)
    return record


def column_at(columns: dict[str, Column], path: tuple[str, ...]) -> Column:
    column = columns[path[0]]
    for name in path[1:]:
        assert isinstance(column, StructColumn)
        column = column.fields[name]
    return column


def check(tp: Any, fields: list[FieldPath], projection: JsonProjection, records: list[bytes | None]) -> int:
    """Compare, and return how many records could be read."""
    decode = msgspec.json.Decoder(tp).decode
    decoded: dict[int, Any] = {}
    errors: list[tuple[int, str]] = []
    for row, data in enumerate(records):
        try:
            decoded[row] = None if data is None else decode(data)
        except Exception as exc:
            errors.append((row, repr(exc)))
    # as a slice of a larger buffer, which is how batches come
    column = BytesColumn.of([b'{"torn', *records, b"}"]).slice(1, len(records) + 1)
    columns, failed = projection.read(column)
    assert [(row, repr(exc)) for row, exc in failed] == errors
    kept = np.array(list(decoded), np.intp)
    half = kept[::2][::-1]
    for path in map(path_of, fields):
        found = column_at(columns, path)
        assert len(found) == len(records)
        for places in (kept, half):
            wanted = [at(decoded[row], path) for row in places.tolist()]
            # the text tells -0.0 from 0.0, 1 from 1.0 and from True
            assert repr(found.take(places).to_list()) == repr(wanted), path
        if isinstance(found, StructColumn):
            nulls = np.zeros(len(records), np.bool_) if found.nulls is None else found.nulls
            assert nulls[kept].tolist() == [at(decoded[row], path) is None for row in kept.tolist()]
            for start, stop in ((0, 1), (1, 3)):
                some = range(start, min(stop, len(records)))
                if some and all(row in decoded for row in some):
                    cut = found.slice(start, start + len(some)).to_list()
                    assert repr(cut) == repr([at(decoded[row], path) for row in some])
    return len(decoded)


@pytest.mark.parametrize("hostility", [0.0, 0.004, 0.05])
@pytest.mark.parametrize(("tp", "fields"), TYPES)
def test_objects_are_what_the_decoder_says(
    choice: native.Choice, tp: Any, fields: list[FieldPath], hostility: float
) -> None:
    assert why_not_projected(tp, fields) is None
    projection = JsonProjection(tp, fields, msgspec.json.Decoder(tp).decode)
    rng = random.Random(repr((tp, fields)))
    read = sum(
        check(tp, fields, projection, [record_of(rng, tp, hostility) for _ in range(rng.randrange(30))])
        for _ in range(30)
    )
    assert read > 100


@given(st.randoms(use_true_random=True))
def test_any_batch_of_objects(rng: random.Random) -> None:
    tp, fields = rng.choice(TYPES)
    projection = JsonProjection(tp, fields, msgspec.json.Decoder(tp).decode)
    for _ in range(2):
        check(tp, fields, projection, [record_of(rng, tp, 0.03) for _ in range(rng.randrange(20))])


def test_the_compiled_part_reads_objects_itself() -> None:
    """Records that it leaves to the decoder would give the same, so they are counted."""
    if native.compiled() is None:
        pytest.skip("the compiled part is not built")
    asked: list[bytes] = []

    def decode(data: bytes) -> Any:
        asked.append(data)
        return msgspec.json.decode(data, type=Event)

    projection = JsonProjection(Event, ["leaf", ("leaf", "s"), ("middle", "leaf", "i")], decode)
    leaf = b'{"s":"x","i":1}'
    records = [b'{"kind":1}', b'{"kind":1,"leaf":' + leaf + b"}", b'{"kind":1,"middle":{"le af":' + leaf + b"}}"]
    columns, _ = projection.read(BytesColumn.of(records * 20))
    assert not asked
    assert columns["leaf"].to_list()[1] == msgspec.json.decode(
        b'{"s":"x","i":1}', type=type(columns["leaf"].to_list()[1])
    )
    projection.read(BytesColumn.of([b'{"kind":1,"leaf":{"s":"\\n","i":1}}']))
    assert len(asked) == 1
