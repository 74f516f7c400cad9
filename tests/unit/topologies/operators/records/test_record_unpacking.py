"""Partials are read as columns only where every row could be read alone."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from penstock.state.native import compiled
from penstock.state.serdes.serde import BYTES, FLOAT, INT, INT32, STRING, Serde
from penstock.topologies.aggregators.bag import Bag
from penstock.topologies.aggregators.encoding import BAGS, joined
from penstock.topologies.columnar.encoded_columns import EncodedColumn
from penstock.topologies.columnar.packing import pack
from penstock.topologies.operator_api.batch import Batch, ColumnBatch
from penstock.topologies.operator_api.columns import BytesColumn
from penstock.topologies.operators.records.record_unpacking import Unpacker

ONE = INT.serialize(1)


def unpacked(
    key: Serde[Any], value: Serde[Any], *records: tuple[list[bytes], list[bytes]], in_columns: bool = True
) -> tuple[Batch, bool]:
    packed = [pack(BytesColumn.of(keys), BytesColumn.of(values), np.arange(len(keys))) for keys, values in records]
    batch = Batch([None] * len(packed), packed, [0] * len(packed), [5 * i for i in range(len(packed))])
    ctx: Any = None  # which is asked for nothing where nothing fails
    return Unpacker(ctx, key, value, in_columns=in_columns).unpacked(batch)


@pytest.mark.parametrize(
    ("key", "keys", "columns"),
    [
        (STRING, [b"a", b"bc", b""], True),
        (STRING, ["é".encode(), b"", "日本".encode()], True),
        (STRING, ["é".encode()[:1], "é".encode()[1:]], False),
        (STRING, [b"\xff"], False),
        (BYTES, [b"\xff", b""], True),
        (INT, [ONE, INT.serialize(-7)], True),
        (INT, [ONE, ONE[:7]], False),
        (INT, [ONE[:4], ONE + ONE[:4]], False),
        (INT32, [ONE[4:]], True),
        (INT32, [ONE], False),
        (FLOAT, [ONE], False),
    ],
)
def test_keys_that_cannot_be_read_alone_are_left_as_bytes(key: Serde[Any], keys: list[bytes], *, columns: bool) -> None:
    batch, whole = unpacked(key, INT, (keys, [ONE] * len(keys)), (keys, [INT.serialize(-2)] * len(keys)))
    assert (whole, isinstance(batch, ColumnBatch)) == (columns, columns)
    assert batch.keys == ([key.deserialize(k) for k in keys * 2] if columns else keys * 2)
    assert batch.values == (
        [1] * len(keys) + [-2] * len(keys) if columns else [ONE] * len(keys) + [INT.serialize(-2)] * len(keys)
    )
    assert batch.order == [0] * len(keys) + [5] * len(keys)
    assert batch.timestamps == list(range(len(keys))) * 2


def test_values_of_other_lengths_and_columns_switched_off() -> None:
    assert not unpacked(BYTES, INT, ([b"a", b"b"], [ONE[:4], ONE + ONE[:4]]))[1]
    assert not unpacked(BYTES, STRING, ([b"a"], [ONE]))[1]
    assert not unpacked(BYTES, INT, ([b"a"], [ONE]), in_columns=False)[1]


def test_partials_with_distinct_values_are_columns_if_all_can_be_read() -> None:
    serde = joined((INT, BAGS))
    good = serde.serialize((3, Bag([(b"a", 1), (b"b", 2)])))
    batch, whole = unpacked(BYTES, serde, ([b"k"], [good]), ([b"l", b"m"], [good, serde.serialize((0, Bag()))]))
    in_columns = compiled() is not None
    assert (whole, isinstance(batch.value_column, EncodedColumn)) == (in_columns, in_columns)
    if in_columns:
        assert batch.values == [serde.deserialize(good), serde.deserialize(good), (0, Bag())]
    for bad in (b"", good[:-1], good + b"x", msgspec.msgpack.encode([ONE, b"\x91\x92\xa1a\x01"])):
        assert not unpacked(BYTES, serde, ([b"k", b"l"], [good, bad]))[1]
    assert not unpacked(BYTES, serde, ([b"k"], [good]), in_columns=False)[1]
