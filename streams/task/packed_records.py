"""Records of a sink that packs many rows into one record, by partition."""

from __future__ import annotations

import numpy as np

from penstock.state.errors import ProcessingError
from penstock.streams.task.output import Output
from penstock.topologies.columnar.kernels import partitions_of
from penstock.topologies.columnar.packing import ROWS_MAX, pack
from penstock.topologies.operator_api.columns import BytesColumn, Ints


def packed_output(
    topic: str, keys: BytesColumn, values: BytesColumn, times: Ints, orders: Ints, partitions: int, max_bytes: int
) -> Output:
    """Pack rows into records of many rows each, in the partitions of their keys; rows of one partition keep their
    order. A record has the highest timestamp of its rows, and the order of the last. Raises ``ProcessingError`` if a
    row is larger than a record may be, or has no key or value."""
    if keys.nulls is not None or values.nulls is not None:
        raise ProcessingError(f"topic {topic}: a record without a key or a value cannot go packed")
    chosen = partitions_of(keys, partitions)
    places = np.argsort(chosen, kind="stable")
    keys, values, times, orders = keys.take(places), values.take(places), times[places], orders[places]
    ends = np.cumsum(np.bincount(chosen, minlength=partitions)).tolist()
    records: list[tuple[int, int, bytes, int]] = []
    for partition, (begin, end) in enumerate(zip([0, *ends], ends, strict=False)):
        waiting = [(i, min(i + ROWS_MAX, end)) for i in range(begin, end, ROWS_MAX)][::-1]
        while waiting:
            start, stop = waiting.pop()
            data = pack(keys.slice(start, stop), values.slice(start, stop), times[start:stop])
            if len(data) <= max_bytes:
                records.append((int(orders[stop - 1]), partition, data, int(times[start:stop].max())))
            elif stop - start > 1:
                half = (start + stop) // 2
                waiting += [(half, stop), (start, half)]
            else:
                raise ProcessingError(
                    f"a partial aggregate of {len(data)} bytes is over max_record_bytes={max_bytes}; keep less in it, or "
                    "raise the limit here, in the topic (max.message.bytes) and in the producer (message.max.bytes)"
                )
    records.sort(key=lambda record: record[0])
    return Output(
        topic,
        [None] * len(records),
        [data for _, _, data, _ in records],
        [ts for _, _, _, ts in records],
        None,
        [p for _, p, _, _ in records],
        [at for at, _, _, _ in records],
    )
