"""Workers emptying the input, watched from outside: positions many times a second, one worker killed halfway.

A small input would be read before anybody could find its middle. So its second half is written at the kill (``Rest``).

A partition's take-over is seen when its committed position moves again after the kill. The baseline is taken a moment
after the kill, when what the killed worker had asked the brokers to commit has arrived; nobody else can own its
partitions before the session times out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from demo.findings import Drain, Kill, Sample
from demo.workers import WorkerProcess
from penstock.state.errors import PenstockError
from penstock.state.log import TopicPartition
from penstock.streams.kafka.group_view import GroupView

SAMPLE_S = 0.05
SETTLED_S = 0.7
QUIET_S = 1.5
LIMIT_S = 300.0
"""Without any commit: a slow machine may take as long as it likes."""
KILL_AT_PERCENT = 50
# Behind the last record of a partition lie at most the markers of the transactions that ended it.
MARKERS = 8


class Rest(NamedTuple):
    """The second half of a small input. ``before`` writes what the killed worker likely has in hand when it dies,
    ``after`` the rest."""

    before: Callable[[], object]
    after: Callable[[], object]


class Watch:
    """One drain. ``stream``: partitions with exactly as many positions as records; ``internal``: those of
    repartition topics, whose ends move and hold transaction markers. The view is closed when the drain is over."""

    def __init__(self, view: GroupView, stream: Sequence[TopicPartition], internal: Sequence[TopicPartition]) -> None:
        self._view = view
        self._stream = list(stream)
        self._internal = list(internal)
        self._ends = view.ends(self._stream)
        self._committed: dict[TopicPartition, int] = {}
        self._started_at = sum(view.committed(self._stream).values())
        self._mine: Sequence[TopicPartition] = ()
        self._samples: list[Sample] = []
        self._began = time.monotonic()
        self._changed_s = 0.0
        self._first_s = 0.0

    def run(self, workers: Sequence[WorkerProcess], *, kill: bool, rest: Rest | None = None) -> Drain:
        """Until everything is committed, the ``rest`` too. Raises ``PenstockError`` when a worker ends that was not killed,
        or when nothing was committed for ``LIMIT_S``."""
        try:
            return self._run(workers, kill, rest)
        finally:
            self._view.close()

    def _run(self, workers: Sequence[WorkerProcess], kill: bool, rest: Rest | None) -> Drain:
        alive = list(workers)
        killed: Kill | None = None
        base: dict[TopicPartition, int] = {}
        while not self._done() or (rest is not None and killed is None):
            self._sample()
            for worker in alive:
                worker.require_alive()
            if kill and killed is None:
                killed = self._kill(alive, rest)
            elif killed is not None:
                self._follow(killed, base)
            if self._now() - self._changed_s > LIMIT_S:
                raise PenstockError(
                    f"nothing was committed for {LIMIT_S:.0f} s; the workers have committed {self._of_stream():,} of "
                    f"{sum(self._ends.values()):,} records; see their logs"
                )
            time.sleep(SAMPLE_S)
        ends = {**self._ends, **self._view.ends(self._internal)}
        return Drain(
            records=sum(self._ends.values()) - self._started_at,
            samples=self._samples,
            ends={_name(tp): end for tp, end in ends.items()},
            first_s=self._first_s,
            done_s=self._changed_s,
            kill=killed,
            stream_partitions=tuple(_name(tp) for tp in self._stream),
        )

    # -- looking -------------------------------------------------------------------------------------------------

    def _now(self) -> float:
        return time.monotonic() - self._began

    def _sample(self) -> None:
        watched = self._view.committed([*self._stream, *self._internal])
        now = self._now()
        if watched != self._committed:
            self._changed_s = now
            self._first_s = self._first_s or now
        self._committed = watched
        self._samples.append(Sample(now, {_name(tp): offset for tp, offset in sorted(watched.items())}))

    def _of_stream(self) -> int:
        return sum(self._committed.get(tp, 0) for tp in self._stream)

    def _done(self) -> bool:
        if any(self._committed.get(tp, 0) < end for tp, end in self._ends.items()):
            return False
        if self._now() - self._changed_s < QUIET_S:
            return False
        waiting = self._view.ends(self._internal)
        return all(end - self._committed.get(tp, 0) <= MARKERS for tp, end in waiting.items())

    # -- killing -------------------------------------------------------------------------------------------------

    def _kill(self, alive: list[WorkerProcess], rest: Rest | None) -> Kill | None:
        """Halfway, the worker that has most before it; ``None`` while it is too early."""
        total = sum(self._ends.values())
        if self._of_stream() * 100 < total * (KILL_AT_PERCENT if rest is None else 100):
            return None
        owners = self._view.owners()
        if not {w.name for w in alive} <= {owners.get(tp) for tp in self._stream}:
            return None
        if rest is not None:
            rest.before()
            self._ends = self._view.ends(self._stream)
        left = {
            worker: sum(self._ends[tp] - self._committed.get(tp, 0) for tp in self._stream if owners.get(tp) == worker)
            for worker in (w.name for w in alive)
        }
        victim = next(w for w in alive if w.name == max(left, key=lambda name: left[name]))
        victim.kill()
        alive.remove(victim)
        at_s = self._now()
        self._mine = [tp for tp, owner in owners.items() if owner == victim.name]
        if rest is not None:
            rest.after()
            self._ends = self._view.ends(self._stream)
        return Kill(at_s, victim.name, self._of_stream(), {}, {})

    def _follow(self, kill: Kill, base: dict[TopicPartition, int]) -> None:
        """Note which of the killed worker's partitions have moved."""
        now = self._now()
        if now - kill.at_s < SETTLED_S:
            return
        if not base:
            base |= {tp: self._committed.get(tp, 0) for tp in self._mine}
            ends = {**self._ends, **self._view.ends(self._internal)}
            for tp, offset in base.items():
                left = ends.get(tp, 0) - offset
                if left > (MARKERS if tp in self._internal else 0):
                    kill.left[_name(tp)] = left
        for tp, offset in base.items():
            name = _name(tp)
            if name in kill.left and name not in kill.moved_s and self._committed.get(tp, 0) > offset:
                kill.moved_s[name] = now - kill.at_s


def _name(tp: TopicPartition) -> str:
    return f"{tp.topic} [{tp.partition}]"
