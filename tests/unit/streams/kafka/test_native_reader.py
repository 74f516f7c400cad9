"""What the compiled reader's answers become: columns where there are many records, lists where there are few."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from penstock.streams.kafka.client_config import consumer_config
from penstock.streams.kafka.consumer import KafkaConsumer
from penstock.streams.kafka.native_reader import FEWEST_IN_COLUMNS, NativeReader
from penstock.topologies.operator_api.columns import BytesColumn


class Queue:
    """Stands for ``penstock_native.Reader``: partitions with so many records each, of which every third has no key."""

    def __init__(self, *counts: int) -> None:
        self._counts = counts

    def drain(self, most: int, timeout_ms: int) -> tuple[list[Any], list[Any]]:
        """All of them."""
        return [self._raw(p, count) for p, count in enumerate(self._counts)], []

    def _raw(self, partition: int, count: int) -> tuple[Any, ...]:
        sides = []
        for some in ([None if i % 3 == 0 else b"k%d" % i for i in range(count)], [b"v%d" % i for i in range(count)]):
            column = BytesColumn.of(some)
            nulls = None if column.nulls is None else column.nulls.tobytes()
            sides.append((bytes(column.data), column.offsets.astype(np.int64).tobytes(), nulls))
        times = np.arange(count, dtype=np.int64).tobytes()
        return "t", partition, 7, 6 + count, None, times, *sides, None, 3 + partition, None, True


@pytest.mark.parametrize(
    ("counts", "columns"),
    [
        ((1,), False),
        ((FEWEST_IN_COLUMNS - 1,), False),
        ((FEWEST_IN_COLUMNS,), True),
        ((3, FEWEST_IN_COLUMNS - 4), False),
        ((3, FEWEST_IN_COLUMNS - 3), True),
    ],
)
def test_few_records_come_as_lists_and_many_as_columns(counts: tuple[int, ...], columns: bool) -> None:
    drained = NativeReader(Queue(*counts)).drain(10_000, 0.0)  # type: ignore[arg-type]  # stands for the compiled one
    assert [len(chunk) for chunk in drained.chunks] == list(counts)
    for chunk, count in zip(drained.chunks, counts, strict=True):
        assert (chunk.key_column is not None) == (chunk.value_column is not None) == columns
        assert chunk.keys == [None if i % 3 == 0 else b"k%d" % i for i in range(count)]
        assert chunk.values == [b"v%d" % i for i in range(count)]
        assert chunk.timestamps == list(range(count))
        assert chunk.offsets == range(7, 7 + count)
        assert chunk.leader_epoch == 3 + chunk.partition


class Stuck(Queue):
    """Cannot be closed."""

    def close(self) -> None:
        """As where another thread is reading."""
        raise RuntimeError("the reader is in use by another thread")


def test_a_reader_that_cannot_be_closed_does_not_keep_the_client_open() -> None:
    consumer = KafkaConsumer(consumer_config("127.0.0.1:1", "g", {}), native="off")
    client = consumer._client
    assert client is not None
    consumer._reader = NativeReader(Stuck())  # type: ignore[arg-type]  # stands for the compiled one
    with pytest.raises(RuntimeError, match="in use"):
        consumer.close()
    with pytest.raises(RuntimeError, match="closed"):
        client.consume(1, 0.0)
    consumer.close()
