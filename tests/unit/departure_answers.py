"""What topologies of the departures' tests answer, and the functions that they share."""

from __future__ import annotations

from typing import Any

import penstock as ps


def answers(builder: ps.StreamsBuilder, *records: tuple[str, str | None, Any, int]) -> list[tuple[Any, Any, int]]:
    """What comes out for records ``(topic, key, value, timestamp)``, one at a time."""
    with ps.TopologyTestDriver(builder.build(), arrival_order=True) as driver:
        for topic, key, value, ts in records:
            driver.pipe(topic, key, value, ts)
        return [(r.key, r.value, r.timestamp_ms) for r in driver.read("out")]


def by_window(table: Any) -> Any:
    """A windowed table's changes under ``key@start-end``."""
    return table.to_stream(lambda w, v: f"{w.key}@{w.start_ms}-{w.end_ms}", key=str)


def pair(left: Any, right: Any) -> str:
    return f"{left}|{right}"
