"""Random programs on other systems themselves and on Penstock: every answer is the same, or a known departure."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.differential.functions import FUNCTIONS
from tests.differential.judging import SYSTEMS, verdicts_of
from tests.differential.kinds.patterns import CONDITIONS
from tests.differential.kinds.queries import NAMED, STREAM
from tests.differential.other_side import OtherSide
from tests.differential.processors import PROCESSORS
from tests.differential.report import lines

pytestmark = pytest.mark.integration
KINDS_MIN = {"kafka_streams": 120, "flink_cep": 40, "flink_sql": 40, "beam": 40, "beam_runner": 40}
TRIGGERS = ["after_all", "after_any", "after_count", "after_each", "after_watermark", "default", "repeatedly"]
NAMES = {
    "kafka_streams": {"functions": sorted(FUNCTIONS), "processors": sorted(PROCESSORS)},
    "flink_cep": {"conditions": sorted(CONDITIONS)},
    "flink_sql": {"l": list(STREAM), "r": list(STREAM), "named": list(NAMED)},
    "beam": {"triggers": TRIGGERS},
    "beam_runner": {"triggers": TRIGGERS},
}


NAMES_OF_SYSTEMS = [
    pytest.param(
        name,
        marks=pytest.mark.skipif(
            SYSTEMS[name].project != "beam" and shutil.which("mvn") is None,
            reason="no mvn, which builds the other side; install Maven",
        ),
    )
    for name in SYSTEMS
]


@pytest.mark.parametrize("name", NAMES_OF_SYSTEMS)
def test_every_answer_is_the_other_systems(name: str) -> None:
    system = SYSTEMS[name]
    verdicts = list(verdicts_of(system, system.kinds, range(system.seeds), os.cpu_count() or 1))
    report = "\n".join(lines(system, verdicts, every_kind=False))
    print(report)
    assert len(verdicts) >= KINDS_MIN[name]
    assert [v.kind for v in verdicts if v.unexplained_count] == [], report


@pytest.mark.parametrize("name", NAMES_OF_SYSTEMS)
def test_both_sides_know_the_same_names(name: str, tmp_path: Path) -> None:
    with OtherSide(SYSTEMS[name].project, tmp_path) as other:
        assert other.knows == NAMES[name]
