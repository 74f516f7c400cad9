"""The kinds of edges: what an edge of the graph carries.

* ``insert``: every record is an independent fact.
* ``upsert``: a record replaces the former one of its key; null deletes.
* ``retract``: records may retract former ones: a retraction is a record with the header ``RETRACTION``.

Each operator declares what it accepts, and what it emits or that it passes its input's kind on. Building a topology
propagates the kinds from the sources and refuses an operator that gets a kind it does not accept.
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
"""The header of a record that retracts the former one of equal key and value."""

_NAMES = {"insert": "inserts", "upsert": "upserts", "retract": "retractions"}
_REMEDY = {
    "upsert": "its input is a table's changes, in which a record replaces the former one of its key; "
    "take a stream of facts, or allow upserts",
    "retract": "its input takes back former results (accumulating and retracting panes); "
    "use discarding or accumulating panes, or a consumer that understands retractions",
}


def is_retraction(headers: Headers) -> bool:
    """Whether a record with these headers is a retraction."""
    return RETRACTION in headers


def edge_kinds(operators: Mapping[str, OperatorSpec], edges: Sequence[tuple[str, str]]) -> dict[str, EdgeKind]:
    """The kind that each operator emits. ``edges``: pairs of operators, including those through repartition topics.
    Raises ``TopologyError`` if an operator gets a kind that it does not accept."""
    given: dict[str, list[str]] = {name: [a for a, b in edges if b == name] for name in operators}
    kinds: dict[str, EdgeKind] = dict.fromkeys(operators, "insert")
    while True:
        # feedback through a topic makes a cycle; kinds only rise, so the loop ends
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
