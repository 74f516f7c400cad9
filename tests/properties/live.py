"""A live task under random arrival: chunks, known ends, clock readings, commits, crashes and restarts as they come.

Offsets have gaps, as transactional topics have, and the last records may be followed by control records.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence

from penstock.state.stores.memory_backend import MemoryBackend
from penstock.streams.ports.log import OffsetAndMetadata
from penstock.streams.task import journal
from penstock.streams.task.output import Output
from penstock.topologies.graph.topology import Topology
from tests.properties.oracle import Input, Oracle, Written, merged
from tests.properties.running import Runner, chunk_of

Rows = dict[str, list[Input]]
"""The log of one task: records by topic."""
Outputs = dict[str, list[Written]]


@dataclasses.dataclass
class Saved:
    """What a commit left behind: positions, stores, and how much journal and output there was."""

    committed: dict[str, OffsetAndMetadata]
    stores: dict[str, dict[bytes, bytes]]
    entries: int
    written: dict[str, int]


def with_gaps(rng: random.Random, rows: Sequence[Input]) -> list[Input]:
    """The rows at offsets that skip one now and then."""
    out, offset = [], 0
    for row in rows:
        out.append(row._replace(offset=offset))
        offset += rng.choice((1, 1, 1, 2))
    return out


class LiveRun:
    """Runs one task to the end of its log."""

    def __init__(self, rng: random.Random, topology: Topology, part: int, log: Rows) -> None:
        self.rng = rng
        self.log = log
        self.runner = Runner(topology, part)
        self.arrived = dict.fromkeys(log, 0)
        self.now_ms = 1000
        self.saved: list[Saved] = []
        self.crashes = 0
        self._uncommitted: list[Output] = []
        self._feed_all_again()

    def run(self) -> None:
        """Everything arrives, is processed and committed."""
        rng = self.rng
        while any(self.arrived[t] < len(rows) for t, rows in self.log.items()):
            step = rng.random()
            if step < 0.45:
                self._arrive(rng.choice([t for t, rows in self.log.items() if self.arrived[t] < len(rows)]))
            elif step < 0.8:
                self._process(rng.choice((1, 2, 7, 100)))
            elif step < 0.9:
                self.now_ms += rng.choice((1, 20, 49, 120))
                self.runner.task.punctuate(self.now_ms)
                self._take()
            elif step < 0.96:
                self._commit()
            else:
                self._crash()
        for topic in self.log:
            self._set_end(topic)
        while self._process(7):
            pass
        self._commit()

    def _arrive(self, topic: str) -> None:
        at = self.arrived[topic]
        rows = self.log[topic][at : at + self.rng.choice((1, 1, 3, 10))]
        self.arrived[topic] += len(rows)
        self._add(topic, rows)
        if self.rng.random() < 0.6:
            self._set_end(topic)

    def _add(self, topic: str, rows: Sequence[Input]) -> None:
        if rows:
            self.runner.task.add(chunk_of(rows, 0), rows[-1].offset + 1)

    def _set_end(self, topic: str) -> None:
        """All that arrived was read; what follows is the next record's offset, control records included."""
        at = self.arrived[topic]
        rows = self.log[topic]
        end = rows[at].offset if at < len(rows) else (rows[-1].offset + 3 if rows else 0)
        self.runner.task.feed.set_end(topic, end)

    def _process(self, batch: int) -> int:
        done = self.runner.task.process(self.now_ms, batch)
        self._take()
        return done

    def _take(self) -> None:
        self._uncommitted += self.runner.task.take_outputs()

    def _commit(self) -> None:
        runner = self.runner
        runner.result.take(self._uncommitted)
        self._uncommitted = []
        runner.commit()
        self.saved.append(
            Saved(
                dict(runner.committed),
                contents(runner.backend, [s.name for s in runner.sub.stores]),
                len(runner.journal),
                {t: len(rows) for t, rows in runner.result.outputs.items()},
            )
        )

    def _crash(self) -> None:
        """What was not committed is gone; the records that had arrived are read again from the committed offsets."""
        self.crashes += 1
        self._uncommitted = []
        if self.rng.random() < 0.5:
            self.runner.open()
        else:
            from penstock.streams.task import commit_metadata

            committed = self.runner.committed
            self.runner.task.discard({t: (c.offset, commit_metadata.decode(c.metadata)) for t, c in committed.items()})
        self._feed_all_again()

    def _feed_all_again(self) -> None:
        for topic, rows in self.log.items():
            position = self.runner.committed[topic].offset
            again = [r for r in rows[: self.arrived[topic]] if r.offset >= position]
            cut = self.rng.randint(0, len(again))
            self._add(topic, again[:cut])
            self._add(topic, again[cut:])
            if self.rng.random() < 0.5:
                self._set_end(topic)


def contents(backend: MemoryBackend, stores: Sequence[str]) -> dict[str, dict[bytes, bytes]]:
    """All entries of the stores."""
    return {s: dict(backend.range(s, None, None)) for s in stores}


def replayed(
    rng: random.Random,
    topology: Topology,
    part: int,
    log: Rows,
    entries: Sequence[journal.JournalEntry],
    batch: int,
    at: Saved,
) -> tuple[Outputs, dict[str, dict[bytes, bytes]]]:
    """Outputs and stores of a replay from a saved point to the log's end."""
    runner = Runner(topology, part, replay=entries[at.entries :])
    for name, rows in at.stores.items():
        runner.load(name, rows)
    runner.committed = dict(at.committed)
    runner.open()
    for topic, rows_of in log.items():
        left = [r for r in rows_of if r.offset >= at.committed[topic].offset]
        cut = rng.randint(0, len(left))
        for piece in (left[:cut], left[cut:]):
            if piece:
                runner.task.add(chunk_of(piece, 0), piece[-1].offset + 1)
        runner.task.feed.set_end(topic, rows_of[-1].offset + 3 if rows_of else 0)
    runner.drain(batch)
    result = runner.finish()
    return result.outputs, result.stores


def told_by_the_journal(oracle: Oracle, log: Rows, entries: Sequence[journal.JournalEntry]) -> None:
    """Feed the oracle as the journal says: range by range, each merged by the rule, with the clock's firings between."""
    position = dict.fromkeys(log, 0)
    for entry in (*entries, None):
        stop = {t: rows[-1].offset + 1 if rows else 0 for t, rows in log.items()} if entry is None else entry.offsets
        for record in merged([r for t, rows in log.items() for r in rows if position[t] <= r.offset < stop[t]]):
            oracle.feed(record)
        position = dict(stop)
        if isinstance(entry, journal.ClockFiring):
            oracle.clock(entry.before_ms, entry.now_ms)
