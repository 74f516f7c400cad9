"""Timers of processors: each has a name and a key, fires once, and is kept in changelogged stores until then.

An ``event`` timer fires when the watermark has reached its time: no record up to it is expected. A ``processing``
timer fires at the first reading of the clock at or after its time. Timers fire by time, then key, then name.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from penstock.state.serdes.serde import BYTES, INT, Serde
from penstock.state.stores.store import StoreSpec
from penstock.topologies.operator_api.operator import OperatorContext
from penstock.topologies.operators.base.store_timers import TimerQueue, timer_store

Domain = Literal["event", "processing"]
_LENGTH = struct.Struct(">I")
_TAGS: dict[Domain, bytes] = {"event": b"e", "processing": b"p"}


class Timer(NamedTuple):
    """A timer as ``on_timer`` gets it."""

    name: str
    key: Any
    time_ms: int
    domain: Domain


def keyed_timer_stores(operator: str) -> tuple[StoreSpec, ...]:
    """The stores of an operator's timers: when each is due, and those of both kinds by time."""
    return (
        StoreSpec(f"{operator}-timers", "key_value", BYTES, INT),
        timer_store(f"{operator}-event-timers"),
        timer_store(f"{operator}-processing-timers"),
    )


class KeyedTimers:
    """The timers of one operator in one task. Setting one again moves it."""

    def __init__(self, ctx: OperatorContext, operator: str, key_serde: Serde[Any]) -> None:
        times, events, walls = (ctx.state(s.name) for s in keyed_timer_stores(operator))
        self._times = times
        self._queues: dict[Domain, TimerQueue] = {"event": TimerQueue(events), "processing": TimerQueue(walls)}
        self._keys = key_serde
        self._firing: tuple[Domain, int] | None = None

    def set(self, name: str, key: Any, time_ms: int, domain: Domain) -> None:
        """Set or move a timer. While one fires, another of its domain must be due later: otherwise it would fire
        forever."""
        if self._firing is not None and self._firing[0] == domain and time_ms <= self._firing[1]:
            raise ValueError(
                f"timer {name!r} is set to {time_ms} ms while one of {self._firing[1]} ms fires; set it to a later time"
            )
        if time_ms < 0:
            raise ValueError(f"timer {name!r} is set to {time_ms} ms; set it to 0 or later")
        payload = self._payload(name, key)
        self._remove(payload, domain)
        self._times.put(_TAGS[domain] + payload, time_ms, time_ms)
        self._queues[domain].set(time_ms, payload)

    def delete(self, name: str, key: Any, domain: Domain) -> None:
        """Delete a timer, if it exists."""
        self._remove(self._payload(name, key), domain)

    def _remove(self, payload: bytes, domain: Domain) -> None:
        found = self._times.get(_TAGS[domain] + payload)
        if found is not None:
            self._queues[domain].delete(found[0], payload)
            self._times.put(_TAGS[domain] + payload, None, found[1])

    def _payload(self, name: str, key: Any) -> bytes:
        data: bytes = self._keys.serialize(key)
        return _LENGTH.pack(len(data)) + data + name.encode()

    def next_ms(self, domain: Domain) -> int | None:
        """When the next one is due."""
        return self._queues[domain].next_ms

    def due(self, domain: Domain, until_ms: int) -> Iterator[Timer]:
        """Take the due timers, in order; timers set meanwhile are included."""
        try:
            for time_ms, payload in self._queues[domain].in_turn(until_ms):
                found = self._times.get(_TAGS[domain] + payload)
                if found is None or found[0] != time_ms:
                    continue  # deleted or moved by one that fired at the same instant
                self._times.put(_TAGS[domain] + payload, None, time_ms)
                end = _LENGTH.size + _LENGTH.unpack_from(payload)[0]
                self._firing = (domain, time_ms)
                yield Timer(payload[end:].decode(), self._keys.deserialize(payload[4:end]), time_ms, domain)
        finally:
            self._firing = None
