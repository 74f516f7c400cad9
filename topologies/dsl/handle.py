"""What streams and tables have in common in the DSL: a place in the graph, serdes, and how operators are added behind.

Every method of a handle leaves it as it is, and it may be used any number of times. Functions see ``(key, value)``,
those of the ``values`` forms the value alone. ``key=`` and ``value=`` name the serde of what a function returns
(anything that ``serde_of`` takes); without them the serde stays what it was, or is that of an expression's type.
``name=`` names the operator (else see ``penstock.topologies.dsl.wiring``). Expressions (``col("x") > 1``) stand wherever a
function of a record gives a condition, a key or a value.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from penstock.state.serdes.serde import Serde
from penstock.topologies.dsl.typed import result_serde, row_function
from penstock.topologies.dsl.wiring import Flow, as_serde, check_function
from penstock.topologies.operator_api.operator import OperatorSpec

if TYPE_CHECKING:
    from penstock.topologies.dsl.stream import KStream

Function = Callable[[Any, Any], Any]
"""Of key and value."""


class Handle:
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
    def key_serde(self) -> Serde[Any]:
        """The serde of its keys on a topic; for windowed tables that of ``Windowed`` keys."""
        return self._flow.key

    @property
    def value_serde(self) -> Serde[Any]:
        """The serde of its values."""
        return self._flow.value

    def _behind(
        self, name: str, *, port: str | None = None, key: Any = None, value: Any = None, rekeyed: bool = False
    ) -> Flow:
        """The flow out of operator ``name``, which takes this one's records."""
        flow = self._flow
        return dataclasses.replace(
            flow,
            operator=name,
            port=port,
            key=flow.key if key is None else as_serde(key, f"the key of operator {name!r}"),
            value=flow.value if value is None else as_serde(value, f"the value of operator {name!r}"),
            rekeyed=flow.rekeyed or rekeyed,
        )

    def _behind_source(self, name: str) -> Flow:
        """The flow out of source ``name``, which reads what this one's records were written to."""
        return dataclasses.replace(self._flow, operator=name, port=None, root=name, rekeyed=False)

    def _add(
        self,
        kind: str,
        name: str | None,
        make: Callable[[str], OperatorSpec],
        *,
        key: Any = None,
        value: Any = None,
        rekeyed: bool = False,
        port: str | None = None,
    ) -> Flow:
        """Add the operator that ``make(name)`` makes behind this handle; the flow out of it (of ``port``)."""
        wiring = self._flow.wiring
        name = wiring.name(self._flow, kind, name)
        wiring.add(name, make(name), self._flow)
        return self._behind(name, port=port, key=key, value=value, rekeyed=rekeyed)

    def _stream(self, flow: Flow) -> KStream:
        """A stream handle on a flow."""
        from penstock.topologies.dsl.stream import KStream  # the themes' files are its bases

        return KStream(flow)

    def _then(
        self,
        kind: str,
        name: str | None,
        make: Callable[[Callable[..., Any]], OperatorSpec],
        fn: Any,
        *,
        key: Any = None,
        value: Any = None,
        rekeyed: bool = False,
        condition: bool = False,
        gives: Literal["key", "value"] | None = None,
    ) -> KStream:
        """The stream behind a new operator, which ``make`` makes of the checked function. With ``condition`` or ``gives``
        an expression can stand for the function: a condition, or what gives the new key or value and so its serde."""
        name = self._flow.wiring.name(self._flow, kind, name)
        if condition or gives is not None:
            made = row_function(fn, name, self._flow, condition=condition, record=True)
        else:
            made = check_function(fn, name)
        key = result_serde(made, name, key) if gives == "key" else key
        value = result_serde(made, name, value) if gives == "value" else value
        self._flow.wiring.add(name, make(made), self._flow)
        return self._stream(self._behind(name, key=key, value=value, rekeyed=rekeyed))
