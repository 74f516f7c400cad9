"""An interpreter of the simple applications, which looks at each commit: its outputs and its changelog are those of the
records that it took, no more, no less, and in their order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from penstock.state.log import TopicPartition
from penstock.state.recovery.changelog import from_changelog_columns
from penstock.state.stores.store import StoreSpec
from penstock.streams.testing.memory_log import LogEntry
from tests.simulation.swarm.programs import Program, by_key, compare, number

Made = Sequence[tuple[TopicPartition, LogEntry]]
State = dict[bytes, int]


class Oracle:
    """Of an application that takes records one by one (``Program.step``). ``kept``: the store that holds its state."""

    def __init__(self, program: Program, kept: StoreSpec | None, changelog: str) -> None:
        self._program = program
        self._kept = kept
        self._changelog = changelog
        self.state: State = {}

    def committed(self, taken: Mapping[str, Sequence[LogEntry]], made: Made) -> Iterator[str]:
        """What is wrong with a commit that took these records of each input topic and wrote these."""
        step = self._program.step
        assert step is not None
        (source,), (output,) = self._program.inputs, self._program.outputs
        rows = [(e.key or b"", e.value or b"") for e in taken.get(source, ())]
        wanted = by_key((k, v) for row in rows for k, v in step(self.state, *row) if v is not None)
        got = by_key((e.key or b"", e.value) for tp, e in made if tp.topic == output and e.value is not None)
        yield from compare(f"a commit to {output}", wanted, got, exact=True)
        if self._kept is not None:
            yield from self._changes({k for k, _ in rows}, made, self._kept)

    def _changes(self, keys: set[bytes], made: Made, kept: StoreSpec) -> Iterator[str]:
        entries = [e for tp, e in made if tp.topic == self._changelog]
        changes = from_changelog_columns(
            kept, [e.key for e in entries], [e.value for e in entries], [e.timestamp_ms for e in entries]
        )
        got = {k: None if v is None else number(v[8:]) for k, v in changes}
        for key in sorted(keys | got.keys()):
            if got.get(key) != self.state.get(key):
                yield f"I2 a commit to {self._changelog} leaves {got.get(key)} of {key!r}, not {self.state.get(key)}"


class Folds:
    """What each store on each disk must hold, kept from one look to the next. ``rows(tp, start, end)``: the visible
    records, whatever was cleaned; ``stable(tp)``: up to where it is decided which records are visible."""

    def __init__(
        self,
        rows: Callable[[TopicPartition, int, int], Sequence[tuple[int, LogEntry]]],
        stable: Callable[[TopicPartition], int],
    ) -> None:
        self._rows = rows
        self._stable = stable
        self._known: dict[object, tuple[int, dict[bytes, bytes]]] = {}

    def at(self, whose: object, tp: TopicPartition, spec: StoreSpec, end: int) -> Mapping[bytes, bytes]:
        """The fold of the changelog up to there."""
        start, before = self._known.get(whose, (0, {}))
        if end < start:
            start, before = 0, {}
        folded = dict(before) if end > self._stable(tp) else before
        entries = [e for _, e in self._rows(tp, start, end)]
        for key, value in from_changelog_columns(
            spec, [e.key for e in entries], [e.value for e in entries], [e.timestamp_ms for e in entries]
        ):
            if value is None:
                folded.pop(key, None)
            else:
                folded[key] = value
        if folded is before:
            self._known[whose] = end, folded
        return folded
