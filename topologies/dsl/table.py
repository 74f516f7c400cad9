"""Tables in the DSL: the last value per key of a topic, the result of an aggregation, or made of other tables. ``KTable``
puts together the methods that the files beside this one hold by theme."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.state.errors import TopologyError
from penstock.topologies.dsl.suppress import SuppressMethods
from penstock.topologies.dsl.table_grouped import TableGroupMethods
from penstock.topologies.dsl.table_joins import TableJoinMethods
from penstock.topologies.dsl.table_ops import TableOpMethods
from penstock.topologies.dsl.typed import result_serde, row_function
from penstock.topologies.dsl.wiring import as_serde
from penstock.topologies.expressions.tree import Expression
from penstock.topologies.operators.records.stateless import SelectKeySpec

if TYPE_CHECKING:
    from penstock.topologies.dsl.stream import KStream


class KTable(TableOpMethods, TableJoinMethods, TableGroupMethods, SuppressMethods):
    """A handle on a table. Its changes flow on as upserts: the new value, or null when the key is gone."""

    def to_stream(
        self, key_fn: Callable[[Any, Any], Any] | Expression | None = None, *, key: Any = None, name: str | None = None
    ) -> KStream:
        """The table's changes as a stream, under ``key_fn(key, value)`` if given, whose serde is ``key``."""
        flow = self._flow
        if key_fn is None:
            return self._stream(flow if key is None else dataclasses.replace(flow, key=as_serde(key, f"{flow.out!r}")))
        wiring = flow.wiring
        name = wiring.name(flow, "to-stream", name)
        checked = row_function(key_fn, name, flow, record=True)
        key = result_serde(checked, name, key)
        serde = flow.key if key is None else as_serde(key, f"the key of operator {name!r}")
        wiring.add(name, SelectKeySpec(fn=checked), flow)
        return self._stream(dataclasses.replace(flow, operator=name, port=None, key=serde, rekeyed=True))

    @property
    def late(self) -> KStream:
        """Of windowed tables: see ``WindowedTable``. Raises ``TopologyError`` for others."""
        raise TopologyError(f"table {self.name!r} is not made over windows, so that nothing of it is late")

    def to(self, topic: str, *, key: Any = None, value: Any = None, name: str | None = None) -> None:
        """Write the table's changes to a topic: ``to_stream().to(topic)``."""
        self.to_stream().to(topic, key=key, value=value, name=name)
