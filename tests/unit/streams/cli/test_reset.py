"""What a reset takes, and what it leaves alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.state.errors import SettingsError, UserError
from penstock.state.log import TopicPartition
from penstock.streams.cli.reset import ResetPlan, given_offsets, plan_of, refuse_members
from penstock.streams.cli.times import time_ms
from penstock.streams.kafka.groups import GroupSummary
from penstock.streams.runtime.own_topics import own_topics
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.graph.topology import Topology


def counting() -> Topology:
    builder = StreamsBuilder(key=str, value=str)
    builder.table("users")
    grouped = builder.stream("in").group_by(lambda key, value: value)
    grouped.count(name="n").to_stream().to("out", value=int)
    return builder.build()


def test_the_topics_of_users_are_not_the_applications_own() -> None:
    own = own_topics(counting(), "app")
    assert {"app-n-changelog", "app-0-journal", "app-1-journal"} <= set(own)
    assert any(topic.endswith("-repartition") for topic in own)
    assert not {"in", "out", "users"} & set(own)


def test_only_what_is_there_is_in_the_plan(tmp_path: Path) -> None:
    topics = ["in", "out", "users", "app-n-changelog", "app-2-n-changelog", "app-former-changelog", "app-x"]
    plan = plan_of(counting(), "app", ["app", "app-2", "other"], topics, tmp_path / "none")
    assert plan == ResetPlan(("app",), ("app-n-changelog",), left_over=("app-former-changelog",))
    plan = plan_of(counting(), "app", ["app-fixed"], topics[:4], tmp_path)
    assert plan.lines() == [
        "delete group      app-fixed",
        "delete topic      app-n-changelog",
        f"delete folder     {tmp_path}",
    ]


def test_places_to_begin_are_checked() -> None:
    assert given_offsets(["a:b:1=20"], {"a:b": 2}) == {TopicPartition("a:b", 1): 20}
    with pytest.raises(SettingsError, match="write TOPIC:PARTITION=OFFSET"):
        given_offsets(["in=3"], {"in": 1})
    with pytest.raises(SettingsError, match=r"reads no such partition; its inputs are in \(1 partition\)"):
        given_offsets(["in:1=3"], {"in": 1})


def test_times_are_utc_unless_they_say_another_zone() -> None:
    assert time_ms("1970-01-01T00:00:01.5", "--to") == 1_500
    assert time_ms("1970-01-01T01:00:00+01:00", "--to") == 0
    for wrong in ("yesterday", "1969-01-01"):
        with pytest.raises(SettingsError, match=f"--to {wrong}"):
            time_ms(wrong, "--to")


def test_live_members_are_refused_and_other_groups_are_not() -> None:
    refuse_members("app", [GroupSummary("app", "empty", ()), GroupSummary("app-2", "stable", ("w",))])
    for name in ("app", "app-fixed"):
        with pytest.raises(UserError, match=f"group {name} has 1 member .w.; stop its workers first"):
            refuse_members("app", [GroupSummary(name, "stable", ("w",))])
