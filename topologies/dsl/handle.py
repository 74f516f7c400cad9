"""The base of all DSL handles: a place in the graph, and serdes.

Methods never change a handle, so it may be used any number of times. Functions take ``(key, value)``; those of the
``values`` methods take the value only. ``key=`` and ``value=`` name the serde of what a function returns: its type
(``int``, a Struct, a dataclass), a ``Serde``, or a name (see ``serde_of``). Without them the serde stays the same, or
follows from the expression's type. ``name=`` names the operator (default: see ``penstock.topologies.dsl.wiring``).
Expressions (``col("x") > 1``) can replace any function that gives a condition, a key or a value.

``KStream[K, V]`` has keys of type ``K`` and values of type ``V``. Type checkers infer them from the serdes of sources
and from what functions return; an expression without ``value=`` gives ``Any``. ``V`` does not include nulls
(tombstones): if a function can get a null value, it declares that itself.
"""

from __future__ import annotations

from typing import Generic, Self

from penstock.state.serdes.serde import Serde
from penstock.state.type_parameters import K, V
from penstock.topologies.dsl.internals.held_keys import hold_keys
from penstock.topologies.dsl.wiring import Flow
from penstock.topologies.operator_api.on_error import HoldKey, OnError


class Handle(Generic[K, V]):
    """The records of one out port."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow

    @property
    def name(self) -> str:
        """The name of the operator that emits the records."""
        return self._flow.operator

    @property
    def out(self) -> str:
        """The out port that emits the records, as ``add_stream`` takes it."""
        return self._flow.out

    def on_error(self, policy: OnError) -> Self:
        """Choose what the operator that emits these records does with a record that fails there, instead of the
        application's ``Policies``: ``"fail"``, ``"skip"``, ``"dead_letter"``, ``retry(attempts, backoff)``, or
        ``hold_key(backoff)``. For a source that is bytes that cannot be read, and timestamps that are refused. Returns the
        same handle."""
        if isinstance(policy, HoldKey):
            hold_keys(self._flow, policy)
            return self
        self._flow.wiring.graph.set_on_error(self._flow.operator, policy)
        return self

    @property
    def key_serde(self) -> Serde[K]:
        """The serde of its keys on a topic; for windowed tables that of ``Windowed`` keys."""
        return self._flow.key

    @property
    def value_serde(self) -> Serde[V]:
        """The serde of its values."""
        return self._flow.value
