"""What a case asks of a runner, and what came of it. Values only: runners are in ``drive`` and beside it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from penstock.state.log import Headers, Record, Windowed
from penstock.state.serdes.serde import Serde
from penstock.topologies.graph.topology import Topology
from penstock.topologies.windows import END_OF_TIME_MS
from tests.conformance.case_format import Case
from tests.conformance.compare import Row

_ENCODE = json.JSONEncoder(separators=(",", ":")).encode
"""One encoder for all values: cases are many and small. It writes tuples as lists."""


def _write(value: Any) -> bytes:
    return _ENCODE(value).encode()


def _read(data: bytes) -> Any:
    return json.loads(str(data, "utf-8"))  # else it looks for the encoding in every value


def _read_key(data: bytes) -> Any:
    return hashable(_read(data))


def hashable(value: Any) -> Any:
    """A key that can be looked up: lists become tuples."""
    return tuple(hashable(v) for v in value) if isinstance(value, (list, tuple)) else value


KEY: Serde[Any] = Serde("case-key", _write, _read_key, immutable=True)
"""Keys of cases: any JSON, integers of any size."""
VALUE: Serde[Any] = Serde("case-value", _write, _read)
"""Values of cases: any JSON, integers of any size."""


@dataclasses.dataclass(frozen=True)
class Put:
    """A record comes. ``index``: the place of its entry in the case's input."""

    index: int
    topic: str
    key: Any
    value: Any
    ts: int
    headers: Headers = ()

    @property
    def record(self) -> Record:
        """What is written."""
        return Record(self.key, self.value, self.ts, self.headers)


@dataclasses.dataclass(frozen=True)
class Mark:
    """As ``Put``: a record that only moves event time. It ends a batch."""

    index: int
    topic: str
    key: Any
    value: Any
    ts: int
    headers: Headers = ()

    @property
    def record(self) -> Record:
        """What is written."""
        return Record(self.key, self.value, self.ts, self.headers)


@dataclasses.dataclass(frozen=True)
class Clock:
    """Processing time is set."""

    index: int
    now_ms: int


@dataclasses.dataclass(frozen=True)
class Restart:
    """A clean stop and a start."""

    index: int


Step = Put | Mark | Clock | Restart


@dataclasses.dataclass(frozen=True)
class Scenario:
    """``inputs``: the topics that are read. ``sinks``: topic by name. ``stores``: which store is to be read after how many
    entries of the input. ``counts``: after how many the dropped records are to be counted. ``splits``: where else a
    batch must end. ``window_end``: the window's end as cases write it, by sink or store, where it is not the key's own.
    ``shift_ms``: by how much the input's times were moved; rows come back unmoved."""

    topology: Topology
    steps: tuple[Step, ...]
    inputs: tuple[str, ...]
    sinks: dict[str, str]
    stores: frozenset[tuple[int, str]] = frozenset()
    counts: frozenset[int] = frozenset()
    splits: frozenset[int] = frozenset()
    window_end: dict[str, Callable[[Windowed], int | None]] = dataclasses.field(default_factory=dict)
    shift_ms: int = 0

    def ends_batch(self, after: int) -> bool:
        """Whether something is to be looked at after so many entries."""
        return after in self.counts or after in self.splits or any(n == after for n, _ in self.stores)

    def row(self, where: str, record: Record) -> Row:
        """A record of a sink or store as cases write it."""
        key = record.key
        row: Row = {"k": key, "v": record.value, "ts": self._unmoved(record.timestamp_ms)}
        if isinstance(key, Windowed):
            made = self.window_end.get(where)
            end = key.end_ms if made is None else made(key)
            row |= {"k": key.key, "w": [self._unmoved(key.start_ms), None if end is None else self._unmoved(end)]}
        return row

    def _unmoved(self, ms: int) -> int:
        """A time as the case has it. The ends of time are nobody's to move."""
        return ms if ms in (0, END_OF_TIME_MS) else ms - self.shift_ms


@dataclasses.dataclass
class Played:
    """What came of a scenario: each sink's rows with the index of the entry that caused them; stores and counts as
    asked for; and the error that ended it, with the number of entries that were given until then."""

    outputs: dict[str, list[tuple[int, Row]]] = dataclasses.field(default_factory=dict)
    headers: dict[str, list[Headers]] = dataclasses.field(default_factory=dict)
    """Of each sink's rows."""
    stores: dict[tuple[int, str], list[Row]] = dataclasses.field(default_factory=dict)
    dropped: dict[int, int] = dataclasses.field(default_factory=dict)
    error: tuple[int, str] | None = None

    def until(self, sink: str, after: int) -> list[Row]:
        """The sink's rows that the first ``after`` entries caused."""
        return [row for index, row in self.outputs.get(sink, []) if index < after]


@dataclasses.dataclass(frozen=True)
class Setting:
    """Where a case is played. ``prefix``: of its topics, which a runner with a log shares with other cases.
    ``around_ms``: the time around which it is to happen, for runners whose log forgets what is old; 0: the case's."""

    prefix: str = ""
    around_ms: int = 0


def dropped_count(counters: Mapping[str, int]) -> int:
    """How many records were dropped, by a task's counters, which hold other counts too."""
    return sum(count for name, count in counters.items() if ".user." not in name)


class Player(Protocol):
    """A runner at one batch size."""

    def setting(self, case: Case) -> Setting:
        """Where the case is to be played."""

    def __call__(self, scenario: Scenario) -> Played: ...
