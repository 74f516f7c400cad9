"""Cases of our own, for what the format has and the shared files do not show: each operator, window, trigger and event is
understood as the format says. Each case is small enough to be judged by eye."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.case_format import Case, read_cases
from tests.conformance.drive import DriverPlayer
from tests.conformance.suite import judge

FILE = Path(__file__).with_name("own_cases.jsonl")
CASES = list(read_cases(FILE.read_text().splitlines(), FILE.name))


@pytest.mark.parametrize("batch_size", [1, 2, 1000])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_case(case: Case, batch_size: int) -> None:
    wrong = judge(case, DriverPlayer(batch_size))
    assert wrong == [], "\n".join(wrong)
