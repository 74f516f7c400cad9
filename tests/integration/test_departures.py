"""Kafka Streams' own side of the page of departures: each entry's input, as the page has it, run on Kafka Streams itself."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.differential.kafka_streams_side import KAFKA_STREAMS
from tests.differential.other_side import OtherSide
from tests.differential.outcomes import same
from tests.differential.page import NOT_RUN, TOPOLOGIES, entries_of_page, rows_of, run_of

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(shutil.which("mvn") is None, reason="no mvn, which builds the other side; install Maven"),
]

KAFKA_STREAMS_ANSWERS: dict[str, list[str]] = {
    "Null values in windows": ["k[0, 10] 1@1", "k[0, 10] 2@2"],
    "Timestamps of foreign-key joins": ["a A|B@3"],
    "Negative join bounds near time 0": ["k L|R@0"],
    "Order of sliding windows": ["k[7, 12] 3@12", "k[6, 11] 2@11", "k[12, 17] 1@12"],
    "A null key in a left join with grace": ["NullPointerException key cannot be null"],
    "Equal timestamps in a grace buffer": ["a second|null@5", "b first|null@5"],
    "Windows on close when time jumps": [],
    "How long sliding windows are kept": ["q[4, 7] 2@7", "k[4, 7] 1@7"],
    "Sliding windows behind late records": ["k[3, 13] 1@9", "k[3, 13] 2@13"],
    "How long sessions are kept": ["k[5, 5] 1@5", "q[8, 8] 1@8", "k[8, 8] 1@8"],
    "How long joined windows are kept": [],
    "Sliding windows of one instant": ["IllegalArgumentException Window endMs must be greater than window startMs."],
    "A tombstone of its row's time": ["k v|old@6"],
    "Sliding windows in suppress": ["k[62, 72] b,c@69"],
    "Timestamps behind suppress": ["k a|null@265", "k a|x@254"],
    "Initial aggregates": ["0 None@1", "1 1@1"],
    "A table joined with itself": ["k 1|1'@1", "k 1|1'@1"],
    "How far a stream of a cogroup may lag": ["k[86400010, 86400020] <x@86400010", "k[0, 10] >z@9"],
    "Records without a key or value that run ahead": ["k x|null@10", "k x|y@12"],
    "How late a record may meet another": [],
    "Late records and the time of the other side": ["k c|b@1000"],
    "How long unmatched records wait": [],
    "Versioned tables as streams": ["k new@10", "k old@5"],
    "Rows that were never there": ["a None@2"],
    "Old values behind suppress": ["all +k:b+q:c@20", "all +k:b+q:c-k:d+k:e@31"],
    "Deletions behind suppress": ["k a|null@0", "q z|null@10"],
    "Aggregates that become null": ["k a@5", "k None@1"],
    "Sliding windows that are two records' at once": ["k[11, 21] 1@21", "k[11, 21] 1@21"],
    "Sessions that keep their bounds": ["k +b@5", "k +b+b,e@5"],
    "Old values of transformed tables": ["a +a#1@0@0", "a +a#1@0-a#4@1@1", "b +b#3@1@1"],
    "Sessions that were closed": ["k[26, 26] a@26", "k[26, 32] a,b,d@32"],
    "Rows that did not change": ["k a|null@6", "k a|null@14"],
    "Aggregates that become null within a commit": [],
    "Null keys in repartition": [],
    "First timer in stream time": ["k 12:null+a@12", "k 25:null+b@25"],
    "First timer by the clock": ["k 15:null+a@15"],
}
"""The last records that it puts out, or its error: what the page says in words."""


def test_kafka_streams_answers_as_the_page_says(tmp_path: Path) -> None:
    page = entries_of_page()
    assert set(KAFKA_STREAMS_ANSWERS) == set(TOPOLOGIES) == set(page) - set(NOT_RUN)
    runs = [run_of(heading, page[heading]) for heading in KAFKA_STREAMS_ANSWERS]
    assert all(run.input for run in runs)
    with OtherSide(KAFKA_STREAMS.project, tmp_path) as other:
        other.ask([KAFKA_STREAMS.question(run) for run in runs])
        theirs = dict(zip(KAFKA_STREAMS_ANSWERS, other.answer(), strict=True))
    shown = {heading: rows_of(outcome) for heading, outcome in theirs.items()}
    ends = {
        heading: [row.split(": ")[-1] if outcome.error else row for row in shown[heading]]
        for heading, outcome in theirs.items()
    }
    expected = KAFKA_STREAMS_ANSWERS
    assert {h: rows[-len(expected[h]) :] if expected[h] else rows for h, rows in ends.items()} == expected
    alike = [run.kind for run in runs if same(KAFKA_STREAMS.play(run), theirs[run.kind])]
    assert alike == [], "these inputs show no departure"
