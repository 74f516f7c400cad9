"""The table keeps what is void, and compares with the reference only what is valid."""

from __future__ import annotations

from typing import Any

from benchmarks.drain import Pair, Run, summary
from benchmarks.oracle import Verdict
from benchmarks.report import drain_table

RIGHT = Verdict(True, "4 keys: equal")


def pair(system: str, seconds: tuple[float, float], verdict: Verdict = RIGHT) -> dict[str, Any]:
    """The figures of a pair of 1,000 and 5,000 records."""
    runs = [
        Run(system, "ysb", "EOS", n, verdict, took, took / 2, 0.1, others_cores=0.25, peak_bytes=10**8, outputs=n // 10)
        for n, took in zip((1_000, 5_000), seconds, strict=True)
    ]
    return summary(Pair(*runs))


def cells(table: str) -> list[list[str]]:
    """The table's rows."""
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def test_rates_are_differences_and_stand_beside_the_reference() -> None:
    rows = cells(drain_table([pair("penstock", (3.0, 5.0)), pair("kafka-streams", (10.0, 14.0))]))
    reference, penstock = rows
    assert penstock[:5] == ["ysb", "penstock", "EOS", "1,000→5,000", "2,000"]
    assert penstock[5] == "250.0"
    assert penstock[9:] == ["2.00", "0.50", "0.25", "equal"]
    assert reference[4] == "1,000"


def test_a_wrong_answer_makes_a_pair_void_with_its_reason() -> None:
    wrong = Verdict(False, "3 keys differ")
    rows = cells(drain_table([pair("quix", (3.0, 5.0), wrong), pair("kafka-streams", (10.0, 14.0))]))
    assert rows[1][4] == "-"
    assert rows[1][-1].startswith("VOID 1 of 1: 1,000: 3 keys differ")


def test_one_void_repetition_is_told_beside_the_valid_one() -> None:
    rows = cells(drain_table([pair("quix", (3.0, 5.0)), pair("quix", (5.0, 5.0))]))
    assert rows[0][4] == "2,000"
    assert rows[0][-1] == "VOID 1 of 2: the larger run was not the longer one: noise"
