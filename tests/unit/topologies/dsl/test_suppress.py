"""Suppress in the DSL: refusals, defaults, and whose grace it takes."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.state.errors import TopologyError
from penstock.state.log import Record
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.dsl.ktable import KTable
from penstock.topologies.operators.tables.suppress import SuppressSpec, until_time_limit, until_window_closes
from penstock.topologies.windows import Windows, session, sliding, tumbling, unlimited


def counted(windows: Windows | None = None, **options: Any) -> tuple[StreamsBuilder, KTable]:
    """Counts per key, and window if any."""
    builder = StreamsBuilder("t", key=str, value=str)
    grouped = builder.stream("in").group_by_key()
    return builder, (grouped if windows is None else grouped.windowed_by(windows, **options)).count(name="n")


def limit_of(builder: StreamsBuilder, table: KTable) -> int:
    """The limit of a table's suppress."""
    spec = builder.build().operators[table.name]
    assert isinstance(spec, SuppressSpec)
    return spec.limit_ms


@pytest.mark.parametrize(
    ("windows", "limit"),
    [(tumbling(10, grace=3), 3), (sliding(10, grace=4), 4), (session(10, grace=5), 15)],
)
def test_windows_close_after_their_own_grace(windows: Windows, limit: int) -> None:
    builder, table = counted(windows)
    held = table.filter(lambda k, n: n > 1).suppress(until_window_closes(), name="held")
    held.to("out")
    assert limit_of(builder, held) == limit


@pytest.mark.parametrize(
    ("windows", "until", "options", "problem"),
    [
        (None, until_window_closes(), {}, "have none"),
        (None, "10s", {}, "is not a limit"),
        (unlimited(), until_window_closes(), {}, "do not show when they close"),
        (tumbling(10, grace=0), until_window_closes(), {"max_records": 5, "when_full": "emit_early"}, "not final"),
        (None, until_time_limit(5), {"when_full": "explode"}, "when_full='explode'"),
        (None, until_time_limit(5), {"max_bytes": -1}, "max_bytes=-1"),
    ],
)
def test_what_cannot_be_is_refused_by_name(windows: Any, until: Any, options: dict[str, Any], problem: str) -> None:
    _, table = counted(windows)
    with pytest.raises(TopologyError, match=f"operator 'held'.*{problem}"):
        table.suppress(until, name="held", **options)


def test_a_versioned_table_is_refused() -> None:
    table = StreamsBuilder("t", key=str, value=str).table("in", history="1h")
    with pytest.raises(TopologyError, match="versioned"):
        table.suppress(until_time_limit(5))


def test_windows_that_came_through_a_topic_need_a_grace() -> None:
    _, first = counted(tumbling(10, grace=0))
    builder = StreamsBuilder("second", key=first.key_serde, value=int)
    table = builder.changelog_table("in")
    with pytest.raises(TopologyError, match=r"until_window_closes\(grace="):
        table.suppress(until_window_closes())
    held = table.suppress(until_window_closes(grace="5ms"))
    held.to("out")
    assert limit_of(builder, held) == 5


def test_a_bound_alone_lets_changes_go_early_and_is_described() -> None:
    builder, table = counted()
    table.suppress(until_time_limit("1d"), max_records=1, name="held").to("out")
    driver = TopologyTestDriver(builder)
    driver.pipe_all("in", [Record(k, "x", 5, (("h", b"1"),)) for k in "aab"])
    assert driver.read("out") == [Record("a", 2, 5, (("h", b"1"),))]
    assert "max_records" in builder.build().describe()


def test_windows_in_processing_time_close_by_the_clock() -> None:
    builder, table = counted(tumbling(10, time="processing"))
    table.suppress(until_window_closes()).to("out")
    driver = TopologyTestDriver(builder)
    driver.advance_wall_time(100)
    driver.pipe_all("in", [Record("a", "x", 1), Record("a", "x", 999)])
    assert driver.read("out") == []
    driver.advance_wall_time(10)
    assert [(*r.key, r.value) for r in driver.read("out")] == [("a", 100, 110, 2)]
