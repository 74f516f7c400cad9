"""Which aggregations combine before their repartition topic, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.state.errors import TopologyError
from penstock.topologies.aggregators import count, first, mean, sum_
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.dsl.kgrouped_stream import KGroupedStream
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operator_api.watermark_strategies import bounded_out_of_orderness
from penstock.topologies.operators.aggregates.combine import CombineSpec
from penstock.topologies.triggers import after_count
from penstock.topologies.windows import hopping, session, sliding, tumbling, unlimited

Use = Callable[[KGroupedStream], Any]


def built(use: Use, *, emission: Any = "per_commit", watermark: Any = None, **options: Any) -> Topology:
    builder = StreamsBuilder("t", value=int, emission=emission, **options)
    use(builder.stream("in", watermark=watermark).group_by(lambda k, v: k))
    return builder.build()


def combines(topology: Topology) -> bool:
    return any(isinstance(spec, CombineSpec) for spec in topology.operators.values())


@pytest.mark.parametrize(
    "use",
    [
        lambda g: g.count(),
        lambda g: g.reduce(min, merge=min),
        lambda g: g.aggregate(sum_(number=int)),
        lambda g: g.agg(n=count(), total=sum_(number=int)),
        lambda g: g.aggregate(sum_(number=float), approximate=True),
        lambda g: g.windowed_by(tumbling("1m", grace="10s")).count(),
        lambda g: g.windowed_by(hopping("1m", "10s", grace="1h")).count(),
        lambda g: g.windowed_by(unlimited()).count(),
        lambda g: g.windowed_by(tumbling("1m", grace=0)).count(combine=True),
        lambda g: g.windowed_by(tumbling("1m", grace=0)).count(combine=True, emission="on_close"),
        lambda g: g.windowed_by(tumbling("1m", time="processing")).count(),
        lambda g: g.windowed_by(tumbling("1m", time="processing")).aggregate(sum_(number=int), emission="on_close"),
        lambda g: g.windowed_by(session("1m", grace=0, time="processing")).count(),
    ],
)
def test_exact_merges_per_commit_are_combined(use: Use) -> None:
    topology = built(use)
    assert combines(topology)
    topics = [t for t in topology.source_topics("app") if t.startswith("app-")]
    assert len(topics) == 1
    assert topics[0].endswith("-partials-repartition")


@pytest.mark.parametrize(
    "use",
    [
        lambda g: g.count(combine=False),
        lambda g: g.count(emission="every_update"),
        lambda g: g.windowed_by(tumbling("1m", grace="1h")).count(late=True),
        lambda g: g.reduce(min),
        lambda g: g.aggregate(sum_(number=float)),
        lambda g: g.aggregate(mean(), approximate=False),
        lambda g: g.aggregate(first(), approximate=True),
        lambda g: g.windowed_by(TIGHT).count(),
        lambda g: g.windowed_by(tumbling("1m", grace="1h")).count(emission="on_close"),
        lambda g: g.windowed_by(tumbling("1m", time="processing")).count(combine=False),
        lambda g: g.windowed_by(session("1m", grace="1h")).count(),
        lambda g: g.windowed_by(sliding("1m", grace="1h")).count(),
        lambda g: g.with_ttl("1h").count(emission="every_update"),
    ],
)
def test_others_are_not(use: Use) -> None:
    assert not combines(built(use))


TIGHT = tumbling("1m", grace="1s")


def test_the_watermark_and_the_builder_decide_too() -> None:
    use: Use = lambda g: g.windowed_by(TIGHT).count()  # noqa: E731  # stands for a user's
    assert combines(built(use, watermark=bounded_out_of_orderness("1s")))
    assert not combines(built(use))
    assert not combines(built(lambda g: g.count(), combine=False))
    assert combines(built(lambda g: g.count(combine=True), combine=False))


def test_there_is_nothing_to_combine_where_no_topic_is_between() -> None:
    builder = StreamsBuilder("t", emission="per_commit")
    builder.stream("in").group_by_key().count(combine=True)
    assert not combines(builder.build())


@pytest.mark.parametrize(
    ("use", "why"),
    [
        (lambda g: g.count(combine=True, emission="every_update"), "every_update"),
        (lambda g: g.reduce(min, combine=True), "give merge="),
        (lambda g: g.aggregate(mean(), combine=True), "approximate=True"),
        (lambda g: g.windowed_by(TIGHT).count(combine=True, late=True), "original records"),
        (lambda g: g.windowed_by(session("1m", grace=0)).count(combine=True), "watermark strategy"),
        (lambda g: g.windowed_by(session(0, grace=0)).count(combine=True), "the timestamp alone"),
        (lambda g: g.windowed_by(sliding("1m", grace=0)).count(combine=True), "the timestamp alone"),
        (lambda g: g.with_ttl("1h").count(combine=True), "a ttl depends"),
        (lambda g: g.split(4).windowed_by(TIGHT).count(), "watermark strategy"),
        (lambda g: g.split(4).count(combine=False), "combine=False"),
        (lambda g: g.split(4).reduce(min), "give merge="),
        (lambda g: g.split(1), "at least 2"),
        (lambda g: g.split(4).windowed_by(TIGHT).triggered(after_count(2)), "leave split out"),
        (lambda g: g.split(4).cogroup(lambda k, v, a: a), "leave split out"),
    ],
)
def test_what_cannot_be_combined_or_split_is_refused(use: Use, why: str) -> None:
    with pytest.raises(TopologyError, match=why):
        built(use)


def test_watermarks_let_counts_of_sessions_be_combined() -> None:
    watermark = bounded_out_of_orderness("1s")
    for emission in ("per_commit", "on_close"):
        assert combines(built(lambda g: g.windowed_by(SESSIONS).count(), emission=emission, watermark=watermark))
    for use in (
        lambda g: g.windowed_by(SESSIONS).count(emission="every_update"),
        lambda g: g.windowed_by(SESSIONS).aggregate(sum_(number=int), combine=None),
        lambda g: g.windowed_by(session(lambda key, value: 5, grace=0), retention="1h").count(),
    ):
        assert not combines(built(use, watermark=watermark))
    with pytest.raises(TopologyError, match="other aggregates than counts"):
        built(lambda g: g.windowed_by(SESSIONS).aggregate(sum_(number=int), combine=True), watermark=watermark)


SESSIONS = session("1m", grace="1s")


def test_watermarks_let_windows_be_split() -> None:
    topology = built(lambda g: g.split(4).windowed_by(TIGHT).count(), watermark=bounded_out_of_orderness("1s"))
    assert combines(topology)
    assert len(topology.subtopologies) == 3
