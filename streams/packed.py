"""Records of a sink that packs them: many in one, by partition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from penstock.state.errors import ProcessingError
from penstock.state.partitioner import partitions_for
from penstock.streams.output import Output
from penstock.topologies.batch import Batch
from penstock.topologies.packing import ROWS_MAX, pack


def packed_output(
    topic: str,
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    batch: Batch,
    partitions: int,
    max_bytes: int,
) -> Output:
    """A batch's rows, given as bytes, as records of many rows each, in the partitions of their keys; rows of one partition
    keep their order. A record has the highest timestamp of its rows, and the order of the last. Raises ``ProcessingError``
    for a row that is larger than a record may be, or has no key or value."""
    if None in keys or None in values:
        raise ProcessingError("a record without a key or a value cannot go packed")
    some_keys, some_values = cast(Sequence[bytes], keys), cast(Sequence[bytes], values)
    timestamps, order = batch.timestamps, batch.order
    by_partition: list[list[int]] = [[] for _ in range(partitions)]
    for i, p in enumerate(partitions_for(some_keys, partitions)):
        by_partition[p].append(i)
    records: list[tuple[int, bytes, int, int]] = []
    for p, places in enumerate(by_partition):
        waiting = [places[i : i + ROWS_MAX] for i in range(0, len(places), ROWS_MAX)]
        waiting.reverse()
        while waiting:
            some = waiting.pop()
            times = [timestamps[i] for i in some]
            data = pack([some_keys[i] for i in some], [some_values[i] for i in some], times)
            if len(data) <= max_bytes:
                records.append((p, data, max(times), order[some[-1]]))
            elif len(some) > 1:
                half = len(some) // 2
                waiting += [some[half:], some[:half]]
            else:
                raise ProcessingError(
                    f"a partial aggregate of {len(data)} bytes is over max_record_bytes={max_bytes}; keep less in it, or "
                    "raise the limit here, in the topic (max.message.bytes) and in the producer (message.max.bytes)"
                )
    records.sort(key=lambda record: record[3])
    return Output(
        topic,
        [None] * len(records),
        [data for _, data, _, _ in records],
        [ts for _, _, ts, _ in records],
        None,
        [p for p, _, _, _ in records],
        [at for _, _, _, at in records],
    )
