"""What the journals must tell: a replay takes from them the order of the records, the clock, and the answers of the world
outside, so each commit's entries go on where the last one's ended, and hold what was really used."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator, Mapping, Sequence
from typing import Any

from penstock.state.log import TopicPartition
from penstock.streams.task.external_calls import CallExecutor
from penstock.streams.task.journal import Answers, ClockFiring, decode
from penstock.streams.testing.memory_log import LogEntry
from penstock.topologies.operator_api.operator import CallResult, ExternalCall

Made = Sequence[tuple[TopicPartition, LogEntry]]
ANSWERED = b"\x01"
"""Before an answer that is neither an error nor nothing."""


class JournalOracle:
    """Looks at each commit's journal. ``answered``: the output topic whose values are the answers, one for one."""

    def __init__(self, answered: str = "") -> None:
        self._answered = answered
        self._taken: dict[TopicPartition, dict[str, int]] = {}
        self._read_ms: dict[TopicPartition, int] = {}

    def committed(self, positions: Mapping[TopicPartition, int], made: Made) -> Iterator[str]:
        """What is wrong with a commit that wrote these records; ``positions``: those of the inputs after it."""
        answers: dict[int, list[bytes]] = {}
        for tp, record in made:
            if not tp.topic.endswith("-journal") or record.value is None:
                continue
            for entry in decode(record.value):
                yield from self._goes_on(tp, entry.offsets, positions)
                if isinstance(entry, ClockFiring):
                    yield from self._reads(tp, entry)
                elif isinstance(entry, Answers):
                    answers.setdefault(tp.partition, []).extend(entry.values)
        if not self._answered:
            return
        for p in sorted({tp.partition for tp, _ in made}):
            used = [e.value for tp, e in made if tp == TopicPartition(self._answered, p)]
            noted = [a.removeprefix(ANSWERED) for a in answers.get(p, [])]
            if used != noted:
                yield f"I2 the answers {used} of partition {p} were used, and {noted} are in the journal"

    def _goes_on(
        self, tp: TopicPartition, offsets: Mapping[str, int], positions: Mapping[TopicPartition, int]
    ) -> Iterator[str]:
        before = self._taken.get(tp, {})
        back = {t: o for t, o in offsets.items() if o < before.get(t, 0)}
        if back:
            yield f"I3 the journal {tp} goes back from {before} to {back}"
        beyond = {t: o for t, o in offsets.items() if o > positions.get(TopicPartition(t, tp.partition), o)}
        if beyond:
            yield f"I4 the journal {tp} tells of {beyond}, behind the committed positions"
        self._taken[tp] = {**before, **offsets}

    def _reads(self, tp: TopicPartition, entry: ClockFiring) -> Iterator[str]:
        last_ms = self._read_ms.get(tp, 0)
        if entry.now_ms < max(entry.before_ms, last_ms):
            yield f"I3 the clock in the journal {tp} goes back from {max(entry.before_ms, last_ms)} to {entry.now_ms}"
        self._read_ms[tp] = entry.now_ms


class InTurn(CallExecutor):
    """Makes the calls one by one, in the worker's turn, without waiting. ``passed`` is called before and after each."""

    def __init__(self, passed: Any) -> None:
        self._passed = passed

    def ask(self, call: ExternalCall, rows: Sequence[tuple[Any, ...]]) -> list[CallResult]:
        """One answer per row."""
        self._passed("ask")
        answers = [CallResult(_awaited(call.fn(*row))) for row in rows]
        self._passed("answered")
        return answers


def _awaited(work: Coroutine[Any, Any, Any]) -> Any:
    try:
        work.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("a call of the swarm waits for something")
