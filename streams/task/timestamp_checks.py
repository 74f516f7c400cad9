"""Timestamp validation: find the records of a chunk with invalid timestamps, before the feed orders by them."""

from __future__ import annotations

from penstock.streams.ports.chunk import Chunk, ascending, highest, lowest
from penstock.streams.task.error_policies import Policies
from penstock.topologies.operator_api.operator import NO_TIME


def check_timestamps(
    chunk: Chunk, partition_time_ms: int, policies: Policies, now_ms: int | None, began_ms: int = NO_TIME
) -> tuple[Chunk, int, dict[int, str]]:
    """Return the chunk with usable timestamps, the partition's stream time after it, and the errors by offset.

    ``now_ms`` is the clock of a live run, ``None`` elsewhere. ``began_ms`` is the committed clock reading when the
    partition's first record arrived, if known: records before any stream time are measured against it. Invalid records
    take the partition's stream time (0 before any), so they keep a place in the order; with ``clamp`` nothing else
    happens to them. A stream time of 0 counts as none.
    """
    times = chunk.times
    if not len(times):
        return chunk, partition_time_ms, {}
    ahead = policies.future_timestamp_max_ms
    by_clock = policies.timestamp == "fail"
    limit = now_ms if by_clock else (partition_time_ms if partition_time_ms > 0 else None)
    rising = ascending(times)
    top = int(times[-1]) if rising else highest(times, 0, len(times))
    # stream time only grows, so a record near enough to the chunk's start is near enough at its place
    near = by_clock if limit is None else top <= limit + ahead
    if near and (times[0] if rising else lowest(times, 0, len(times))) >= 0:
        return chunk, max(partition_time_ms, top), {}
    usable: list[int] = []
    wrong: dict[int, str] = {}
    time = partition_time_ms
    first_base = None if began_ms == NO_TIME else began_ms
    for offset, ts in zip(chunk.offsets, chunk.timestamps, strict=True):
        base = limit if by_clock else (time if time > 0 else first_base)
        if ts < 0:
            problem = f"timestamp {ts} ms is negative"
        elif base is not None and ts > base + ahead:
            what = "the clock" if by_clock else "the partition's stream time" if time > 0 else "the clock of that time"
            problem = f"timestamp {ts} ms is {ts - base} ms ahead of {what} ({base} ms); {ahead} ms are allowed"
        else:
            time = max(time, ts)
            usable.append(ts)
            continue
        wrong[offset] = problem
        usable.append(max(time, 0))
    if not wrong:
        return chunk, time, {}
    marked = {} if policies.timestamp == "clamp" else wrong
    return chunk.with_times(usable), time, marked
