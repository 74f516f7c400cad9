"""Old bytes are read by declared migrations; new ones name their version."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest

import penstock as ps
from penstock.state.errors import SerdeError


@dataclasses.dataclass
class Total:
    cents: int


class Sum(msgspec.Struct, frozen=True):
    amount: float
    currency: str


class Sums(msgspec.Struct, frozen=True):
    by_currency: dict[str, float]


def in_euros(old: Total) -> Sum:
    return Sum(old.cents / 100, "EUR")


def by_currency(old: Sum) -> Sums:
    return Sums({old.currency: old.amount})


SECOND = ps.versioned(Sum, [(Total, in_euros)])
THIRD = ps.versioned(Sums, [(Total, in_euros), (Sum, by_currency)])


def test_bytes_of_every_version_are_read() -> None:
    first, second = ps.serde_of(Total).serialize(Total(250)), SECOND.serialize(Sum(3.5, "USD"))
    assert SECOND.deserialize(first) == Sum(2.5, "EUR")
    assert SECOND.deserialize(second) == Sum(3.5, "USD")
    assert THIRD.deserialize(first) == Sums({"EUR": 2.5})
    assert THIRD.deserialize(second) == Sums({"USD": 3.5})
    assert THIRD.deserialize(THIRD.serialize(Sums({"GBP": 1.0}))) == Sums({"GBP": 1.0})


def test_the_bytes_that_are_written_stay_as_they_are() -> None:
    assert SECOND.serialize(Sum(3.5, "USD")) == b'\xc1\x01{"amount":3.5,"currency":"USD"}'
    assert THIRD.serialize(Sums({})) == b'\xc1\x02{"by_currency":{}}'


def test_the_name_stays_that_of_the_first_type_or_the_given_one() -> None:
    assert SECOND.name == THIRD.name == ps.serde_of(Total).name == "json:Total"
    assert ps.versioned(Sum, [(Total, in_euros)], name="json:Money").name == "json:Money"


def test_a_version_of_a_newer_program_is_refused() -> None:
    with pytest.raises(SerdeError, match="version 2 of serde json:Total is newer than this program's"):
        SECOND.deserialize(THIRD.serialize(Sums({})))


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\xc1\x01", b"\xc1\x01{}", b"x"])
def test_damaged_bytes_are_refused(data: bytes) -> None:
    with pytest.raises((msgspec.DecodeError, SerdeError)):
        SECOND.deserialize(data)


def test_values_of_another_type_are_refused() -> None:
    wrong: Any = Total(1)
    with pytest.raises(SerdeError, match="writes instances of Sum"):
        SECOND.serialize(wrong)


@pytest.mark.parametrize("first", [int, bytes, float, "int32"])
def test_a_first_type_whose_bytes_could_be_mistaken_is_refused(first: Any) -> None:
    with pytest.raises(SerdeError, match="must be text, JSON or MessagePack"):
        ps.versioned(Sum, [(first, lambda old: Sum(old, "EUR"))])
    with pytest.raises(SerdeError, match="give one to 255"):
        ps.versioned(Sum, [])
