"""Players of a game: statistics of each session of play. A session ends when a player has not scored for five
minutes.

A score may arrive up to a minute after the end of its session and then joins the sessions around it. The longest
pause between two scores is exact in any order of arrival, because a session keeps the times of its scores.
"""

from __future__ import annotations

from itertools import pairwise

import msgspec

from penstock.state.serdes.serde import typed_json
from penstock.topologies.aggregators.base import Aggregator
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.graph.topology import Topology
from penstock.topologies.windows import session


class Score(msgspec.Struct, frozen=True, gc=False):
    """The fields that are read of a score; its key is the player."""

    points: int


class Play(msgspec.Struct, frozen=True):
    """The state of a session: the points, and when they were scored, in time order."""

    total: int = 0
    times_ms: tuple[int, ...] = ()


class Statistics(msgspec.Struct, frozen=True, gc=False):
    """The report of a session."""

    scores: int
    total: int
    mean: float
    longest_pause_ms: int


def add(play: Play, score: Score, timestamp_ms: int) -> Play:
    """With one score more."""
    return merge(play, Play(score.points, (timestamp_ms,)))


def merge(a: Play, b: Play) -> Play:
    """Merge two sessions that turn out to be one."""
    return Play(a.total + b.total, tuple(sorted((*a.times_ms, *b.times_ms))))


def statistics(play: Play) -> Statistics:
    """The report of a session with at least one score."""
    count = len(play.times_ms)
    pauses = (after - before for before, after in pairwise(play.times_ms))
    return Statistics(count, play.total, play.total / count, max(pauses, default=0))


STATISTICS = Aggregator(
    name="statistics",
    init=Play,
    add=add,
    result=statistics,
    serde=typed_json(Play),
    result_serde=typed_json(Statistics),
    merge=merge,
    exact_merge=True,
)


def build(source: str = "scores", output: str = "player-sessions", late: str = "late-scores") -> Topology:
    """One record per session, when it is over, under the player and the times of the first and last score. Scores
    that arrive too late for their session go to ``late`` unchanged."""
    builder = StreamsBuilder("player-sessions", value=Score)
    sessions = builder.stream(source).group_by_key().windowed_by(session("5m", grace="1m"))
    table = sessions.aggregate(STATISTICS, emission="on_close", late=True, name="sessions")
    table.to(output)
    table.late.to(late)
    return builder.build()
