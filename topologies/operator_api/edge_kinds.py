"""What an edge of the graph carries: inserts, upserts, or retractions too.

* ``insert``: every record is a fact of its own.
* ``upsert``: a record replaces the former one of its key; null deletes.
* ``retract``: records may take back former ones: a retraction is a record with the header ``RETRACTION``.

Each operator says what it emits, or that it passes on what it is given, and what it accepts. Building a topology carries
the kinds from the sources down and refuses an operator that is given what it cannot take.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from penstock.state.errors import TopologyError
from penstock.state.log import Headers

if TYPE_CHECKING:
    from penstock.topologies.operator_api.operator import OperatorSpec

EdgeKind = Literal["insert", "upsert", "retract"]
Emits = Literal["same", "insert", "upsert", "retract"]
ANY_KIND: frozenset[EdgeKind] = frozenset({"insert", "upsert", "retract"})
NO_RETRACTIONS: frozenset[EdgeKind] = frozenset({"insert", "upsert"})
_RANK: tuple[EdgeKind, ...] = ("insert", "upsert", "retract")

RETRACTION = ("penstock.retract", b"1")
"""The header of a record that takes back the former one of equal key and value."""

_NAMES = {"insert": "inserts", "upsert": "upserts", "retract": "retractions"}
_REMEDY = {
    "upsert": "its input is a table's changes, in which a record replaces the former one of its key; "
    "take a stream of facts, or allow upserts",
    "retract": "its input takes back former results (accumulating and retracting panes); "
    "use discarding or accumulating panes, or a consumer that understands retractions",
}


def is_retraction(headers: Headers) -> bool:
    """Whether a record with these headers takes back a former one."""
    return RETRACTION in headers


def edge_kinds(operators: Mapping[str, OperatorSpec], edges: Sequence[tuple[str, str]]) -> dict[str, EdgeKind]:
    """What leaves each operator. ``edges``: pairs of operators, those through repartition topics too. Raises
    ``TopologyError`` where an operator is given what it cannot take."""
    given: dict[str, list[str]] = {name: [a for a, b in edges if b == name] for name in operators}
    kinds: dict[str, EdgeKind] = dict.fromkeys(operators, "insert")
    while True:
        # feedback through a topic makes a cycle: kinds only ever rise, so this ends
        risen: dict[str, EdgeKind] = {
            name: max((kinds[a] for a in given[name]), key=_RANK.index, default="insert")
            if spec.emits == "same"
            else spec.emits
            for name, spec in operators.items()
        }
        if risen == kinds:
            break
        kinds = risen
    for name, spec in operators.items():
        for kind in (kinds[a] for a in given[name]):
            if kind not in spec.accepts:
                raise TopologyError(f"operator {name!r} ({spec.kind}) cannot take {_NAMES[kind]}: {_REMEDY[kind]}")
    return kinds
