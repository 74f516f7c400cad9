"""Every case that an engine is bound to pass, through real topologies in the test driver: record by record, and in
batches that hold all input between two restarts or watermarks, as lists and as columns."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.topologies.columnar import column_parts
from tests.conformance.case_format import Case, read_cases
from tests.conformance.drive import DriverPlayer
from tests.conformance.suite import judge

FILES = sorted((Path(__file__).parent / "cases").rglob("*.jsonl"))
CASES = [case for file in FILES for case in read_cases(file.read_text().splitlines(), file.name)]
BOUND = [case for case in CASES if case.judged]
PAGE = Path(__file__).parents[2] / "DEPARTURES.md"


def test_there_are_cases_of_every_group() -> None:
    assert {case.group for case in CASES} == {file.stem for file in FILES}
    assert len({case.id for case in CASES}) == len(CASES) > 400
    assert len(BOUND) > 380


DEPARTING = {
    "flink.sqljoin.testRowTimeFullOuterJoinNegativeWindowSize": "Joins that nothing can match",
    "kafka.nullkey.testDropNullKeyRecordsForRepartitionNodesWithNoRelaxedJoinDownstream": "Null keys in repartition",
    "kafka.ssj.outer.testWindowing": "Late records and the time of the other side",
    "kafka.ttj.integration.testInnerOuter": "Rows that were never there",
    "kafka.ttj.integration.testOuterInner": "A table joined with itself",
    "kafka.ttj.integration.testOuterOuter": "Rows that were never there",
}
"""Cases that bind nobody and that Penstock answers otherwise, with their entries in DEPARTURES.md."""
PLAYERS = {"1": DriverPlayer(1), "1000": DriverPlayer(1000), "1000-columns": DriverPlayer(1000, columns=True)}


@pytest.mark.parametrize("player", PLAYERS)
@pytest.mark.parametrize("case", BOUND, ids=lambda case: case.id)
def test_case(case: Case, player: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_parts, "FEWEST", 1)  # cases are short
    wrong = judge(case, PLAYERS[player])
    assert wrong == [], "\n".join(wrong)


def test_cases_that_bind_nobody_differ_only_where_the_page_of_departures_says_so() -> None:
    free = [case for case in CASES if not case.judged]
    assert {case.id for case in free if judge(case, PLAYERS["1"])} == DEPARTING.keys()
    headings = {line.removeprefix("### ") for line in PAGE.read_text().splitlines() if line.startswith("### ")}
    assert set(DEPARTING.values()) <= headings
