"""Aggregates whose distinct members are in a store of their own, an entry each, instead of in the accumulator.

A distinct count is then a number in the accumulator. Whoever folds looks each member up, and adds 1 where it is new. So a
record costs the same for any number of members, and a change is as small as what is new.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec

from penstock.state.serdes.serde import Serde

if TYPE_CHECKING:
    from penstock.topologies.aggregators.base import Aggregator

CountPath: TypeAlias = tuple[int, ...]
"""Where a count is in an accumulator: ``()`` is the accumulator itself, ``(1, 0)`` the first part of its second part."""

DISTINCT_COUNT: Serde[int] = Serde(
    "distinct", msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(int).decode, immutable=True, exact=int
)
"""The number of distinct members. It cannot read a collection of them, nor can a collection be read from it."""


class MembersApart(NamedTuple):
    """An aggregate in this form. ``aggregator``: its ``add`` and ``inverse`` leave the distinct counts alone, its ``merge``
    those of the first accumulator, whatever the second one has there. ``paths``: where the counts are.
    ``members(value)``: what a record's value adds to each of them; ``None``: nothing."""

    aggregator: Aggregator
    paths: tuple[CountPath, ...]
    members: Callable[[Any], Sequence[bytes | None]]


def left_alone(acc: Any, row: Any, timestamp_ms: int) -> Any:
    """The ``add`` and the ``inverse`` of a count whose members are apart."""
    return acc


def keep_first(a: Any, b: Any) -> Any:
    """The ``merge`` of a count whose members are apart."""
    return a


def count_itself(acc: int) -> int:
    """The result of a count."""
    return acc


def part_at(acc: Any, path: CountPath) -> Any:
    """The part of an accumulator at a path."""
    for place in path:
        acc = acc[place]
    return acc


def with_count(acc: Any, path: CountPath, by: int) -> Any:
    """The accumulator with one of its counts changed."""
    if not path:
        return acc + by
    place = path[0]
    return (*acc[:place], with_count(acc[place], path[1:], by), *acc[place + 1 :])


def members_of_all(parts: Sequence[MembersApart]) -> Callable[[Any], Sequence[bytes | None]]:
    """The members that a record's value adds to the counts of several aggregates."""
    functions = [part.members for part in parts]
    if len(functions) == 1:
        return functions[0]

    def of(value: Any) -> list[bytes | None]:
        return [member for fn in functions for member in fn(value)]

    return of
