"""The positions with which a rescaled application begins: where each input must go on, and the times of the old tasks."""

from __future__ import annotations

import pytest

import penstock as ps
from penstock.state.errors import SettingsError
from penstock.state.log import TopicPartition
from penstock.streams.batch.cluster import CommittedInput
from penstock.streams.batch.handover.rescale_plan import Rescaling, ScaledSide, rescaling
from penstock.streams.batch.handover.rescale_positions import NewTopics, check_times, contributors, new_positions
from penstock.streams.runtime.topic_setup import layout_of
from penstock.streams.task import commit_metadata
from penstock.streams.task.commit_metadata import CommitMetadata

Committed = dict[TopicPartition, CommittedInput]


def plan(suffix: str, counts: dict[str, int], behind: tuple[int, int]) -> Rescaling:
    """Stream and table, and windows behind a repartition topic of its own number of partitions."""
    sides = []
    for name, end, partitions in (("old", "", behind[0]), ("new", suffix, behind[1])):
        b = ps.StreamsBuilder("shop", key=str, value=str)
        rows = b.table(f"rows{end}", name="rows")
        met = b.stream(f"in{end}", name="in").join(rows, lambda v, row: v + row)
        by_value = met.group_by(lambda k, v: v, partitions=partitions, name="by-value")
        by_value.windowed_by(ps.tumbling("1s", grace="1s")).count(name="windows")
        topology = b.build()
        sides.append(
            ScaledSide(topology, name, layout_of(topology, name, {t: counts[t] for t in (f"rows{end}", f"in{end}")}))
        )
    return rescaling(sides[0], sides[1])


def at(offset: int, ms: int, operator: str = "windows", **changelogs: int) -> CommittedInput:
    noted = CommitMetadata(
        version=1,
        stream_time_ms=ms,
        partition_time_ms=ms,
        operators={operator: ms},
        changelogs=changelogs,
        owner="worker",
    )
    return CommittedInput(offset, noted)


def decoded(
    given: Rescaling, committed: Committed, ends: int = 100
) -> dict[TopicPartition, tuple[int, CommitMetadata]]:
    topics = given.new.topology.source_topics("new")
    places = [TopicPartition(t, p) for t, (s, _) in topics.items() for p in range(given.new.tasks(s))]
    known = dict.fromkeys(places, (7, 50)) | {tp: (0, ends + tp.partition) for tp in given.written()}
    found = new_positions(given, committed, NewTopics(known, {t: f"id-{t}" for t in topics}))
    return {tp: (p.offset, commit_metadata.decode(p.metadata)) for tp, p in found.items()}


def test_each_new_task_has_the_keys_of_the_old_tasks_that_are_equal_modulo_the_common_divisor() -> None:
    assert [list(contributors(q, 2, 3)) for q in range(3)] == [[0, 1]] * 3
    assert [list(contributors(q, 2, 4)) for q in range(4)] == [[0], [1], [0], [1]]
    assert [list(contributors(q, 4, 2)) for q in range(2)] == [[0, 2], [1, 3]]
    assert [list(contributors(q, 6, 4)) for q in range(4)] == [[0, 2, 4], [1, 3, 5], [0, 2, 4], [1, 3, 5]]


def test_inputs_of_parts_that_stay_go_on_where_they_are_and_others_at_their_beginnings() -> None:
    given = plan("", {"in": 4, "rows": 4}, (2, 3))
    topic = next(t for t in given.old.topology.source_topics("old") if t.startswith("old-"))
    committed = {TopicPartition("in", 0): at(40, 900, "other"), TopicPartition("rows", 0): at(9, 900, "other")}
    committed |= {TopicPartition("in", 2): at(41, 800, "other"), TopicPartition(topic, 0): at(12, 5_000, windows=33)}
    committed |= {TopicPartition(topic, 1): at(13, 5_400, windows=34)}
    check_times(given, committed)
    found = decoded(given, committed)
    moved = topic.replace("old-", "new-")
    assert {tp: offset for tp, (offset, _) in found.items()} == {
        TopicPartition("in", 0): 40,
        TopicPartition("rows", 0): 9,
        TopicPartition("in", 2): 41,
        **{TopicPartition(moved, p): 7 for p in range(3)},
    }
    _, of_stream = found[TopicPartition("in", 0)]
    assert (of_stream.stream_time_ms, of_stream.operators, of_stream.changelogs) == (900, {"other": 900}, {})
    assert (of_stream.first, of_stream.topic_id, of_stream.owner) == (40, "id-in", "")
    for p in range(3):
        _, noted = found[TopicPartition(moved, p)]
        assert (noted.operators, noted.changelogs, noted.first) == ({"windows": 5_400}, {"windows": 100 + p}, 7)
        assert noted.form == given.new.topology.source(given.new.topology.source_topics("new")[moved][1]).form


def test_a_table_goes_on_behind_its_rows_and_a_stream_at_the_beginning_of_its_new_topic() -> None:
    given = plan("-3", {"in": 2, "rows": 2, "in-3": 3, "rows-3": 3}, (2, 2))
    committed = {TopicPartition(t, p): at(40, 900, "other") for t in ("in", "rows") for p in range(2)}
    found = decoded(given, committed)
    assert {tp: offset for tp, (offset, _) in found.items()} == {
        **{TopicPartition("in-3", p): 7 for p in range(3)},
        **{TopicPartition("rows-3", p): 100 + p for p in range(3)},
    }


@pytest.mark.parametrize(("times", "same"), [((5_000, 5_999), True), ((5_999, 6_000), False), ((5_000, -1), False)])
def test_times_mean_the_same_where_no_window_closes_between_them(times: tuple[int, int], same: bool) -> None:
    given = plan("", {"in": 4, "rows": 4}, (2, 3))
    topic = next(t for t in given.old.topology.source_topics("old") if t.startswith("old-"))
    committed = {TopicPartition(topic, p): at(1, ms) for p, ms in enumerate(times) if ms >= 0}
    if same:
        check_times(given, committed)
        return
    with pytest.raises(SettingsError, match=r"operator windows .* multiple of 2 partitions"):
        check_times(given, committed)
    check_times(plan("", {"in": 4, "rows": 4}, (2, 6)), committed)
