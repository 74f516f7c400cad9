"""Side inputs: a function of a record and of a whole table that every task has.

The table is a global one (``penstock.topologies.dsl.global_ktable``). A record sees its rows as they are when it is
processed: as a map, a list, a single value, or the rows of the window that contains the record's time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, Generic

from penstock.state.errors import ProcessingError
from penstock.state.log import Windowed
from penstock.state.stores.store import StoreSpec
from penstock.state.stores.store_view import KeyValueStoreView
from penstock.state.type_parameters import K, T, V
from penstock.topologies.operator_api.operator import Operator, OperatorContext, OperatorSpec
from penstock.topologies.operators.base.row_operator import RowOperator


class SideView(Generic[K, V]):
    """A table's rows, read only, in the order of the keys' bytes."""

    def __init__(self, state: KeyValueStoreView) -> None:
        self._state = state
        self._keys = state.spec.key_serde
        self.timestamp_ms = 0
        """The event time of the current record."""

    def get(self, key: K, default: T | None = None) -> V | T | None:
        """The table as a map: the value of one row."""
        found = self._state.get(self._keys.serialize(key))
        return default if found is None else found[0]

    def items(self) -> Iterator[tuple[K, V]]:
        """The table as a map: all keys and values."""
        read = self._keys.deserialize
        for key, value, _ in self._state.range():
            yield read(key), value

    def values(self) -> list[V]:
        """As a list."""
        return [value for _, value, _ in self._state.range()]

    def single(self) -> V:
        """The table as a single value: that of its only row. Raises ``ProcessingError`` if there are none or several."""
        values = self.values()
        if len(values) != 1:
            raise ProcessingError(
                f"side input {self._state.spec.name!r} is read as a single value and has {len(values)} rows; "
                "read it as a map or a list, or fill it first"
            )
        return values[0]

    def window(self) -> dict[Any, V]:
        """For a table with windowed keys: the rows, by inner key, of the windows that contain the record's time (of
        the latest window if several have the key)."""
        found: dict[Any, Any] = {}
        held: dict[Any, int] = {}
        for key, value in self.items():
            if not isinstance(key, Windowed):
                raise ProcessingError(
                    f"side input {self._state.spec.name!r} has no windows: its keys are like {key!r:.60}; "
                    "make it of a windowed table"
                )
            inside = key.start_ms <= self.timestamp_ms < key.end_ms
            if inside and key.start_ms >= held.get(key.key, key.start_ms):
                found[key.key], held[key.key] = value, key.start_ms
        return found


@dataclasses.dataclass(frozen=True, kw_only=True)
class SideInputSpec(OperatorSpec):
    """The value ``fn(key, value, side)``, ``side`` being a ``SideView`` per store, in their order."""

    fn: Callable[..., Any]

    def open(self, ctx: OperatorContext) -> Operator:
        """Build the operator of one task."""
        return _SideInputOperator(ctx, self)


class _SideInputOperator(RowOperator):
    def __init__(self, ctx: OperatorContext, spec: SideInputSpec) -> None:
        super().__init__(ctx, spec)
        self._fn = spec.fn
        self._views = [SideView(ctx.state(s.name)) for s in _each_once(spec.stores)]

    def row(self, port: int, key: Any, value: Any, ts: int) -> None:
        for view in self._views:
            view.timestamp_ms = ts
        self.emit_row(key, self._fn(key, value, *self._views), ts)


def _each_once(stores: tuple[StoreSpec, ...]) -> list[StoreSpec]:
    return list({s.name: s for s in stores}.values())
