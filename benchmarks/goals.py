"""What Penstock is to show, and whether the results show it. Pure.

A goal against a peer must hold against its defaults and, where that was measured, against it tuned by its own documents; the
least favourable ratio counts. Ratios are of the same turn of the same run.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple

from benchmarks import nexmark
from benchmarks.calm import typical
from benchmarks.curves import TENTH
from benchmarks.report import label, ratios, valid
from benchmarks.workloads import Variant
from penstock.streams.runtime.memory_budget import OUTSIDE_BYTES

Result = dict[str, Any]
Verdict = Literal["reached", "not reached", "not measured"]
SHOP = "A shop"
"""The title of the shop's table."""
PEERS = {
    "Kafka Streams": ("kafka-streams", "kafka-streams-tuned"),
    "Quix Streams": ("quix", "quix-tuned"),
    "Faust": ("faust",),
}


class Finding(NamedTuple):
    """One goal: what, its bound in words, what was measured."""

    what: str
    needed: str
    measured: str
    verdict: Verdict


class Results:
    """All results by kind."""

    def __init__(self, results: Iterable[Result]) -> None:
        self._of: dict[str, list[Result]] = {}
        for result in results:
            self._of.setdefault(result["kind"], []).append(result)

    def of(self, kind: str) -> list[Result]:
        """In the order in which they were measured."""
        return self._of.get(kind, [])

    def drains(self, workload: str, system: str, guarantee: str = "ALO") -> list[Result]:
        """Of the workload as ``label`` names it."""
        found = [r for r in self.of("drain") if label(r) == workload and r["system"] == system]
        return [r for r in found if r["guarantee"] == guarantee]


def _at_least(what: str, needed: float, values: Sequence[float], of: str = "×") -> Finding:
    """The least of the medians must reach it."""
    if not values:
        return Finding(what, f"≥ {needed:g}{of}", "-", "not measured")
    worst = min(values)
    return Finding(
        what, f"≥ {needed:g}{of}", " / ".join(f"{value:.2f}{of}" for value in values), _verdict(worst >= needed)
    )


def _at_most(what: str, needed: float, values: Sequence[float], of: str = "×") -> Finding:
    """The largest must not pass it."""
    if not values:
        return Finding(what, f"≤ {needed:g}{of}", "-", "not measured")
    said = " / ".join(f"{value:.2f}{of}" for value in values)
    return Finding(what, f"≤ {needed:g}{of}", said, _verdict(max(values) <= needed))


def _verdict(holds: bool) -> Verdict:
    return "reached" if holds else "not reached"


def faster(results: Results, workload: str, peer: str, needed: float, system: str = "penstock") -> Finding:
    """Records per second, as a multiple of the peer's."""
    ours = results.drains(workload, system)
    found = [ratios(ours, results.drains(workload, name), "records_per_s") for name in PEERS[peer]]
    said = "" if system == "penstock" else ", row functions and plain clients"
    return _at_least(f"{workload}{said}: records/s against {peer}", needed, [statistics.median(f) for f in found if f])


def cheaper(results: Results, workload: str, peer: str, needed: float, system: str = "penstock") -> Finding:
    """CPU-seconds per million of the peer, as a multiple of Penstock's."""
    ours = results.drains(workload, system)
    found = [ratios(results.drains(workload, name), ours, "cpu_s_per_million") for name in PEERS[peer]]
    said = "" if system == "penstock" else ", row functions and plain clients"
    return _at_least(f"{workload}{said}: CPU against {peer}", needed, [statistics.median(f) for f in found if f])


def share(results: Results, workload: str, needed: float) -> Finding:
    """Per cent of the ceiling, which is the slower of fetch and produce, each alone."""
    shares = [
        r["records_per_s"] / r["ceiling"] * 100 for r in valid(results.drains(workload, "penstock")) if r["ceiling"]
    ]
    return _at_least(f"{workload}: share of its ceiling", needed, [statistics.median(shares)] if shares else [], " %")


def together(results: Results, workload: str, needed: float) -> Finding:
    """Per cent of what the native reader and writer alone move when they fetch and produce the same at once."""
    name = f"{workload}: "
    rows = [row for r in results.of("roofline")[-1:] for row in r["rows"]]
    most = max((row["per_s"] for row in rows if row["group"] == "relay" and row["name"].startswith(name)), default=0.0)
    rates = [r["records_per_s"] / most * 100 for r in valid(results.drains(workload, "penstock")) if most]
    what = f"{workload}: share of fetch and produce at once"
    return _at_least(what, needed, [statistics.median(rates)] if rates else [], " %")


def memory(results: Results, workload: str, needed: float) -> list[Finding]:
    """Against Kafka Streams with the smallest heap that keeps 90 % of its rate, at peak and at rest: as it comes, and
    within the smallest bound."""
    some = [r for r in results.of("heap") if r["workload"] == workload and not r["void"]]
    return [
        _at_most(
            f"{workload}{how}: memory {where} against Kafka Streams' smallest heap",
            needed,
            [r[which][field] / r["smallest"][field] for r in some[-1:] if which in r],
        )
        for how, which in (("", "penstock"), (" within the least memory_max_bytes", "bounded"))
        for where, field in (("at peak", "peak_bytes"), ("at rest", "rest_bytes"))
    ]


def memory_of_quix(results: Results, workload: str, needed: float) -> Finding:
    """At peak."""
    ours, theirs = (valid(results.drains(workload, system)) for system in ("penstock", "quix"))
    values = [statistics.median(r["peak_bytes"] for r in some) for some in (ours, theirs) if some]
    found = [values[0] / values[1]] if len(values) == 2 else []
    return _at_most(f"{workload}: memory at peak against Quix Streams", needed, found)


def latency(results: Results, guarantee: str, rate_per_s: int) -> list[Finding]:
    """p99 of ``enrich``, with ``latency="low"`` and as Penstock comes, each against Kafka Streams with and without linger,
    and against Quix Streams, which has no exactly-once."""
    points = [r for r in results.of("latencies") if r["guarantee"] == guarantee and r["rate_per_s"] == rate_per_s]
    p99 = {r["series"]: r["p99_ms"] for r in typical(points) if r.get("keys", Variant.keys) == Variant.keys}
    found = []
    for series, setting in (("adaptive, low latency", 'latency="low"'), ("adaptive", "as it comes")):
        what = f"p99 of enrich at {rate_per_s:,}/s, 100 ms commits, {guarantee}, {setting}"
        ours = [p99[series]] if series in p99 else []

        def against(*peers: str, ours: list[float] = ours) -> list[float]:
            return [own / p99[name] for own in ours for name in peers if name in p99]

        kafka_streams = against("Kafka Streams", "Kafka Streams, linger 5 ms")
        found.append(_at_most(f"{what}: against Kafka Streams", 1.0, kafka_streams))
        if guarantee == "ALO":
            found.append(_at_most(f"{what}: against Quix Streams", 1.0, against("Quix Streams")))
            found.append(_at_most(f"{what}: milliseconds", 20.0, ours, " ms"))
    return found


def curve(results: Results, part: str, workload: str, needed: float, ends: tuple[int, int]) -> Finding:
    """Cost at the far end as a multiple of that at the near one."""
    what = f"{workload}: cost per record from {ends[0] // 10**6} M to {ends[1] // 10**6} M {part}"
    return _at_most(
        what, needed, _grown(_points(results, part, workload, ends[0]), _points(results, part, workload, ends[1]))
    )


def in_a_tenth(results: Results, workload: str, needed: float) -> Finding:
    """Cost with ten million keys and a tenth of the stores' memory, as a multiple of that of a million keys with all of it:
    the proportion of a hundred million."""
    near = _points(results, "keys", workload, 1_000_000)
    far = _points(results, "keys", workload, 10_000_000, TENTH)
    what = f"{workload}: cost per record from 1 M keys to 10 M in a tenth of the memory"
    return _at_most(what, needed, _grown(near, far))


def _points(results: Results, part: str, workload: str, x: int, settings: dict[str, str] | None = None) -> list[Result]:
    """The point's valid runs with these settings."""
    some = [r for r in valid(results.of("curve")) if (r["part"], r["workload"], r["x"]) == (part, workload, x)]
    return [r for r in some if r["system"] == "penstock" and r.get("set", {}) == (settings or {})]


def _grown(near: list[Result], far: list[Result], field: str = "cpu_s_per_million") -> list[float]:
    """The ratio of the figures, of the machine that measured both last."""
    both = [r for r in far if any(r.get("on") == one.get("on") for one in near)]
    if not both:
        return []
    on = both[-1].get("on")
    figures = [[r[field] for r in some if r.get("on") == on] for some in (near, far)]
    return [statistics.median(figures[1]) / statistics.median(figures[0])]


def of_nexmark(results: Results) -> list[Finding]:
    """Nexmark against Flink SQL, with one partition and one process: how many queries reach twice its rate on half its CPU,
    and the lowest ratio of the rates. A query without a right answer reaches neither."""
    last = nexmark.last_results(results.of("nexmark"))
    ours = {query: r for (query, *rest), r in last.items() if rest == ["penstock-per-commit", 1, 1]}
    flinks = {query: r for (query, *rest), r in last.items() if rest == ["flink", 1, 1]}
    compared = [_against_flink(ours[query], flinks[query]) for query in ours.keys() & flinks.keys()]
    both = sum(rate >= 2 and cost <= 0.5 for rate, cost in compared)
    measured = f"{both} of {len(compared)}" if compared else "-"
    what = "Nexmark: queries with twice Flink SQL's events/s for half of its CPU"
    rates = [min(rate for rate, _ in compared)] if compared else []
    return [
        Finding(what, "≥ 18", measured, _verdict(both >= 18) if compared else "not measured"),
        _at_least("Nexmark: least events/s against Flink SQL", 1, rates),
    ]


def of_shop(results: Results) -> list[Finding]:
    """What readers of the documents write against Flink SQL: the least rate and the most CPU of a part, 0 and infinity where
    the answer differs. Read from the table that was kept last, as its cells show it."""
    rates: list[float] = []
    costs: list[float] = []
    tables = [found for found in results.of("table") if found["title"] == SHOP]
    for rows in _by_part(tables[-1]).values() if tables else ():
        if {"penstock", "flink"} <= rows.keys():
            ours, flinks = rows["penstock"], rows["flink"]
            right = nexmark.answers(ours["check"])
            rates.append(_number(ours["events/s"]) / _number(flinks["events/s"]) if right else 0.0)
            costs.append(_number(ours["CPU s/M"]) / _number(flinks["CPU s/M"]) if right else math.inf)
    least, dearest = [min(rates)] if rates else [], [max(costs)] if costs else []
    return [
        _at_least("Shop: least events/s of a part against Flink SQL", 1, least),
        _at_most("Shop: most CPU of a part against Flink SQL", 1, dearest),
    ]


def _by_part(table: Result) -> dict[str, dict[str, dict[str, str]]]:
    """The rows of a table, as cells by their columns, by part and system."""
    found: dict[str, dict[str, dict[str, str]]] = {}
    for cells in table["rows"]:
        row = dict(zip(table["head"], cells, strict=True))
        found.setdefault(row["part"], {})[row["system"]] = row
    return found


def _number(cell: str) -> float:
    """The number of a cell such as "720,488 (whole)"."""
    return float(cell.split()[0].replace(",", ""))


def _against_flink(ours: nexmark.Result, flinks: nexmark.Result) -> tuple[float, float]:
    """Rate and CPU as multiples of Flink's; 0 and infinity if one of the two did not end, or the answer differs."""
    if not (ours.seconds and flinks.seconds and nexmark.nothing_wrong(ours.verdict)):
        return 0.0, float("inf")
    return ours.events_per_s / flinks.events_per_s, ours.cpu_s_per_million / flinks.cpu_s_per_million


def cores(results: Results, workload: str, needed: float) -> Finding:
    """Records per second of two processes, as a multiple of one's."""
    one, two = (_points(results, "processes", workload, count) for count in (1, 2))
    return _at_least(f"{workload}: records/s of two processes against one", needed, _grown(one, two, "records_per_s"))


def large_table(results: Results) -> list[Finding]:
    """A table that is to the memory of the worker's parts what 100 GB are to those of 2 GB: whether the worker kept within
    its memory. What no part holds does not grow with the table, so it is left out of the proportion."""
    share = 100e9 / (2e9 - OUTSIDE_BYTES)
    found = [
        r for r in valid(results.of("big_table")) if r["table_bytes"] >= share * (r["memory_bytes"] - OUTSIDE_BYTES)
    ]
    shares = [r["peak_bytes"] / r["memory_bytes"] for r in found[-1:]]
    return [_at_most("a table in the proportion of 100 GB to 2 GB: peak memory against memory_max_bytes", 1.0, shares)]


def findings(results: Results) -> list[Finding]:
    """Every goal in turn."""
    found: list[Finding] = []
    against: list[tuple[str, float, float, float]] = [
        ("ysb", 3, 2.5, 30), ("wordcount", 8, 8, 50), ("enrich", 2.5, 2.5, 10), ("keyed-count", 3, 3, 8)
    ]  # fmt: skip
    for workload, cpu, rate, quix in against:
        found += [cheaper(results, workload, "Kafka Streams", cpu), faster(results, workload, "Kafka Streams", rate)]
        found.append(faster(results, workload, "Quix Streams", quix))
        if workload in ("enrich", "keyed-count"):
            large = f"{workload}, 10 M keys"
            found += [cheaper(results, large, "Kafka Streams", cpu), faster(results, large, "Kafka Streams", rate)]
    found += [faster(results, "wordcount", "Faust", 100), faster(results, "keyed-count", "Faust", 50)]
    for workload in ("pass-through", "filter", "project"):
        found += [cheaper(results, workload, "Kafka Streams", 2), share(results, workload, 60)]
        found.append(together(results, workload, 60))
        found.append(faster(results, workload, "Quix Streams", 20))
    per_row: list[Callable[..., Finding]] = [cheaper, faster]
    for workload in ("ysb", "wordcount", "enrich", "keyed-count"):
        found += [compare(results, workload, "Kafka Streams", 1.8, "penstock-rows") for compare in per_row]
        found.append(faster(results, workload, "Quix Streams", 5, "penstock-rows"))
    for workload in ("ysb", "wordcount", "enrich", "keyed-count"):
        found += [*memory(results, workload, 0.5), memory_of_quix(results, workload, 1.0)]
    found += [*latency(results, "ALO", 5_000), *latency(results, "EOS", 5_000)]
    found.append(curve(results, "records", "ysb", 1.3, (1_000_000, 50_000_000)))
    for workload in ("keyed-count", "enrich"):
        found.append(curve(results, "keys", workload, 1.3, (1_000_000, 10_000_000)))
        found.append(in_a_tenth(results, workload, 2.0))
    found.append(curve(results, "keys", "enrich", 2.0, (1_000_000, 100_000_000)))
    found += large_table(results)
    found += [cores(results, workload, 1.8) for workload in ("ysb", "wordcount", "enrich", "keyed-count")]
    return [*found, *of_nexmark(results), *of_shop(results)]


def used(results: Results) -> list[Result]:
    """The results that goals are held against."""
    usual = [r for r in results.of("latencies") if r.get("keys", Variant.keys) == Variant.keys]
    goals_of = {"records": ("ysb",), "keys": ("keyed-count", "enrich")}
    curves = [r for r in results.of("curve") if r["workload"] in goals_of.get(r["part"], ())]
    drains = [r for r in results.of("drain") if label(r) in (r["workload"], f"{r['workload']}, 10 M keys")]
    return [*drains, *results.of("heap"), *usual, *curves]


def name(result: Result) -> str:
    """How the goals of a result are told apart from others of its workload."""
    if result["kind"] == "curve":
        return f"{result['workload']}: cost per record against {result['part']}"
    if result["kind"] == "latencies":
        return f"p99 of {result['series']}"
    return label(result) if result["kind"] == "drain" else f"{result['workload']}: memory"
