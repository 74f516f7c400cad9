"""Tables in the DSL: the last value per key of a topic, or the result of an aggregation."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.state.serde import Serde
from penstock.state.store import StoreSpec
from penstock.topologies.operators.stateless import SelectKey
from penstock.topologies.wiring import Flow, as_serde, check_function

if TYPE_CHECKING:
    from penstock.topologies.streams_dsl import KStream


class KTable:
    """A handle on a table. Its changes flow on as upserts: the new value, or null when the key is gone."""

    def __init__(self, flow: Flow, store: StoreSpec) -> None:
        self._flow = flow
        self.store = store
        """Where the rows are kept; give it to ``KStream.process(…, stores=…)`` to read them in a
        processor."""

    @property
    def name(self) -> str:
        """The operator's name."""
        return self._flow.operator

    @property
    def store_name(self) -> str:
        """The store's name."""
        return self.store.name

    @property
    def out(self) -> str:
        """The out port of its changes, as ``add_stream`` takes it."""
        return self._flow.out

    @property
    def key_serde(self) -> Serde[Any]:
        """The serde of its keys on a topic; for windowed tables that of ``Windowed`` keys."""
        return self._flow.key

    @property
    def value_serde(self) -> Serde[Any]:
        """The serde of its values."""
        return self._flow.value

    @property
    def windowed(self) -> bool:
        """Whether its keys are ``Windowed``."""
        return self.store.kind == "window"

    def to_stream(
        self, key_fn: Callable[[Any, Any], Any] | None = None, *, key: Any = None, name: str | None = None
    ) -> KStream:
        """The table's changes as a stream, under ``key_fn(key, value)`` if given, whose serde is ``key``."""
        from penstock.topologies.streams_dsl import KStream

        flow = self._flow
        if key_fn is None:
            return KStream(flow if key is None else dataclasses.replace(flow, key=as_serde(key, f"{flow.out!r}")))
        wiring = flow.wiring
        name = wiring.name(flow, "to-stream", name)
        serde = flow.key if key is None else as_serde(key, f"the key of operator {name!r}")
        wiring.add(name, SelectKey(fn=check_function(key_fn, name)), flow)
        return KStream(Flow(wiring, flow.root, name, None, serde, flow.value, rekeyed=True))

    def to(self, topic: str, *, key: Any = None, value: Any = None, name: str | None = None) -> None:
        """Write the table's changes to a topic: ``to_stream().to(topic)``."""
        self.to_stream().to(topic, key=key, value=value, name=name)
