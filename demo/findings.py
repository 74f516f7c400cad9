"""What the demo measured and whether it was right: values that the table and the page are made of.

Times are seconds on one clock, ``Drain.began_s`` being 0 of a drain.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple


class Check(NamedTuple):
    """One thing that had to be so. ``said``: what was seen."""

    name: str
    passed: bool
    said: str


class Sample(NamedTuple):
    """Committed positions at one moment, by ``topic [partition]``."""

    at_s: float
    committed: dict[str, int]


@dataclasses.dataclass
class Kill:
    """A SIGKILL. ``left``: what the killed worker had still before it, by partition, in records. ``moved_s``: when each
    of those partitions was next committed, counted from the kill."""

    at_s: float
    worker: str
    done: int
    left: dict[str, int]
    moved_s: dict[str, float]

    @property
    def all_moved(self) -> bool:
        """Whether every partition moved again, those of repartition topics too; and there were some."""
        return bool(self.left) and self.moved_s.keys() == self.left.keys()


@dataclasses.dataclass
class Drain:
    """Workers emptying the input. ``records``: of the stream. ``ends``: the last position of each partition of stream
    and repartition topics. ``first_s``: when the first commit was seen, ``done_s``: the last."""

    records: int
    samples: list[Sample]
    ends: dict[str, int]
    first_s: float
    done_s: float
    kill: Kill | None
    stream_partitions: tuple[str, ...]

    @property
    def records_per_s(self) -> float:
        """From the first commit to the kill, or to the end: while nobody was missing."""
        last = next((s for s in reversed(self.samples) if self.kill is None or s.at_s <= self.kill.at_s), None)
        first = next((s for s in self.samples if any(s.committed.values())), None)
        if last is None or first is None or last.at_s <= first.at_s:
            return self.records / max(self.done_s - self.first_s, 1e-3)
        return (self.of_stream(last) - self.of_stream(first)) / (last.at_s - first.at_s)

    @property
    def takeover_s(self) -> float | None:
        """From the kill until the other worker had committed for each of the killed worker's partitions of the stream; what
        it still had to do in repartition topics comes later, and shows nowhere. ``None`` if that was not seen."""
        if self.kill is None:
            return None
        lost = [name for name in self.stream_partitions if name in self.kill.left]
        moved = [self.kill.moved_s.get(name) for name in lost]
        return max((s for s in moved if s is not None), default=None) if None not in moved else None

    def of_stream(self, sample: Sample) -> int:
        """How much of the stream was committed."""
        return sum(sample.committed.get(name, 0) for name in self.stream_partitions)


class Restored(NamedTuple):
    """A worker that came back with an empty folder: until its stores stood where they were. ``records`` read from
    changelogs; ``from_snapshots``: how many store partitions began with one."""

    seconds: float
    records: int
    stores: int
    from_snapshots: int


class Compacted(NamedTuple):
    """What Spark made of the changelogs."""

    seconds: float
    stores: int
    entries: int
    size_bytes: int


class Compared(NamedTuple):
    """One topic or store, stream against batch."""

    kind: str
    name: str
    mode: str
    stream_rows: int
    batch_rows: int
    differences: int


@dataclasses.dataclass
class Findings:
    """Everything about one pipeline. ``answer``: the last value of each output key. ``uncounted``: updates that are
    missing or there more than once; ``None`` before anybody looked."""

    name: str
    title: str
    what: str
    records: int
    table_rows: int
    loaded_s: float
    describe: str
    mermaid: str
    drain: Drain | None = None
    tail_records: int = 0
    compacted: Compacted | None = None
    from_changelog: Restored | None = None
    from_snapshot: Restored | None = None
    replayed_records: int = 0
    replayed_s: float = 0.0
    comparisons: list[Compared] = dataclasses.field(default_factory=list)
    cautions: tuple[str, ...] = ()
    output_records: int = 0
    uncounted: int | None = None
    answer: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Report:
    """The whole run. ``machine``: what it ran on, as pairs of words."""

    machine: list[tuple[str, str]]
    pipelines: list[Findings] = dataclasses.field(default_factory=list)
    checks: list[Check] = dataclasses.field(default_factory=list)
    steps: list[tuple[str, float]] = dataclasses.field(default_factory=list)

    @property
    def failed(self) -> list[Check]:
        """The checks that were not so."""
        return [check for check in self.checks if not check.passed]

    @property
    def differences(self) -> int:
        """Found by the comparison of stream and batch."""
        return sum(c.differences for p in self.pipelines for c in p.comparisons)
