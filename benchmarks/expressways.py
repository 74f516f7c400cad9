"""Traffic of several expressways for ``benchmarks.linear_road``, and its right answers.

Cars of one expressway never meet those of another, so the answers of L expressways are those of each together, and the right
ones, the test driver's (which the project's tests hold against an oracle of their own), are computed once for each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from benchmarks.linear_road_generator import Line, Traffic, former_tolls, lines
from penstock.state.log import Record
from penstock.state.serdes.partitioner import partition_for
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.examples.linear_road.model import line
from penstock.topologies.examples.linear_road.topology import build

INPUT, FORMER = "linear-road", "linear-road-former-tolls"
OUTPUTS = {"linear-road-tolls": 2, "linear-road-accidents": 1, "linear-road-balances": 1, "linear-road-expenditures": 1}
"""By topic: the column with the time of the line that is answered."""
EMIT = {"linear-road-tolls": 3, "linear-road-accidents": 2, "linear-road-balances": 2, "linear-road-expenditures": 2}
APART = 1 << 20
"""Between the first cars of two expressways."""
Answers = Counter[tuple[str, bytes]]


def moved(row: Line, xway: int) -> Line:
    """A line of expressway 0 on another one, with cars and questions of its own."""
    fields = list(row)
    fields[2] += xway * APART
    fields[4] = xway if fields[4] >= 0 else fields[4]
    fields[9] += 4 * xway * APART if fields[9] >= 0 else 0
    return tuple(fields)


def without_emit(topic: str, value: bytes) -> bytes:
    """An answer without the time at which it was made."""
    fields = value.split(b",")
    del fields[EMIT[topic]]
    return b",".join(fields)


class Expressway:
    """One expressway's input, by second, and its right answers."""

    def __init__(self, xway: int, cars: int, minutes: int) -> None:
        traffic = Traffic(cars=cars, minutes=minutes, seed=xway + 1)
        self.seconds: list[list[tuple[bytes, bytes]]] = [[] for _ in range(minutes * 60)]
        for row in (moved(row, xway) for row in lines(traffic)):
            self.seconds[row[1]].append((b"%d" % row[2], line(row)))
        self.former = [_former(record, xway) for record in former_tolls(traffic)]
        self.lines = sum(map(len, self.seconds))
        self.answers = self._answers()

    def _answers(self) -> Answers:
        with TopologyTestDriver(build()) as driver:
            driver.pipe_raw({FORMER: [Record(*row) for row in self.former]})
            given = [Record(*row, second * 1000) for second, rows in enumerate(self.seconds) for row in rows]
            driver.pipe_raw({INPUT: given})
            driver.pipe_raw({INPUT: [Record(b"0", last_line(len(self.seconds)))]})
            return Counter((t, without_emit(t, r.value or b"")) for t in OUTPUTS for r in driver.read_raw(t))


def _former(record: Record, xway: int) -> tuple[bytes, bytes]:
    vid, day, _, toll = map(int, record.value.split(b","))
    vid += xway * APART
    return b"%d-%d-%d" % (vid, day, xway), line((vid, day, xway, toll))


def last_line(end_s: int) -> bytes:
    """A question that nobody answers, so late that all before it is over, and not so late that a worker refuses its time."""
    return line((4, end_s + 600, 0, *[-1] * 12))


def placed_keys(partitions: int) -> Iterator[bytes]:
    """A key for each partition."""
    for wanted in range(partitions):
        yield next(k for k in (b"%d" % n for n in range(10_000)) if partition_for(k, partitions) == wanted)
