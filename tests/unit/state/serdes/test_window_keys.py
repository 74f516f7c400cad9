"""Windowed keys on a topic: the bytes of Kafka Streams' ``TimeWindowedSerializer``."""

from __future__ import annotations

import pytest

from penstock.state.errors import SerdeError
from penstock.state.log import Windowed
from penstock.state.serdes.serde import INT, STRING
from penstock.state.serdes.window_keys import spanning_serde, starting_serde, windowed_serde


def test_the_key_comes_first_and_the_start_last() -> None:
    """``key | start``, big-endian; the end is not written."""
    serde = windowed_serde(str, 10_000)
    data = serde.serialize(Windowed("ab", 20_000, 30_000))
    assert data == b"ab" + (20_000).to_bytes(8, "big")
    assert serde.deserialize(data) == Windowed("ab", 20_000, 30_000)


def test_windows_before_the_epoch_and_other_inner_serdes() -> None:
    """The start is signed; the inner key may be of any length, none included."""
    longs = windowed_serde(INT, 5)
    assert longs.deserialize(longs.serialize(Windowed(7, -10, -5))) == Windowed(7, -10, -5)
    assert windowed_serde(STRING, 5).deserialize(bytes(8)) == Windowed("", 0, 5)


def test_the_size_is_part_of_the_name_and_must_be_one() -> None:
    """Two sizes are two serdes, because they read the same bytes differently."""
    assert windowed_serde(str, 5).name != windowed_serde(str, 6).name
    assert windowed_serde(str, 5).inner is STRING
    with pytest.raises(SerdeError, match="0 ms"):
        windowed_serde(str, 0)


def test_windows_of_any_length_carry_both_ends_in_the_layout_of_java_sessions() -> None:
    """key | end | start; starts may lie before 1970."""
    serde = spanning_serde(str)
    key = Windowed("a", -5, 7)
    assert serde.serialize(key) == b"a" + (7).to_bytes(8, "big") + (-5).to_bytes(8, "big", signed=True)
    assert serde.deserialize(serde.serialize(key)) == key
    assert serde.inner is STRING


def test_windows_whose_end_follows_from_the_start_carry_the_start() -> None:
    """As those of one size; the description is part of the name."""
    serde = starting_serde(str, "months", lambda start: start + 31)
    assert serde.serialize(Windowed("a", 2, 33)) == b"a" + (2).to_bytes(8, "big")
    assert serde.deserialize(b"a" + (2).to_bytes(8, "big")) == Windowed("a", 2, 33)
    assert "months" in serde.name
