"""Inputs of the SQL tests, and how a statement is run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from penstock.state.log import Record
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.dsl.ktable import KTable


class Bid(msgspec.Struct, frozen=True):
    auction: int
    bidder: int
    price: int
    url: str = ""
    tags: tuple[str, ...] = ()


class User(msgspec.Struct, frozen=True):
    name: str
    city: str | None = None


Query = Callable[..., list[tuple[Any, Any]]]


def inputs_of(builder: StreamsBuilder) -> dict[str, Any]:
    """Streams of bids and asks, one of JSON objects, a table of users."""
    return {
        "bids": builder.stream("bids", value=Bid),
        "asks": builder.stream("asks", value=Bid),
        "events": builder.stream("events", value=dict),
        "users": builder.table("users", key=int, value=User),
    }


@pytest.fixture
def query() -> Query:
    """Keys and values that a statement writes for records of its inputs."""

    def run(text: str, *, grace: int | str = 0, **topics: list[Record]) -> list[tuple[Any, Any]]:
        builder = StreamsBuilder()
        rows = builder.sql(text, grace=grace, **inputs_of(builder))
        (rows.to_stream() if isinstance(rows, KTable) else rows).to("out")
        with TopologyTestDriver(builder) as driver:
            for topic, records in topics.items():
                driver.pipe_all(topic, records)
            return [(r.key, r.value) for r in driver.read("out")]

    return run


@pytest.fixture
def bids() -> list[Record]:
    """Eight bids, a second apart, on two auctions by three bidders."""
    return [Record(f"k{i}", Bid(1 + i % 2, i % 3, 10 * i, f"a/b/{i}"), i * 1000) for i in range(8)]
