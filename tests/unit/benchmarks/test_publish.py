"""The report from result files: goals with their verdicts, tables, plots; wrong files are refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks import goals, plots, publish
from benchmarks.curves import TENTH
from benchmarks.goals import Finding, Results
from benchmarks.plots import Line
from benchmarks.steady import Steady

MACHINE = {
    "kind": "machine", "machine": "a-2-cores", "cpu": "A", "cores": 2, "memory_gb": 24, "kernel": "6.1", "python": "3.11",
    "java": "17", "commit": "abc1234",
}  # fmt: skip

P99, LOW = "p99 of enrich at 5,000/s, 100 ms commits, ALO", 'latency="low"'


def drained(workload: str, system: str, rate: float, cpu: float, *, repetition: int = 0, **more: Any) -> dict[str, Any]:
    """A drain at least once."""
    return {
        "kind": "drain", "workload": workload, "system": system, "guarantee": "ALO", "records": 1_000, "void": "",
        "records_per_s": rate, "cpu_s_per_million": cpu, "broker_cpu_s_per_million": 0.5, "peak_bytes": 10**8,
        "rest_bytes": 10**8, "writes_per_input": 1.0, "others_cores": 0.0, "steady_s": 5.0, "ceiling": 1e6,
        "repetition": repetition, "session": "one", "threads": 1, "set": {},
        "variant": {"keys": 1_000_000, "partitions": 4, "window_ms": 10_000}, **more,
    }  # fmt: skip


def latency(series: str, p99_ms: float, rate: int = 5_000, **more: Any) -> dict[str, Any]:
    """A point of the latency plot."""
    quantiles = {"p50_ms": p99_ms / 2, "p90_ms": p99_ms, "p99_ms": p99_ms, "max_ms": p99_ms, "cpu_share": 0.5}
    found = {"kind": "latencies", "series": series, "system": "x", "guarantee": "ALO", "rate_per_s": rate, "void": ""}
    return {**found, **quantiles, "broker_share": 0.2, **more}


def curve(part: str, x: int, cost: float) -> dict[str, Any]:
    """A point of a cost curve."""
    return drained("ysb", "penstock", 1e6, cost, kind="curve", part=part, x=x)


def verdicts(results: list[dict[str, Any]]) -> dict[str, Finding]:
    """Goals by what they say."""
    return {finding.what: finding for finding in goals.findings(Results(results))}


def test_ceilings_are_those_of_the_published_roofline() -> None:
    rows = [{"group": group, "bytes": 100.0, "per_s": rate} for group, rate in (("fetch", 900.0), ("produce", 600.0))]
    ran, void = drained("pass-through", "penstock", 300.0, 1.0), drained("filter", "quix", 0.0, 0.0, void="lost")
    roofline = {"kind": "roofline", "rows": rows}
    assert publish.with_ceilings([ran, void, roofline]) == [{**ran, "ceiling": 600.0}, void, roofline]
    assert publish.with_ceilings([ran, void]) == [ran, void]
    elsewhere = {**ran, "on": "b-2-cores"}
    assert publish.with_ceilings([elsewhere, roofline]) == [elsewhere, roofline]


def test_of_repeated_latencies_the_middle_counts() -> None:
    found = verdicts([latency("adaptive, low latency", p99) for p99 in (90.0, 10.0, 30.0)])
    assert found[f"{P99}, {LOW}: milliseconds"].measured == "30.00 ms"


def test_latencies_under_a_host_that_took_the_processor_do_not_count_beside_calm_ones() -> None:
    what = f"{P99}, as it comes: milliseconds"
    disturbed = [latency("adaptive", p99, stolen_cores=0.5) for p99 in (200.0, 100.0, 300.0)]
    calm = [latency("adaptive", p99, stolen_cores=0.02) for p99 in (12.0, 14.0)]
    assert verdicts(disturbed)[what].measured == "200.00 ms"
    assert verdicts([disturbed[0], calm[0], disturbed[1], calm[1], disturbed[2]])[what].measured == "13.00 ms"


def test_without_results_nothing_is_claimed() -> None:
    assert {finding.verdict for finding in verdicts([]).values()} == {"not measured"}


@pytest.mark.parametrize(("rate", "cpu", "verdict"), [(2_600.0, 0.9, "reached"), (2_400.0, 1.1, "not reached")])
def test_a_goal_is_held_against_the_peer_of_the_same_turn(rate: float, cpu: float, verdict: str) -> None:
    found = verdicts([drained("ysb", "penstock", rate, cpu), drained("ysb", "kafka-streams", 1_000.0, 3.0)])
    assert found["ysb: records/s against Kafka Streams"].verdict == verdict
    assert found["ysb: CPU against Kafka Streams"].verdict == verdict


def test_the_tuned_peer_counts_too_and_another_runs_figures_do_not() -> None:
    ours, theirs = drained("ysb", "penstock", 4_000.0, 1.0), drained("ysb", "kafka-streams", 1_000.0, 4.0)
    tuned = drained("ysb", "kafka-streams-tuned", 2_000.0, 2.0)
    found = verdicts([ours, theirs, tuned])["ysb: records/s against Kafka Streams"]
    assert (found.verdict, found.measured) == ("not reached", "4.00× / 2.00×")
    elsewhere = verdicts([ours, {**theirs, "session": "two"}])
    assert elsewhere["ysb: records/s against Kafka Streams"].verdict == "not measured"


def test_a_variant_is_a_goal_of_its_own() -> None:
    large = {"variant": {"keys": 10_000_000, "partitions": 4, "window_ms": 10_000}}
    found = verdicts(
        [
            drained("enrich", "penstock", 3_000.0, 1.0, **large),
            drained("enrich", "kafka-streams", 1_000.0, 3.0, **large),
        ]
    )
    assert found["enrich, 10 M keys: records/s against Kafka Streams"].verdict == "reached"
    assert found["enrich: records/s against Kafka Streams"].verdict == "not measured"


def test_void_runs_reach_nothing() -> None:
    found = verdicts([drained("ysb", "penstock", 9e9, 0.1, void="wrong"), drained("ysb", "kafka-streams", 1.0, 9.0)])
    assert found["ysb: records/s against Kafka Streams"].verdict == "not measured"


def test_latency_memory_share_and_curves_have_verdicts() -> None:
    heap = {"kind": "heap", "workload": "ysb", "guarantee": "ALO", "void": "", "tries": []}
    sizes = {"heap_mb": 64, "records_per_s": 1.0, "peak_bytes": 200, "rest_bytes": 100}
    found = verdicts(
        [
            *(latency(name, p99) for name, p99 in [("adaptive", 30.0), ("adaptive, low latency", 18.0)]),
            *(latency(name, p99) for name, p99 in [("Kafka Streams", 115.0), ("Kafka Streams, linger 5 ms", 17.0)]),
            {
                **heap,
                "smallest": sizes,
                "penstock": {**sizes, "peak_bytes": 90},
                "bounded": {**sizes, "rest_bytes": 40, "memory_max_bytes": 80},
            },
            drained("filter", "penstock", 610_000.0, 1.0),
            {
                "kind": "roofline",
                "rows": [{"group": "relay", "name": "filter: native", "per_s": rate} for rate in (800_000.0, 1e6)],
            },
            *(curve("records", x, cost) for x, cost in [(1_000_000, 2.0), (50_000_000, 2.5)]),
        ]
    )
    assert found[f"{P99}, {LOW}: milliseconds"].verdict == "reached"
    assert found[f"{P99}, {LOW}: against Kafka Streams"].measured == "0.16× / 1.06×"
    assert found[f"{P99}, {LOW}: against Kafka Streams"].verdict == "not reached"
    assert found[f"{P99}, as it comes: milliseconds"].measured == "30.00 ms"
    assert found[f"{P99}, as it comes: milliseconds"].verdict == "not reached"
    assert found[f"{P99}, as it comes: against Kafka Streams"].measured == "0.26× / 1.76×"
    assert found["ysb: memory at peak against Kafka Streams' smallest heap"].verdict == "reached"
    assert found["ysb: memory at rest against Kafka Streams' smallest heap"].verdict == "not reached"
    least = "ysb within the least memory_max_bytes: memory"
    assert found[f"{least} at peak against Kafka Streams' smallest heap"].verdict == "not reached"
    assert found[f"{least} at rest against Kafka Streams' smallest heap"].verdict == "reached"
    assert found["filter: share of its ceiling"].verdict == "reached"
    assert found["filter: share of fetch and produce at once"].measured == "61.00 %"
    assert found["project: share of fetch and produce at once"].verdict == "not measured"
    assert found["ysb: cost per record from 1 M to 50 M records"].verdict == "reached"


def nexmark_line(query: str, system: str, rate: float, cost: float, **more: Any) -> dict[str, Any]:
    """A run of a query with a steady part."""
    part = Steady(1_000, 5.0, rate, cost, 0.5, 0.0)._asdict()
    found = {"kind": "nexmark", "query": query, "system": system, "events": 1_000, "seconds": 2.0, "cpu_s": 1.0}
    return {**found, "written": 1, "peak_bytes": 1, "steady": part, "verdict": "equal", **more}


COUNT, LEAST = "queries with twice Flink SQL's events/s for half of its CPU", "least events/s against Flink SQL"


def test_nexmark_counts_the_queries_that_are_twice_as_fast_for_half_of_the_cpu() -> None:
    lines = []
    for number in range(20):
        lines.append(nexmark_line(f"q{number}", "flink", 100.0, 4.0, verdict="taken as right"))
        lines.append(nexmark_line(f"q{number}", "penstock-per-commit", 210.0, 1.9))
    found = verdicts(lines)
    assert found[f"Nexmark: {COUNT}"].measured == "20 of 20"
    assert found[f"Nexmark: {COUNT}"].verdict == found[f"Nexmark: {LEAST}"].verdict == "reached"
    slow = nexmark_line("q0", "penstock-per-commit", 90.0, 1.9)
    dear = nexmark_line("q1", "penstock-per-commit", 300.0, 2.1)
    wrong = nexmark_line(
        "q2", "penstock-per-commit", 300.0, 1.0, verdict="differs: 3 of 4 rows are missing, 0 are not ours"
    )
    late = nexmark_line(
        "q3", "penstock-per-commit", 300.0, 1.0, verdict="differs: 0 of 4 rows are missing, 1 are not ours"
    )
    found = verdicts([*lines, slow, dear, late])
    assert found[f"Nexmark: {COUNT}"].measured == "18 of 20"
    assert found[f"Nexmark: {LEAST}"].measured == "0.90×"
    found = verdicts([*lines, slow, dear, wrong])
    assert found[f"Nexmark: {COUNT}"].verdict == "not reached"
    assert found[f"Nexmark: {LEAST}"].measured == "0.00×"


def test_nexmark_takes_whole_runs_without_a_steady_part_and_no_other_partitions() -> None:
    flink = nexmark_line("q0", "flink", 0.0, 0.0, steady=None, seconds=4.0)
    ours = nexmark_line("q0", "penstock-per-commit", 0.0, 0.0, steady=None)
    elsewhere = nexmark_line("q1", "penstock-per-commit", 1.0, 1.0, partitions=4, processes=2)
    found = verdicts([flink, ours, elsewhere, nexmark_line("q1", "flink", 9.0, 1.0)])
    assert found[f"Nexmark: {COUNT}"].measured == "0 of 1"
    assert found[f"Nexmark: {LEAST}"].measured == "2.00×"


def test_two_processes_are_held_against_one_of_the_same_machine() -> None:
    one = {**curve("processes", 1, 1.0), "on": "a"}
    two = {**one, "x": 2, "threads": 2, "on": "b", "records_per_s": 1.9e6}
    what = "ysb: records/s of two processes against one"
    assert verdicts([one, two])[what].verdict == "not measured"
    assert verdicts([one, {**one, "on": "b", "records_per_s": 9.5e5}, two])[what].measured == "2.00×"


def test_costs_of_keys_are_of_one_machine_and_apart_for_a_tenth_of_the_memory() -> None:
    points = [
        {**curve("keys", 1_000_000, 9.0), "workload": "enrich", "on": "old"},
        {**curve("keys", 1_000_000, 2.0), "workload": "enrich", "on": "new"},
        {**curve("keys", 10_000_000, 2.4), "workload": "enrich", "on": "new"},
        {**curve("keys", 10_000_000, 5.0), "workload": "enrich", "on": "new", "set": TENTH},
    ]
    found = verdicts(points)
    assert found["enrich: cost per record from 1 M to 10 M keys"].measured == "1.20×"
    assert found["enrich: cost per record from 1 M keys to 10 M in a tenth of the memory"].measured == "2.50×"
    assert found["enrich: cost per record from 1 M to 100 M keys"].verdict == "not measured"


def test_a_table_counts_as_large_only_beside_little_memory() -> None:
    table = {"kind": "big_table", "void": "", "table_bytes": 10**10, "memory_bytes": 10**9, "peak_bytes": 9 * 10**8}
    what = "a table in the proportion of 100 GB to 2 GB: peak memory against memory_max_bytes"
    assert verdicts([table])[what].verdict == "not measured"
    small = {**table, "memory_bytes": 312 * 10**6, "peak_bytes": 390 * 10**6}
    assert verdicts([table, small])[what].measured == "1.25×"
    assert verdicts([{**table, "table_bytes": 10**11, "memory_bytes": 2 * 10**9}])[what].verdict == "reached"


def test_the_report_shows_everything_that_was_brought(tmp_path: Path) -> None:
    row = {
        "group": "disk",
        "name": "fsync",
        "unit": "fsync",
        "per_s": 10.0,
        "cpu_us": 1.0,
        "bytes": 0.0,
        "note": "slow",
    }
    point = latency("batches ≤ 10", 0.0, 40_000, void="late")
    brought = [
        {"kind": "table", "title": "Nexmark", "text": "All queries.", "head": ["query"], "rows": [["q0"]]},
        {"kind": "table", "title": "Nexmark", "text": "All queries.", "head": ["query"], "rows": [["q1"]]},
        {"kind": "chart", "title": "Burst", "x_label": "s", "y_label": "ms", "lines": {"p99": [[1, 2], [2, 3]]}},
    ]
    lines = [
        MACHINE, MACHINE, {"kind": "roofline", "machine": MACHINE, "rows": [row]},
        drained("ysb", "penstock", 2_000.0, 1.0), latency("adaptive", 20.0), point,
        latency("adaptive", 30.0, 10_000), latency("adaptive", 30.0, keys=10_000),
        *(curve("windows", x, 2.0) for x in (10_000, 600_000)), *brought,
    ]  # fmt: skip
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "b.jsonl").write_text(json.dumps(MACHINE) + "\n" + json.dumps({**MACHINE, "rocksdict": "9"}) + "\n")
    assert publish.main(["--results", str(tmp_path), "--to", str(tmp_path)]) == 0
    text = (tmp_path / "REPORT.md").read_text()
    assert text.count("abc1234") == 2
    machines = [" ".join(line.split()) for line in text.splitlines() if "abc1234" in line]
    assert "Linux 6.1 | a, b |" in machines[0]
    assert "| b |" in machines[1] and "rocksdict 9" in machines[1]
    assert "q1" in text and "q0" not in text
    assert "VOID: late" in text
    assert "### ALO, a table of 10,000 rows" in text
    assert "fsync" in text
    plotted = {path.name for path in (tmp_path / "plots").iterdir()}
    assert plotted == {
        "burst.svg", "p50-of-enrich-against-rate-alo-1-m-rows.svg", "p99-of-enrich-against-rate-alo-1-m-rows.svg",
        "cost-against-the-size-of-windows.svg",
    }  # fmt: skip
    for name in plotted:
        assert f"(plots/{name})" in text
        ElementTree.fromstring((tmp_path / "plots" / name).read_text())


def test_a_line_that_is_no_result_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"kind": "machine"}\n{"at": 1}\n')
    with pytest.raises(ValueError, match=r"a\.jsonl:2"):
        list(publish.read(tmp_path))


def test_without_files_there_is_no_report(tmp_path: Path) -> None:
    assert publish.main(["--results", str(tmp_path), "--to", str(tmp_path)]) == 1
    assert not (tmp_path / "REPORT.md").exists()


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(3, 40, [2, 5, 10, 20, 50]), (1, 1, [1]), (10, 1_000, [10, 20, 50, 100, 200, 500, 1_000])],
)
def test_marks_reach_over_both_ends(low: float, high: float, expected: list[float]) -> None:
    assert plots.marks(low, high) == expected


def test_one_point_and_equal_points_can_be_drawn() -> None:
    for points in ([(5.0, 3.0)], [(5.0, 3.0), (5.0, 3.0)]):
        ElementTree.fromstring(plots.chart("t & t", [Line("<a>", points)], "x", "y", log_y=True))
    with pytest.raises(ValueError, match="no points"):
        plots.chart("t", [Line("a", [])], "x", "y")


def test_the_shop_is_held_to_flink_by_its_last_table() -> None:
    head = ["part", "system", "events/s", "CPU s/M", "check"]
    rows = [
        ["top", "flink", "500,000", "2.8", "taken as right"],
        ["top", "penstock", "750,000 (whole)", "1.4 (whole)", "equal"],
        ["alerts", "flink", "70,000", "20.0", "taken as right"],
        ["alerts", "penstock", "7,000", "120.0", "equal"],
        ["wrong", "flink", "70,000", "20.0", "taken as right"],
        ["wrong", "penstock", "1", "900.0", "differs: 1 of 2 rows are missing, 0 are not ours"],
    ]
    found = verdicts([{"kind": "table", "title": goals.SHOP, "head": head, "rows": rows[:2]}])
    assert found["Shop: least events/s of a part against Flink SQL"].measured == "1.50×"
    assert found["Shop: most CPU of a part against Flink SQL"].verdict == "reached"
    found = verdicts(
        [{"kind": "table", "title": goals.SHOP, "head": head, "rows": made} for made in (rows[:2], rows[:4])]
    )
    assert found["Shop: least events/s of a part against Flink SQL"][2:] == ("0.10×", "not reached")
    assert found["Shop: most CPU of a part against Flink SQL"].measured == "6.00×"
    found = verdicts([{"kind": "table", "title": goals.SHOP, "head": head, "rows": rows}])
    assert found["Shop: least events/s of a part against Flink SQL"].measured == "0.00×"
    assert found["Shop: most CPU of a part against Flink SQL"].measured == "inf×"
    assert verdicts([])["Shop: least events/s of a part against Flink SQL"].verdict == "not measured"
