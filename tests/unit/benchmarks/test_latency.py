"""A sender that falls behind is counted, and a click that is lost is not made up for by one that comes twice."""

from __future__ import annotations

from typing import Any, cast

import pytest
from confluent_kafka import Message

from benchmarks import clicks as clicks_module
from benchmarks import latency as latency_module
from benchmarks import live as live_module
from benchmarks.bench import Bench
from benchmarks.clicks import Clicks, Enriched
from benchmarks.latency import Load, figures
from benchmarks.report import latency_table


class Came:
    """As much of a message as is read."""

    def __init__(self, number: int, due_us: int, user: int = 1) -> None:
        self._value = b'{"user":"u%07d","url":"/page/%d","ts":%d,"profile":{"name":"n"}}' % (user, number, due_us)

    def key(self) -> bytes:
        return b"u0000001"

    def value(self) -> bytes:
        return self._value


class Sent:
    """As much of a sender as is read."""

    def __init__(self, sent: int) -> None:
        self.sent = sent


def found(numbers: list[int], sent: int, *, once: bool, first: int = 2) -> dict[str, Any]:
    """What is said of these clicks, each 5 ms late, where so many were sent and those from ``first`` on are measured."""
    enriched = Enriched(lambda _: "n")
    for number in numbers:
        enriched.take([cast(Message, Came(number, number * 1_000))], number * 1_000 + 5_000)
    return figures(cast(Clicks, Sent(sent)), enriched, first, enriched.arrays(first), once=once)


def test_a_loss_hidden_by_a_repeated_click_is_seen() -> None:
    said = found([0, 1, 2, 3, 3], 5, once=False)
    assert said["void"] == "2 of 3 clicks came back within 20 s of the last"


@pytest.mark.parametrize("once", [True, False])
def test_repeated_clicks_are_counted_and_void_exactly_once(once: bool) -> None:
    said = found([0, 1, 1, 2, 3, 4, 4, 2], 5, once=once)
    assert said["repeated"] == 2
    assert said.get("void", "") == ("2 clicks came more than once" if once else "")
    whole = found([0, 0, 2, 3, 4], 5, once=once)
    assert (whole["repeated"], whole["max_ms"], whole["since"]) == (0, 5.0, "due")


def test_repeated_clicks_stand_in_the_table() -> None:
    row = {"system": "x", "guarantee": "ALO", "rate_per_s": 5, "cpu_share": 0.0, "broker_share": 0.0, "void": ""}
    row |= dict.fromkeys(("p50_ms", "p90_ms", "p99_ms", "max_ms"), 1.0)
    assert "every click came back, 7 came again" in latency_table([{**row, "repeated": 7}])
    assert "again" not in latency_table([row])


class Broker:
    """As much of a benchmark as is read while clicks are sent."""

    def broker_cpu_s(self) -> float:
        return 0.0


class Clock:
    """Time that passes only while someone sleeps."""

    def __init__(self) -> None:
        self._now_us = 0

    def now_us(self) -> int:
        return self._now_us

    def sleep(self, seconds: float) -> None:
        self._now_us += round(seconds * 1e6)


class Loop:
    """A client whose records come back at once; handing one over takes ``slow_s``."""

    def __init__(self, enriched: Enriched, clock: Clock, slow_s: float) -> None:
        self._enriched, self._clock, self._slow_s = enriched, clock, slow_s

    def poll(self, _: float) -> None: ...

    def flush(self) -> None: ...

    def produce(self, topic: str, key: bytes, value: bytes, timestamp_ms: int) -> None:
        self._clock.sleep(self._slow_s)
        self._enriched.take([cast(Message, Record(key, value))], self._clock.now_us())


class Record(Came):
    """A click as it was sent."""

    def __init__(self, key: bytes, value: bytes) -> None:
        self._key, self._value = key, value

    def key(self) -> bytes:
        return self._key


def test_a_sender_that_falls_behind_makes_the_waits_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, enriched = Clock(), Enriched(None)
    loop = Loop(enriched, clock, 0.004)
    monkeypatch.setattr(latency_module, "REPEATS_S", 0.0)
    monkeypatch.setattr(live_module, "sleep", clock.sleep)
    monkeypatch.setattr(live_module, "now_us", clock.now_us)
    monkeypatch.setattr(clicks_module, "new_producer", lambda _: loop)
    monkeypatch.setattr(clicks_module, "produce", lambda client, *row: client.produce(*row))
    sender = Clicks("nowhere", "t", 10)
    said = latency_module._steadily(cast(Bench, Broker()), None, sender, enriched, Load(1_000, 0.01, 0.1), once=True)
    # A hundred clicks are due in 0.1 s, one a millisecond, and handing each over takes 4 ms: those due while a call hands
    # over what was due before it wait for the next call: 1, 4, 16, 64 and 15. The last is due at 99 ms and leaves at 400 ms.
    assert said["max_ms"] == pytest.approx(301, abs=3)
    assert said["sender_behind_s"] == pytest.approx(0.256, abs=0.003)
    assert sender.sent == 110
