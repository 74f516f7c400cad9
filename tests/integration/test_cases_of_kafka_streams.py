"""The conformance cases that come from Kafka Streams, on Kafka Streams itself: it answers as they say."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.conformance.case_format import read_cases
from tests.differential.cases import is_comparable, question_of, wrong_with
from tests.differential.kafka_streams_side import KAFKA_STREAMS
from tests.differential.other_side import OtherSide

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(shutil.which("mvn") is None, reason="no mvn, which builds the other side; install Maven"),
]
FILES = sorted((Path(__file__).parents[1] / "conformance" / "cases").rglob("*.jsonl"))


def test_kafka_streams_answers_as_its_cases_say(tmp_path: Path) -> None:
    cases = [case for file in FILES for case in read_cases(file.read_text().splitlines(), file.name)]
    comparable = [case for case in cases if is_comparable(case)]
    assert len(comparable) > 180
    with OtherSide(KAFKA_STREAMS.project, tmp_path) as other:
        other.ask([question_of(case) for case in comparable])
        answers = other.answer()
    wrong = {c.id: lines for c, a in zip(comparable, answers, strict=True) if (lines := wrong_with(c, a))}
    assert wrong == {}, "\n".join(line for id, lines in wrong.items() for line in (id, *lines))
