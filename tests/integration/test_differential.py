"""Random programs on other systems themselves and on Penstock: every answer is the same, or a known departure."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.differential.__main__ import SEEDS
from tests.differential.functions import FUNCTIONS
from tests.differential.judging import SYSTEMS, verdicts_of
from tests.differential.kinds.patterns import CONDITIONS
from tests.differential.other_side import OtherSide
from tests.differential.processors import PROCESSORS
from tests.differential.report import lines

pytestmark = pytest.mark.integration
KINDS_MIN = {"kafka_streams": 120, "flink_cep": 40, "beam": 40}
NAMES = {
    "kafka_streams": {"functions": sorted(FUNCTIONS), "processors": sorted(PROCESSORS)},
    "flink_cep": {"conditions": sorted(CONDITIONS)},
    "beam": {
        "triggers": ["after_all", "after_any", "after_count", "after_each", "after_watermark", "default", "repeatedly"]
    },
}


PROJECTS = [
    pytest.param(
        project,
        marks=pytest.mark.skipif(
            project != "beam" and shutil.which("mvn") is None,
            reason="no mvn, which builds the other side; install Maven",
        ),
    )
    for project in SYSTEMS
]


@pytest.mark.parametrize("project", PROJECTS)
def test_every_answer_is_the_other_systems(project: str) -> None:
    system = SYSTEMS[project]
    verdicts = list(verdicts_of(system, system.kinds, range(SEEDS), os.cpu_count() or 1))
    report = "\n".join(lines(system, verdicts, every_kind=False))
    print(report)
    assert len(verdicts) >= KINDS_MIN[project]
    assert [v.kind for v in verdicts if v.unexplained_count] == [], report


@pytest.mark.parametrize("project", PROJECTS)
def test_both_sides_know_the_same_names(project: str, tmp_path: Path) -> None:
    with OtherSide(project, tmp_path) as other:
        assert other.knows == NAMES[project]
