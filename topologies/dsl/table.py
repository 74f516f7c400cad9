"""Tables in the DSL: the last value per key of a topic, or the result of an aggregation."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.state.store import StoreSpec
from penstock.topologies.dsl.handle import Handle
from penstock.topologies.dsl.wiring import Flow, as_serde, check_function
from penstock.topologies.operators.stateless import SelectKey

if TYPE_CHECKING:
    from penstock.topologies.dsl.stream import KStream


class KTable(Handle):
    """A handle on a table. Its changes flow on as upserts: the new value, or null when the key is gone."""

    def __init__(self, flow: Flow, store: StoreSpec) -> None:
        super().__init__(flow)
        self.store = store
        """Where the rows are kept; give it to ``KStream.process(…, stores=…)`` to read them in a
        processor."""

    @property
    def store_name(self) -> str:
        """The store's name."""
        return self.store.name

    def request_olds(self) -> None:
        """Have the table's changes carry the old value beside the new one. For operators that need it."""
        graph = self._flow.wiring.graph
        spec = graph.operator(self.name)
        if not spec.sends_olds:
            graph.replace_operator(self.name, dataclasses.replace(spec, sends_olds=True))

    @property
    def windowed(self) -> bool:
        """Whether its keys are ``Windowed``."""
        return self.store.kind == "window"

    def to_stream(
        self, key_fn: Callable[[Any, Any], Any] | None = None, *, key: Any = None, name: str | None = None
    ) -> KStream:
        """The table's changes as a stream, under ``key_fn(key, value)`` if given, whose serde is ``key``."""
        from penstock.topologies.dsl.stream import KStream

        flow = self._flow
        if key_fn is None:
            return KStream(flow if key is None else dataclasses.replace(flow, key=as_serde(key, f"{flow.out!r}")))
        wiring = flow.wiring
        name = wiring.name(flow, "to-stream", name)
        serde = flow.key if key is None else as_serde(key, f"the key of operator {name!r}")
        wiring.add(name, SelectKey(fn=check_function(key_fn, name)), flow)
        return KStream(dataclasses.replace(flow, operator=name, port=None, key=serde, rekeyed=True))

    def to(self, topic: str, *, key: Any = None, value: Any = None, name: str | None = None) -> None:
        """Write the table's changes to a topic: ``to_stream().to(topic)``."""
        self.to_stream().to(topic, key=key, value=value, name=name)
