"""Decoding a column of rows: nulls stay nulls, whatever the serde would make of one, and bad bytes meet the policy alone."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import penstock as ps
from penstock.state.serdes.serde import STRING, Serde, typed_json
from penstock.streams.task.error_policies import Policies
from penstock.streams.task.task_options import TaskOptions


class Row(msgspec.Struct, frozen=True):
    n: int


def of_anything(data: bytes | None) -> str:
    """Reads a null too, if it is given one."""
    if data == b"bad":
        raise ValueError("bad")
    return f"<{data!r}>"


ANYTHING: Serde[Any] = Serde("anything", str.encode, of_anything)
SERDES = [(STRING, b"x", b"\xff"), (typed_json(Row), b'{"n":1}', b"{"), (ANYTHING, b"x", b"bad")]


@pytest.mark.parametrize(("serde", "good", "bad"), SERDES, ids=["text", "json", "anything"])
@pytest.mark.parametrize("places", ["g", "gng", "ngg", "gbg", "gbn", "nbg", "bnb", "n"])
@pytest.mark.parametrize("size", [1, 100])
def test_nulls_and_bad_bytes_anywhere(serde: Serde[Any], good: bytes, bad: bytes, places: str, size: int) -> None:
    given = {"g": good, "b": bad, "n": None}
    builder = ps.StreamsBuilder("decoding", key=bytes, value=serde)
    builder.stream("in").map_values(lambda value: "null" if value is None else repr(value), value=str).to("out")
    options = TaskOptions(policies=Policies(deserialization="skip"), batch_max_records=size, columns="off")
    with ps.TopologyTestDriver(builder.build(), options=options) as driver:
        driver.pipe_raw({"in": [ps.Record(None, given[place], at) for at, place in enumerate(places)]})
        found = [(r.value, r.timestamp_ms) for r in driver.read("out")]
    expected = {"g": repr(serde.deserialize(good)), "n": "null"}
    assert found == [(expected[place], at) for at, place in enumerate(places) if place != "b"]
