"""Random programs on Kafka Streams itself and on Penstock: every answer is the same, or a known departure."""

from __future__ import annotations

import os
import shutil

import pytest

from tests.differential.__main__ import SEEDS, verdicts_of
from tests.differential.functions import FUNCTIONS
from tests.differential.java_side import JavaSide
from tests.differential.kafka_streams_side import KAFKA_STREAMS, KINDS
from tests.differential.processors import PROCESSORS
from tests.differential.report import lines

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(shutil.which("mvn") is None, reason="no mvn, which builds the other side; install Maven"),
]


def test_every_answer_is_that_of_kafka_streams() -> None:
    verdicts = list(verdicts_of(list(KINDS), range(SEEDS), os.cpu_count() or 1))
    report = "\n".join(lines(KAFKA_STREAMS, verdicts, every_kind=False))
    print(report)
    assert len(verdicts) >= 120
    assert [v.kind for v in verdicts if v.unexplained_count] == [], report


def test_both_sides_know_the_same_functions_and_processors() -> None:
    with JavaSide(KAFKA_STREAMS.project) as java:
        assert java.knows == {"functions": sorted(FUNCTIONS), "processors": sorted(PROCESSORS)}
