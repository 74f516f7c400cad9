"""What stands beside the tables follows from the results: machines, ceilings that were passed, what was held how."""

from __future__ import annotations

from typing import Any

from benchmarks import captions, publish
from benchmarks.captions import Machines
from benchmarks.goals import Finding
from benchmarks.report import label

USUAL = {"keys": 1_000_000, "partitions": 4, "window_ms": 10_000}


def machine(on: str) -> dict[str, Any]:
    """The line that names a machine."""
    facts = {"machine": on, "cpu": on.upper(), "cores": 2, "memory_gb": 8, "kernel": "6", "commit": "c"}
    return {"kind": "machine", "on": on, "file": on, **facts}


def drained(workload: str = "ysb", on: str = "a", rate: float = 90.0, **more: Any) -> dict[str, Any]:
    """A drain; its ceiling is 100 records a second."""
    return {
        "kind": "drain", "workload": workload, "system": "penstock", "guarantee": "ALO", "records": 5, "void": "",
        "records_per_s": rate, "cpu_s_per_million": 1.0, "broker_cpu_s_per_million": 0.5, "peak_bytes": 1,
        "rest_bytes": 1, "writes_per_input": 1.0, "others_cores": 0.0, "ceiling": 100.0, "repetition": 0, "session": "s",
        "variant": USUAL, "on": on, "file": on, "check": "5 keys, sum 5: equal", **more,
    }  # fmt: skip


def latency(**more: Any) -> dict[str, Any]:
    """A point."""
    found = dict.fromkeys(("p50_ms", "p90_ms", "p99_ms", "max_ms"), 1.0)
    facts = {"kind": "latencies", "series": "adaptive", "system": "penstock", "guarantee": "ALO", "rate_per_s": 5_000}
    return {**found, **facts, "void": "", "cpu_share": 0.1, "broker_share": 0.1, "file": "latencies", "on": "a", **more}


def restored(**more: Any) -> dict[str, Any]:
    """A restore."""
    facts = {"kind": "restore", "guarantee": "ALO", "changelog_records": [1, 9], "seconds": [2.0, 4.0], "void": ""}
    return {**facts, "system": "kafka-streams", "records_per_s": 4.0, "cpu_s_per_million": 2.0, "on": "a", **more}


def test_what_another_machine_measured_is_named_with_it() -> None:
    large = drained(on="b", variant={**USUAL, "keys": 10_000_000})
    on = Machines([machine("a"), machine("b")])
    assert (
        on.caption([drained(), drained("enrich"), large], label)
        == "*Machine: A, 2 cores; of ysb, 10 M keys: B, 2 cores.*"
    )
    assert on.caption([large]) == "*Machine: B, 2 cores.*"
    assert Machines([machine("a")]).caption([drained()]) == ""


def test_a_share_of_a_ceiling_that_is_not_shown_is_named() -> None:
    roofline = {"kind": "roofline", "machine": machine("a"), "rows": [], "on": "a"}
    on = Machines([machine("a"), machine("b"), roofline])
    assert on.ceilings([drained()]) == ""
    assert "on B, 2 cores are of that machine's own" in on.ceilings([drained(), drained(on="b")])
    assert on.ceilings([drained(on="b", ceiling=None)]) == ""


def test_a_ceiling_that_is_passed_was_measured_too_low() -> None:
    assert captions.too_low([drained(rate=100.0), drained("enrich", void="lost", rate=900.0)]) == ""
    assert captions.too_low([drained(rate=107.0)]) == "**Ceiling measured too low:** ysb, penstock, ALO: 107%."
    above, below = (Finding(f"{n}: share", "≥ 60 %", f"{n:.2f} %", "reached") for n in (106.17, 99.0))
    other = Finding("rate", "≥ 2×", "300.00×", "reached")
    unknown = Finding("share", "≥ 60 %", "-", "not measured")
    assert captions.goals_too_low([below, other, unknown]) == ""
    assert captions.goals_too_low([above, below]) == "**Ceiling measured too low:** 106.17: share: 106.17 %."


def test_enriched_answers_held_by_user_are_told_apart_from_those_held_whole() -> None:
    whole = drained("enrich", check="5 records, sum of digests 1f: equal")
    assert captions.PER_USER not in captions.drain_notes([whole, drained()])
    assert captions.PER_USER in captions.drain_notes([whole, drained("enrich")])


def test_waits_say_from_when_they_count() -> None:
    due, handed = latency(since="due"), latency(file="older")
    assert captions.latency([due, due]).startswith("From the moment at which a click is due")
    assert "handing over" not in captions.latency([due, latency(void="late")])
    assert captions.latency([handed]).startswith("From handing a click")
    assert "The waits in older count from handing over" in " ".join(captions.latency([due, handed]).split())
    of_both = [latency(since="due", file="both"), latency(file="both", series="Quix Streams")]
    assert "The waits in both (Quix Streams) count from handing over" in " ".join(captions.latency(of_both).split())


def test_a_session_in_the_seconds_of_a_restore_is_told() -> None:
    assert captions.SESSION in captions.restore([restored()])
    assert captions.SESSION not in captions.restore([restored(left_group=True), restored(system="penstock")])


def test_the_report_is_captioned_and_its_kept_tables_say_what_their_results_say() -> None:
    nothing = {"query": "q7", "events": 9, "written": 0, "seconds": 1.0, "cpu_s": 1.0, "peak_bytes": 1, "steady": None}
    road = {"expressways": 4, "holds": True, "speed": 1.0, "void": "", "processes": 2, "guarantee": "ALO"}
    burst = {"system": "x", "guarantee": "ALO", "rate_per_s": 5.0, "scale": 0.3, "void": "lost"}
    kept = {"text": "kept text", "head": ["kept"], "rows": [["kept row"]]}
    titles = ("Nexmark", "Linear Road", "A burst", "Another")
    every = [
        machine("a"), machine("b"), drained(rate=107.0), latency(), restored(),
        {"kind": "nexmark", "verdict": "equal", **nothing}, {"kind": "linear_road", **road}, {"kind": "burst", **burst},
        *({"kind": "table", "title": title, "on": "b", **kept} for title in titles),
    ]  # fmt: skip
    text = publish.render(every).text()
    assert text.count("kept row") == text.count("kept text") == 1
    for said in ("nothing expected", "L = 4 at least, with 2 processes, ALO", "The scale of these is 0.3.", "107%.",
                 "held against", captions.SESSION, captions.GOALS):  # fmt: skip
        assert said in text
    assert text.count("*Machine: B, 2 cores.*") == 4
