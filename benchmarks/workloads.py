"""The workloads: each is declared here and nowhere else in Python. To add one, write a ``Workload`` and name it in
``WORKLOADS``; a peer takes part if ``records`` names it and its program knows the workload's name.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Literal, NamedTuple

from benchmarks import data, expressed, oracle, stateless
from benchmarks.oracle import Answer, Verdict
from penstock.topologies.examples import enrich, keyed_count, word_count, ysb
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operator_api.operator import Emission


@dataclasses.dataclass(frozen=True)
class Variant:
    """What a cost curve varies: how many users click (and have profiles), partitions of every topic, the windows of
    ``ysb``."""

    keys: int = data.USERS
    partitions: int = 4
    window_ms: int = data.WINDOW_MS


Functions = Literal["rows", "expressions"]


class Orders(NamedTuple):
    """What a topology is built from: its topics, how often it emits, and whether its functions are Python's or
    expressions."""

    source: str
    table: str
    out: str
    emission: Emission
    window_ms: int
    functions: Functions


class Run(NamedTuple):
    """What a check may look at. ``output`` reads the output topic; ``state`` the last counts in the changelog."""

    records: int
    base_ms: int
    variant: Variant
    output: Callable[[], Answer]
    state: Callable[[], dict[str, int]]
    remember: Callable[[str, Callable[[], oracle.Tally]], oracle.Tally]


@dataclasses.dataclass(frozen=True)
class Workload:
    """One workload.

    ``data_set`` is its input (a name of ``data.DATA_SETS``), ``table`` the data set of a table beside it (as many rows as
    there are ``Variant.keys`` if that is ``users``). ``records``: how many each program drains; a program that is not
    named does not take part. ``written_bytes``: key and value of what it writes for the most part, for its ceiling.
    """

    name: str
    about: str
    data_set: str
    topology: Callable[[Orders], Topology]
    check: Callable[[Run], Verdict]
    records: dict[str, int]
    written_bytes: int
    table: str | None = None

    def table_rows(self, variant: Variant) -> int:
        """How many rows the table has."""
        return variant.keys if self.table == "users" else data.ADS


def _streaming(
    records: int, quix: int | None = None, faust: int | None = None, kafka_streams: int | None = None
) -> dict[str, int]:
    given = {"penstock": records, "kafka-streams": kafka_streams or records, "quix": quix, "faust": faust}
    return {program: count for program, count in given.items() if count is not None}


def _ysb(o: Orders) -> Topology:
    if o.functions == "rows":
        return ysb.build(o.source, o.table, o.out, emission=o.emission, window_ms=o.window_ms)
    return expressed.ysb(o.source, o.table, o.out, o.window_ms, o.emission)


def _word_count(o: Orders) -> Topology:
    if o.functions == "rows":
        return word_count.build(o.source, o.out, emission=o.emission)
    return expressed.word_count(o.source, o.out, o.emission)


def _enrich(o: Orders) -> Topology:
    if o.functions == "rows":
        return enrich.build(o.source, o.table, o.out)
    return expressed.enrich(o.source, o.table, o.out)


def _check_ysb(run: Run) -> Verdict:
    expected = oracle.views_per_window(run.records, run.base_ms, run.variant.window_ms)
    return oracle.compare_counts(expected, oracle.last_counts(run.output()))


def _check_wordcount(run: Run) -> Verdict:
    return oracle.compare_counts(oracle.uses_per_word(run.records), oracle.last_counts(run.output()))


def _check_enrich(run: Run) -> Verdict:
    users = run.variant.keys

    def expected() -> oracle.Tally:
        return oracle.tally(oracle.enriched(run.records, run.base_ms, users), oracle.as_it_is)

    right = run.remember(f"enrich-{run.records}-of-{users}", expected)
    return oracle.compare_tallies(right, oracle.tally(run.output(), oracle.as_json))


def _check_keyed_count(run: Run) -> Verdict:
    return oracle.compare_counts(oracle.clicks_per_user(run.records, run.variant.keys), run.state())


def _check_tally(
    name: str, expected: Callable[[int, int], Answer], canonical: Callable[[bytes], bytes]
) -> Callable[[Run], Verdict]:
    def check(run: Run) -> Verdict:
        right = run.remember(
            f"{name}-{run.records}", lambda: oracle.tally(expected(run.records, run.base_ms), canonical)
        )
        return oracle.compare_tallies(right, oracle.tally(run.output(), canonical))

    return check


WORKLOADS: dict[str, Workload] = {
    workload.name: workload
    for workload in (
        Workload(
            "ysb",
            "filter views, join ads to campaigns, key anew, count in windows of 10 s",
            "events",
            _ysb,
            _check_ysb,
            _streaming(12_000_000, quix=200_000),
            written_bytes=60,
            table="ads",
        ),
        Workload(
            "wordcount",
            "split lines of eight words, key anew, count",
            "lines",
            _word_count,
            _check_wordcount,
            _streaming(12_000_000, quix=150_000, faust=4_000, kafka_streams=2_000_000),
            written_bytes=15,
        ),
        Workload(
            "enrich",
            "stream–table join, a table of a million rows",
            "clicks",
            _enrich,
            _check_enrich,
            _streaming(8_000_000, quix=400_000, kafka_streams=4_000_000),
            written_bytes=170,
            table="users",
        ),
        Workload(
            "keyed-count",
            "count per key, a million keys; no output, only a changelog",
            "clicks",
            lambda o: keyed_count.build(o.source, emission=o.emission),
            _check_keyed_count,
            _streaming(12_000_000, quix=800_000, faust=50_000, kafka_streams=6_000_000),
            written_bytes=16,
        ),
        Workload(
            "pass-through",
            "every event as it is, undecoded",
            "events",
            lambda o: stateless.pass_through(o.source, o.out),
            _check_tally("pass-through", oracle.passed, oracle.as_it_is),
            _streaming(12_000_000, quix=1_600_000),
            written_bytes=276,
        ),
        Workload(
            "filter",
            "the views, with all their fields, by an expression",
            "events",
            lambda o: stateless.filtered(o.source, o.out),
            _check_tally("filter", oracle.viewed, oracle.as_json),
            _streaming(12_000_000, quix=1_600_000),
            written_bytes=276,
        ),
        Workload(
            "project",
            "two of seven fields of every event, by expressions",
            "events",
            lambda o: stateless.projected(o.source, o.out),
            _check_tally("project", oracle.projected, oracle.as_json),
            _streaming(12_000_000, quix=1_600_000),
            written_bytes=114,
        ),
    )
}
