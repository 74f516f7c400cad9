"""Numbered clicks for ``enrich``, and the enriched ones that come back: none may be lost, and each must have the profile of
its own user."""

from __future__ import annotations

import subprocess
import time
from array import array
from collections.abc import Callable

import numpy as np
import orjson
from confluent_kafka import Message

from benchmarks import data
from benchmarks.live import Ints, new_producer, now_us, produce

SETTLE = 200
"""Clicks that must come back before anything is measured."""


class Clicks:
    """Sends numbered clicks of users chosen evenly; the number is the page's."""

    def __init__(self, bootstrap: str, topic: str, users: int) -> None:
        self.sent = 0
        self._topic, self._users = topic, users
        self._random = np.random.default_rng(1)
        self._producer = new_producer(bootstrap)

    def send(self, moments: Ints) -> None:
        """One click for each moment at which one is due."""
        users = self._random.integers(0, self._users, len(moments)).tolist()
        for number, (user, due_us) in enumerate(zip(users, moments.tolist(), strict=True), self.sent):
            value = b'{"user":"u%07d","url":"/page/%d","ts":%d}' % (user, number, due_us)
            produce(self._producer, self._topic, data.user_key(user), value, due_us // 1000)
        self.sent += len(moments)
        self._producer.poll(0)

    def flush(self) -> None:
        """Wait until all are with the broker."""
        self._producer.flush()


class Enriched:
    """The enriched clicks that came: number, when due, when received (µs). ``strangers``: how many had not the profile
    whose name is ``name(user)``; where ``name`` is ``None``, clicks are as they were sent and have none."""

    def __init__(self, name: Callable[[int], str] | None) -> None:
        self._name = name
        self._columns = array("q"), array("q"), array("q")
        self.strangers = 0

    def take(self, messages: list[Message], came_us: int) -> None:
        """Keep what a receiver brought."""
        numbers, due, came = self._columns
        for message in messages:
            click = orjson.loads(message.value() or b"null")
            if self._name and (click.get("profile") or {}).get("name") != self._name(int((message.key() or b"u0")[1:])):
                self.strangers += 1
            numbers.append(int(click["url"][6:]))
            due.append(click["ts"])
            came.append(came_us)

    def __len__(self) -> int:
        return len(self._columns[0])

    def arrays(self, first: int = 0) -> tuple[Ints, Ints, Ints]:
        """Number, due and came of the first arrival of each click from number ``first`` on, by number."""
        # The thread appends to the last column last.
        count = len(self._columns[2])
        numbers, due, came = (np.array(column[:count], dtype=np.int64) for column in self._columns)
        _, places = np.unique(numbers, return_index=True)
        places = places[numbers[places] >= first]
        return numbers[places], due[places], came[places]

    def repeated(self, first: int = 0) -> int:
        """How many arrivals of clicks from number ``first`` on were not a click's first."""
        numbers = np.array(self._columns[0][: len(self._columns[2])], dtype=np.int64)
        numbers = numbers[numbers >= first]
        return len(numbers) - len(np.unique(numbers))

    def await_all(self, first: int, end: int, limit_s: float) -> tuple[Ints, Ints, Ints]:
        """``arrays`` of the clicks from ``first`` to ``end``, once all came or the time is over."""
        patience = time.monotonic() + limit_s
        while len(self) < end - first and time.monotonic() < patience:
            time.sleep(0.05)
        while True:
            found = self.arrays(first)
            if len(found[0]) >= end - first or time.monotonic() > patience:
                return found
            time.sleep(0.5)


def lost(clicks: Clicks, first: int, numbers: Ints, enriched: Enriched) -> str:
    """Why the answer is wrong, empty if every click from number ``first`` on came with its own user's profile."""
    if len(numbers) != clicks.sent - first:
        return f"{len(numbers):,} of {clicks.sent - first:,} clicks came back"
    return f"{enriched.strangers:,} clicks came without their user's profile" if enriched.strangers else ""


def settle(process: subprocess.Popen[bytes], clicks: Clicks, enriched: Enriched, limit_s: float) -> str:
    """Send a few clicks until ``SETTLE`` in a row come back, so that tables are loaded; why not, if they do not."""
    patience = time.monotonic() + limit_s
    while time.monotonic() < patience:
        if process.poll() is not None:
            return f"the program ended with status {process.returncode}, see its log"
        first = clicks.sent
        clicks.send(np.full(SETTLE, now_us()))
        clicks.flush()
        if len(enriched.await_all(first, clicks.sent, 10.0)[0]) == SETTLE:
            return ""
    return f"clicks did not come back within {limit_s:.0f} s, see the program's log"
