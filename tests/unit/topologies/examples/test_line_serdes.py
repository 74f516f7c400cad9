"""Recipes of serdes for lines: what they read, write and refuse, alone and in a topology."""

from __future__ import annotations

from decimal import Decimal

import pytest

import penstock as ps
from penstock.state.errors import SerdeError
from penstock.topologies.examples.line_serdes import delimited, pattern_line

FILMS = delimited("::", {"user": int, "film": str, "price": Decimal})
LOG = pattern_line(r"(?P<level>[A-Z]+) (?P<ms>\d+)(?: (?P<text>.*))?", {"ms": int})


def test_delimited_fields() -> None:
    row = {"user": 7, "film": "Heat (1995)", "price": Decimal("1.50")}
    for end in (b"", b"\n", b"\r\n"):
        assert FILMS.deserialize(b"7::Heat (1995)::1.50" + end) == row
    assert FILMS.serialize(row) == b"7::Heat (1995)::1.50"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"7::a", "2 fields"),
        (b"7::a::1::2", "4 fields"),
        (b"x::a::1", "'user' cannot be 'x'"),
        (b"7::a::x", "'price' cannot be 'x'"),
        (b"7::a\n::1", "more than one line"),
        (b"7::\xff::1", "UTF-8"),
    ],
)
def test_bad_lines_are_refused_with_their_reason(data: bytes, why: str) -> None:
    with pytest.raises(SerdeError, match=why):
        FILMS.deserialize(data)


@pytest.mark.parametrize("film", ["a::b", "a\nb", "a\r"])
def test_what_would_come_back_otherwise_is_not_written(film: str) -> None:
    with pytest.raises(SerdeError):
        FILMS.serialize({"user": 7, "film": film, "price": Decimal(1)})


def test_a_pattern_names_and_types_its_groups() -> None:
    assert LOG.deserialize(b"WARN 12 it is late\n") == {"level": "WARN", "ms": 12, "text": "it is late"}
    assert LOG.deserialize(b"WARN 12") == {"level": "WARN", "ms": 12, "text": None}
    with pytest.raises(SerdeError, match="does not match"):
        LOG.deserialize(b"warn 12")
    with pytest.raises(SerdeError, match="only read"):
        LOG.serialize({"level": "WARN", "ms": 12, "text": "x"})


def test_they_serve_a_topology() -> None:
    builder = ps.StreamsBuilder("lines")
    late = builder.stream("log", value=LOG).filter_values(lambda line: line["level"] == "WARN")
    late.map_values(lambda line: {"user": line["ms"], "film": line["text"], "price": 0}, value=FILMS).to("out")
    with ps.TopologyTestDriver(builder.build()) as driver:
        driver.pipe_raw({"log": [ps.Record(None, b"WARN 12 late\n", 1), ps.Record(None, b"INFO 3", 2)]})
        assert [record.value for record in driver.read_raw("out")] == [b"12::late::0"]
