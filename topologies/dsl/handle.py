"""What streams and tables have in common in the DSL: a place in the graph, and serdes.

Every method of a handle leaves it as it is, and it may be used any number of times. Functions see ``(key, value)``,
those of the ``values`` forms the value alone. ``key=`` and ``value=`` name the serde of what a function returns: its type
(``int``, a Struct, a dataclass), a ``Serde``, or a name (see ``serde_of``). Without them the serde stays what it was, or is
that of an expression's type. ``name=`` names the operator (else see ``penstock.topologies.dsl.wiring``). Expressions
(``col("x") > 1``) stand wherever a function of a record gives a condition, a key or a value.

``KStream[K, V]`` has keys of type ``K`` and values of type ``V``. Type checkers know them from the serdes that sources
name, and from what functions return; an expression without ``value=`` gives ``Any``. Nulls (tombstones) are not part of
``V``: a function of values that may be null says so itself.
"""

from __future__ import annotations

from typing import Generic

from penstock.state.serdes.serde import Serde
from penstock.state.type_parameters import K, V
from penstock.topologies.dsl.wiring import Flow


class Handle(Generic[K, V]):
    """A handle on the records that leave one out port."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow

    @property
    def name(self) -> str:
        """The name of the operator that it comes from."""
        return self._flow.operator

    @property
    def out(self) -> str:
        """The out port that it comes from, as ``add_stream`` takes it."""
        return self._flow.out

    @property
    def key_serde(self) -> Serde[K]:
        """The serde of its keys on a topic; for windowed tables that of ``Windowed`` keys."""
        return self._flow.key

    @property
    def value_serde(self) -> Serde[V]:
        """The serde of its values."""
        return self._flow.value
