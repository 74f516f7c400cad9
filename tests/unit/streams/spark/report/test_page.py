"""The page about a job: everything that was noted is on it, and nothing that a browser would run or fetch."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import penstock as ps
from penstock.state.log import TopicPartition
from penstock.streams.batch.published import OutputFile, TaskReport
from penstock.streams.spark.report.page import ROWS_MAX, Page, Section, Table, duration_text, html_of, size_text
from penstock.streams.spark.report.record import (
    JobRecord,
    StageRecord,
    current,
    note_ranges,
    note_tasks,
    phase,
    recorded,
)
from penstock.streams.spark.report.sections import input_section, plan_sections, tiles, time_section
from penstock.streams.spark.report.stages import call_of
from penstock.topologies.graph.topology import Topology


def topology() -> Topology:
    b = ps.StreamsBuilder("two", key=str, value=dict)
    b.stream("in").group_by(lambda k, v: v["x"]).count(name="counts").to_stream().to("out", value=int)
    return b.build()


def report(sub: int, task: int, records: int) -> TaskReport:
    made = OutputFile(topic="out", subtopology=sub, task=task, path="p", rows=2 * records, partitions=(task,))
    return TaskReport(
        subtopology=sub, task=task, records=records, outputs=(made,), stores=(), dropped={"late": 3}, failures={}
    )


def stage(name: str, run_ms: tuple[int, int, int] | None, failed: int = 0) -> StageRecord:
    return StageRecord(name, 4, failed, 0, 50, 2_000_000, 3_000, 0, run_ms)


def noted() -> JobRecord:
    with recorded() as record:
        with phase("plan"):
            pass
        with phase("the replay") as opened:
            assert opened is not None
            with phase("inside"):  # belongs to the outer one
                note_tasks([report(0, 1, 30), report(0, 0, 10), report(1, 0, 7)])
            note_ranges({TopicPartition("in", 1): (5, 35), TopicPartition("in", 0): (0, 10)})
            opened.stages += [stage("collect", (10, 20, 90), failed=1), stage("map", (1, 1, 30))]
    return record


class Seen(HTMLParser):
    """The tags of a page, and its text."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in ("meta",):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_a_job_notes_its_phases_and_only_in_a_record() -> None:
    with phase("nobody notes this") as opened:
        note_tasks([report(0, 0, 1)])
        assert opened is None and current() is None
    assert [p.name for p in noted().phases] == ["plan", "the replay"]


def test_the_plan_is_by_subtopology_and_task_in_their_order() -> None:
    first, second = plan_sections(noted(), {"": (topology(), "app")})
    assert first.title == "Sub-topology 0" and dict(first.facts)["reads"] == "in"
    assert [row[:3] for row in first.tables[0].rows] == [("0_0", 10, 20), ("0_1", 30, 60)]
    assert first.lines == ["The largest task has 1.5 times as much as the median."]
    assert dict(second.facts)["stores"] == "counts" and dict(second.facts)["writes"] == "out"
    assert [row[0] for row in second.tables[0].rows] == ["1_0"]


def test_figures_of_the_stages_are_summed_and_the_longest_stage_says_the_skew() -> None:
    found = dict(tiles(noted(), 94))
    assert found["records in"] == "47" and found["rows out"] == "94" and found["read"] == "4.0 MB"
    assert found["slowest to median task"] == "4.5 ×" and found["failed attempts"] == "1"
    notes = [span.note for span in time_section(noted()).spans if span.within]
    assert "failed attempts: 1" in notes[0] and "10 ms, 20 ms, 90 ms" in notes[0]


def test_a_job_without_tasks_says_how_long_its_ranges_are() -> None:
    with recorded() as record, phase("the compaction"):
        note_ranges({TopicPartition("log", 0): (5, 35), TopicPartition("log", 1): (0, 7)})
    assert dict(tiles(record, None))["offsets read"] == "37" and dict(tiles(record, None))["rows out"] == "–"


def test_stages_are_named_by_their_call() -> None:
    assert call_of("collect at /opt/app/compaction.py:12") == "collect at compaction.py:12"
    assert call_of("append at NativeMethodAccessorImpl.java:0") == "append"


def test_ranges_are_listed() -> None:
    ranges = input_section(noted())
    assert ranges is not None and ranges.tables[0].rows == [("in", 0, 0, 10, 10), ("in", 1, 5, 35, 30)]
    assert input_section(JobRecord()) is None


def test_the_page_is_whole_escaped_and_needs_nothing_else() -> None:
    rows = [(f"<b>{i}</b>", i) for i in range(ROWS_MAX + 5)]
    section = Section("a & b", lines=["<script>1</script>"], tables=[Table(("name", "n"), rows, numbers=(1,), bar=1)])
    record = noted()
    text = html_of(Page("t <1>", "about", "all well", False, [("read", "1 MB")], [section, time_section(record)]))
    seen = Seen()
    seen.feed(text)
    assert not seen.open and not {"script", "link", "img"} & set(seen.tags)
    assert not re.search(r"https?:|url\(|@import", text)
    said = " ".join(seen.text)
    assert "<script>1</script>" in said and "<b>3</b>" in said and "and 5 more rows" in said and "t <1>" in said
    assert "prefers-color-scheme: dark" in text and "width=device-width" in text and 'class="bad"' in text


def test_sizes_and_durations_for_people() -> None:
    assert [size_text(x) for x in (0, 999, 1_500, 2_000_000, 3e12)] == [
        "0 bytes",
        "999 bytes",
        "1.5 kB",
        "2.0 MB",
        "3,000.0 GB",
    ]
    assert [duration_text(x) for x in (12, 1_500, 90_000, 150_000, 7_500_000)] == [
        "12 ms",
        "1.5 s",
        "90.0 s",
        "2.5 min",
        "2 h 5 min",
    ]
