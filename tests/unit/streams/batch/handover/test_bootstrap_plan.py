"""A bootstrap drops or diverts every output, never overtakes, and refuses an application that has run."""

from __future__ import annotations

import pytest

from penstock.state.errors import SettingsError
from penstock.state.log import TopicPartition
from penstock.streams.batch.cluster import CommittedInput
from penstock.streams.batch.handover.bootstrap_plan import (
    begin_cautions,
    diverted,
    refuse_ahead,
    refuse_live,
    stops_beside,
    unequal_counts,
)
from penstock.streams.ports.log import OffsetAndMetadata
from penstock.streams.runtime.fixed_fence import BOOTSTRAPPED, FENCED, RUN_FIXED, UNFINISHED, refuse_moved
from penstock.streams.task.commit_metadata import CommitMetadata
from penstock.streams.testing.memory_sink import MemorySink
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.graph.topology import Topology

IN, OTHER, OWN = (TopicPartition(t, 0) for t in ("in", "other", "own"))


def at(offset: int, owner: str = "") -> CommittedInput:
    return CommittedInput(offset, CommitMetadata(owner=owner))


def marked(text: str | None) -> dict[TopicPartition, OffsetAndMetadata | None]:
    return {IN: None if text is None else OffsetAndMetadata(0, text)}


def shop() -> Topology:
    b = StreamsBuilder("shop", key=str, value=str)
    stream = b.stream("in")
    stream.to(lambda k, v: "big", topics=["big", "small"])
    stream.group_by(lambda k, v: v).count(name="counts").to_stream().to("out", value=int)
    return b.build()


def test_every_output_is_dropped_or_diverted_and_repartition_topics_are_not() -> None:
    assert diverted(shop(), "app", None, {}) == {"big": None, "small": None, "out": None}
    assert diverted(shop(), "app", "dead", {"out": "out-2"}) == {
        "big": None,
        "small": None,
        "out": "out-2",
        "dead": None,
    }
    with pytest.raises(SettingsError, match="does not write outt; it writes: big, out, small"):
        diverted(shop(), "app", None, {"outt": "out-2"})
    for taken in ("in", "small"):
        with pytest.raises(SettingsError, match=f"cannot go to {taken}"):
            diverted(shop(), "app", None, {"out": taken})
    assert unequal_counts({"out": "out-2", "big": None}, {"out": 4, "out-2": 3}) == [
        "out-2 has 3 partitions and out has 4"
    ]
    assert unequal_counts({"out": "out-2"}, {"out": 4, "out-2": 4}) == []


def test_an_external_sink_is_refused_since_its_rows_would_go_out() -> None:
    b = StreamsBuilder("rows", key=str, value=str)
    b.stream("in").sink(MemorySink(), name="rows")
    with pytest.raises(SettingsError, match="external sink 'rows' would be written"):
        diverted(b.build(), "app", None, {})


@pytest.mark.parametrize(("mark", "owner"), [(None, ""), (RUN_FIXED, ""), (FENCED, ""), (BOOTSTRAPPED, "a-worker")])
def test_an_application_that_has_run_is_refused(mark: str | None, owner: str) -> None:
    with pytest.raises(SettingsError, match=r"app has run: it stands at offset 7 of in \[0\]"):
        refuse_live("app", {IN: at(7, owner)}, marked(mark))


def test_one_that_was_only_bootstrapped_or_never_ran_is_not() -> None:
    refuse_live("app", {IN: at(7)}, marked(BOOTSTRAPPED))
    refuse_live("app", {}, marked(RUN_FIXED))


def test_the_replaced_application_is_not_overtaken() -> None:
    ends = {IN: (0, 100), OTHER: (0, 50), OWN: (0, 9)}
    topics = {"in", "other"}
    # OTHER was never read by the replaced one: the new one's workers begin there. OWN is read by the new one alone.
    assert stops_beside({IN: 40}, {IN: at(60)}, topics, ends) == {IN: 40, OWN: 9}
    assert stops_beside({IN: 90}, {IN: at(60)}, topics, ends) == {IN: 60, OWN: 9}
    assert stops_beside({}, {IN: at(60)}, topics, ends) == {IN: 60, OWN: 9}
    refuse_ahead("new", {IN: at(60)}, "old", {IN: at(60)}, ends)
    refuse_ahead("new", {OTHER: at(3)}, "old", {IN: at(60)}, {OTHER: (3, 50)})
    with pytest.raises(SettingsError, match=r"new stands at offset 61 of in \[0\], beyond old, which stands at 60"):
        refuse_ahead("new", {IN: at(61)}, "old", {IN: at(60)}, ends)
    with pytest.raises(SettingsError, match="beyond old"):
        refuse_ahead("new", {OTHER: at(1)}, "old", {IN: at(60)}, ends)


def test_inputs_whose_beginnings_are_gone_are_named_until_they_are_read() -> None:
    ends = {IN: (12, 100), OTHER: (0, 50)}
    (caution,) = begin_cautions([IN, OTHER], {}, ends)
    assert caution.startswith("in no longer begins at offset 0 but at [0] 12")
    assert begin_cautions([IN, OTHER], {IN: at(40)}, ends) == []


def test_a_part_of_an_initial_state_is_no_state() -> None:
    refuse_moved(marked(BOOTSTRAPPED))
    refuse_moved({IN: None})
    refuse_moved(marked(UNFINISHED), (UNFINISHED,))
    with pytest.raises(SettingsError, match="has not ended"):
        refuse_moved(marked(UNFINISHED))
