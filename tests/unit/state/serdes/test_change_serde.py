"""The bytes of changes, which Kafka Streams reads and writes too."""

from __future__ import annotations

import pytest

from penstock.state.errors import SerdeError
from penstock.state.serdes.change_serde import Change, change_serde
from penstock.state.serdes.serde import STRING

SERDE = change_serde(STRING)


@pytest.mark.parametrize(
    ("change", "data"),
    [
        (Change("new", None), b"new\x01"),
        (Change(None, "old"), b"old\x00"),
        (Change("new", "old"), b"\x06newold\x02"),
        (Change("", ""), b"\x00\x02"),
        (Change("", None), b"\x01"),
        (Change("n" * 64, "o"), b"\x80\x01" + b"n" * 64 + b"o\x02"),
        (Change("n" * 10_000, "o"), b"\xa0\x9c\x01" + b"n" * 10_000 + b"o\x02"),
    ],
)
def test_bytes_are_those_of_kafka_streams(change: Change, data: bytes) -> None:
    assert SERDE.serialize(change) == data
    assert SERDE.deserialize(data) == change


def test_a_change_of_nothing_is_refused() -> None:
    with pytest.raises(SerdeError, match="needs a new or an old value"):
        SERDE.serialize(Change(None, None))


@pytest.mark.parametrize("data", [b"", b"new\x03", b"\x80\x80\x02", b"\x40new\x02", b"\x01\x02"])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(SerdeError, match="not a change of a table's row"):
        SERDE.deserialize(data)


def test_a_length_without_an_end_is_refused_at_its_sixth_byte() -> None:
    for data in (b"\xff" * 200_000 + b"\x02", b"\xff" * 5 + b"\x01\x02", b"\xff\x02\xff\x02"):
        with pytest.raises(SerdeError, match="is not a change of a table's row"):
            SERDE.deserialize(data)
