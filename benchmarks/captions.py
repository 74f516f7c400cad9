"""What the report says around its tables: how figures were made, on which machine, and where one is not what it seems.

Pure: each caption is made of the results it stands beside, so that none says what these do not hold.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from benchmarks.calm import CALM_CORES
from benchmarks.goals import Finding
from benchmarks.report import grouped, valid

Result = dict[str, Any]

METHOD = """A system drains a topic that is full already, under an application id that was never used; broker and
system share the machine. **records/s** and **CPU s/M** (CPU-seconds of the whole process tree per million input
records) are taken from the steady part of a run: from the first commit behind 40 % of its records to the last before
its end. **±** is half the range of the repetitions, as a part of the median; a row without ± is one run. Systems take
turns within a repetition, in the other order in every second one. Ratios are of the same turn, so they do not follow
from the medians that are shown. **Of ceiling** is the part of `min(F(i), P(o) ÷ w)` that is reached: F and P are the
fastest fetch and produce of the roofline at the workload's bytes per record, each alone, by one loop with batches of
the roofline's size; w is how many records are written per input record. It is a measured yardstick and no bound: noise
and other batches may pass it by some per cent, and such shares are named as *ceiling measured too low*.
[README.md](README.md) says the rest, and how to run it.

A run whose answer differs is void. What the answer of a part is held against:

| part | held against |
|------|--------------|
| drains, heaps, restores, cost curves, the Yahoo benchmark | what is counted from the numbers behind the data |
| latency, a burst, a table larger than memory | the clicks that were sent, and the profile's name of each one's user |
| Nexmark, Linear Road | Penstock's own test driver, which the project's tests hold against oracles of their own |
| many queries | only how many records each query must write |

`kafka-streams` runs with its defaults (its record cache on, one thread), `kafka-streams-tuned` with what its documents
advise for throughput; `penstock-rows` is Penstock with Python functions only, without its native part. Above 0.1 or so
of **others' cores**, the machine had other work to do or its host took the processor away, and the rates of that row
say little."""
GOALS = """Latency goals exist twice: Penstock with `latency="low"` (the series *adaptive, low latency*), and as it
comes (the series *adaptive*). Milliseconds hold what the machine takes without any system (*no system*). The machine has
two cores, of which one worker process and the broker take nearly all, so a second process has little left to be faster
with. With a hundred million keys the answer of `keyed-count` does not fit into memory: ten million with a tenth of the
stores' memory are the same proportion. Of the Nexmark goals a query counts if all of its answer is right, or if only its
last rows are not written yet."""
DRAIN = """What to know beside these figures:

- **writes/input** differs by kind: Penstock combines the records of a key before it writes them to a repartition
  topic, and writes the last value per key and commit; Kafka Streams writes every record to the repartition topic, and
  its record cache (10 MB, tuned 256 MB) holds back updates behind it as far as it reaches; Quix Streams and Faust
  write every update, and Quix Streams in `enrich` the joined table to a changelog.
- **peak RSS** of Kafka Streams holds a heap of `-Xms1g -Xmx2g` (tuned `-Xms2g -Xmx3g`), which the JVM fills before it
  collects. Only the section on the smallest heap compares memory fairly.
- **others' cores** may be slightly negative: it is a difference of clocks that tick in hundredths of a second and are
  read one after the other.
- In `enrich`, Kafka Streams reads and writes JSON as trees (Jackson's `ObjectNode`) and Penstock reads declared fields
  (`penstock-rows`: dictionaries). In `ysb`, `filter` and `project` Kafka Streams too reads classes with declared
  fields."""
PER_USER = """- The answers of `enrich` in these results were held by clicks per user and the name in the profile. The
  benchmark compares every field of every click; rows that are measured again are held so."""
HEAP = """Kafka Streams drains a part of its records here (`--part`, half of them unless told), Penstock all of its
own: a heap that is enough for the part may be too small for all."""
LATENCY = """{since} to receiving it enriched; {points} points. *No system*: the producer and the receiver alone,
through the broker once. **Taken by the host** are the processors on which something was ready to run while the
machine's host ran others: above {cores} the waits are also the host's. Some points were measured again for that; plots
and goals take the medians of a point's other runs where there are any."""
RESTORE = """Seconds are from the start of the process, its state folder lost, to the commit of new records, for two
sizes of changelog. The rate is that of their difference, so what both have in common is not in it."""
SESSION = """The seconds of kafka-streams hold the session time-out of the member that was stopped, 45 s by default:
it did not leave its group, and the restarted one is given its partitions when that session is over. They say nothing
about restoring; the rate does. The benchmark makes the member leave; a restore that is measured again is without it."""


class Machines:
    """The machines by the names that results bear in ``on``; captions name them where there are several."""

    def __init__(self, every: Iterable[Result]) -> None:
        self._names: dict[str, str] = {}
        self._rooflines: set[str] = set()
        for found in every:
            facts = found.get("machine") if found["kind"] == "roofline" else found
            if found["kind"] in ("machine", "roofline") and facts:
                self._names[found.get("on", "")] = f"{facts['cpu']}, {facts['cores']} cores"
            if found["kind"] == "roofline":
                self._rooflines.add(found.get("on", ""))

    def caption(self, some: Sequence[Result], name: Callable[[Result], str] | None = None) -> str:
        """On which machine these were measured, empty if there is but one: that of most of them, and by ``name`` what is
        from another."""
        if len(self._names) < 2 or not some:
            return ""
        main = statistics.mode(r.get("on", "") for r in some)
        said = f"*Machine: {self._name(main)}"
        others: dict[str, list[str]] = {}
        for r in some:
            if (on := r.get("on", "")) != main:
                others.setdefault(on, []).append(name(r) if name else r.get("file", ""))
        for on, what in others.items():
            said += f"; of {'; '.join(dict.fromkeys(what))}: {self._name(on)}"
        return said + ".*"

    def ceilings(self, some: Iterable[Result]) -> str:
        """Which shares are of a roofline that is not among the results."""
        ons = dict.fromkeys(r.get("on", "") for r in some if r.get("ceiling"))
        missing = [self._name(on) for on in ons if on not in self._rooflines]
        if not missing or not self._rooflines:
            return ""
        where = " and ".join(missing)
        return f"*Shares of ceilings on {where} are of that machine's own roofline, which is not shown below.*"

    def _name(self, on: str) -> str:
        return self._names.get(on, on or "not named")


def too_low(drains: Iterable[Result]) -> str:
    """Which rows of the drain table pass their ceiling, empty if none does."""
    found = []
    for (workload, guarantee, system), some in sorted(grouped(drains).items()):
        shares = [r["records_per_s"] / r["ceiling"] for r in valid(some) if r.get("ceiling")]
        if shares and (share := statistics.median(shares)) > 1:
            found.append(f"{workload}, {system}, {guarantee}: {share:.0%}")
    return f"**Ceiling measured too low:** {'; '.join(found)}." if found else ""


def goals_too_low(found: Iterable[Finding]) -> str:
    """Which goals' shares pass what they are shares of, empty if none does."""
    shares = [row for row in found if row.needed.endswith(" %") and row.verdict != "not measured"]
    above = [f"{row.what}: {row.measured}" for row in shares if float(row.measured.split()[0]) > 100]
    return f"**Ceiling measured too low:** {'; '.join(above)}." if above else ""


def drain_notes(drains: Iterable[Result]) -> str:
    """What stands beside the drain table."""
    enriched = [r for r in valid(drains) if r["workload"] == "enrich" and "digests" not in r.get("check", "")]
    return f"{DRAIN}\n{PER_USER}" if enriched else DRAIN


def latency(points: Sequence[Result]) -> str:
    """What stands above the latencies: from when a click's wait counts in them."""
    due = [r for r in points if r["void"] or r.get("since") == "due"]
    handed = [r for r in points if r not in due]
    since = "From the moment at which a click is due" if not handed else "From handing a click to the producer"
    said = LATENCY.format(since=since, points=len(points), cores=CALM_CORES)
    if not handed:
        return said
    # of a file with both, the series say which
    newer = {r.get("file") for r in due if not r["void"]}
    names = (f"{r['file']} ({r['series']})" if r["file"] in newer else r["file"] for r in handed if r.get("file"))
    files = ", ".join(dict.fromkeys(names))
    which = f"in {files} " if files and len(handed) < len(points) else ""
    return (
        f"{said}\n\nThe waits {which}count from handing over, so a sender that falls behind is not in them, and clicks that "
        "came back were counted, not told apart. The benchmark counts from when a click is due, and by number; a point that "
        "is measured again does so."
    )


def restore(restores: Iterable[Result]) -> str:
    """What stands above the restores."""
    stayed = any(r["system"] == "kafka-streams" and not r.get("left_group") and not r["void"] for r in restores)
    return f"{RESTORE}\n\n{SESSION}" if stayed else RESTORE
