"""What the commands on groups print, and whose topics are whose."""

from __future__ import annotations

import orjson

from penstock.state.log import TopicPartition
from penstock.streams.cli.groups import ApplicationSummary, applications, show_applications, show_groups, show_lag
from penstock.streams.kafka.groups import GroupSummary, PartitionLag, partitions_of_interest

LAGS = [
    PartitionLag("in", 0, 7, 10, "worker-1"),
    PartitionLag("in", 1, None, 4, None),
    PartitionLag("in", 2, 5, 4, "worker-1"),
]


def test_lag_is_what_is_left_and_never_below_zero() -> None:
    assert [p.lag for p in LAGS] == [3, None, 0]


def test_a_table_of_lags_ends_with_their_sum() -> None:
    lines = [line.split() for line in show_lag(LAGS, as_json=False).splitlines()]
    assert lines[0] == ["topic", "partition", "position", "end", "lag", "owner"]
    assert lines[1] == ["in", "0", "7", "10", "3", "worker-1"]
    assert lines[2] == ["in", "1", "-", "4", "-", "-"]
    assert " ".join(lines[-1]) == "total lag: 3, and up to 4 in partitions without a position"
    assert show_lag(LAGS[:1], as_json=False).endswith("total lag: 3")


def test_json_has_the_same_figures() -> None:
    found = orjson.loads(show_lag(LAGS, as_json=True))
    assert found[0] == {"topic": "in", "partition": 0, "position": 7, "end": 10, "owner": "worker-1", "lag": 3}
    assert found[1]["lag"] is None
    groups = [GroupSummary("counts", "stable", ("a", "b"))]
    assert orjson.loads(show_groups(groups, as_json=True)) == [
        {"group": "counts", "state": "stable", "members": ["a", "b"]}
    ]
    assert show_groups(groups, as_json=False).splitlines()[1].split() == ["counts", "stable", "2"]


def test_a_topic_with_one_position_is_shown_whole() -> None:
    everywhere = [TopicPartition("b", 1), TopicPartition("b", 0), TopicPartition("a", 0)]
    assert partitions_of_interest(everywhere, {TopicPartition("b", 1): 3}) == [
        TopicPartition("b", 0),
        TopicPartition("b", 1),
    ]


def test_a_topic_belongs_to_the_longest_name_that_it_begins_with() -> None:
    groups = [
        GroupSummary("counts", "stable", ("a",)),
        GroupSummary("counts-2", "empty", ()),
        GroupSummary("counts-fixed", "stable", ("b",)),
        GroupSummary("readers", "stable", ("c",)),
        GroupSummary("stateless", "empty", ()),
    ]
    topics = [
        "stateless-topology",
        "counts-n-changelog",
        "counts-2-n-changelog",
        "counts-2-0-journal",
        "counts-by-repartition",
        "counts-mine",
    ]
    found = applications(groups, topics)
    assert found == [
        ApplicationSummary("counts", 2, 1, 1, 0),
        ApplicationSummary("counts-2", 0, 1, 0, 1),
        ApplicationSummary("stateless", 0, 0, 0, 0),
    ]
    assert show_applications(found, as_json=False).splitlines()[1].split() == ["counts", "2", "1", "1", "0"]
    assert orjson.loads(show_applications(found, as_json=True))[1]["name"] == "counts-2"
