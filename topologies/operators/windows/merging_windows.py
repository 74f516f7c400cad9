"""Aggregations per key and window, for custom windows that merge by a function (``CustomWindows.merge_fn``).

A record's windows can merge with those of its key that are already open. The merged aggregate starts from ``init()``;
each member's aggregate is folded in by ``merger(key, aggregate, member's aggregate)``, in the order of their ends,
then the record by its adder. The members are deleted, which is emitted first (null under their keys), then the merged
window. A record is late for a window if the merged window has closed.
"""

from __future__ import annotations

import dataclasses
import struct
from typing import Any

from penstock.state.errors import TopologyError
from penstock.state.log import Windowed
from penstock.topologies.operator_api.operator import Operator, OperatorContext
from penstock.topologies.operators.aggregates.fold import Aggregation, BuiltOperator
from penstock.topologies.operators.windows import custom_windows
from penstock.topologies.operators.windows.custom_windows import (
    CustomWindowAggregateOperator,
    CustomWindowAggregateSpec,
)
from penstock.topologies.windows import Bounds

_START = struct.Struct(">q")
_FAR_MS = 1 << 61
OpenWindows = dict[Bounds, tuple[Any, int]]
"""A key's open windows: aggregate and timestamp."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class MergingWindowAggregateSpec(CustomWindowAggregateSpec):
    """``AggregateSpec`` per window, for windows that merge."""

    def open(self, ctx: OperatorContext) -> Operator:
        """The running form."""
        return MergingWindowAggregateOperator(ctx, self)


def build_operator(request: Aggregation) -> BuiltOperator:
    """The operator of an aggregation over such windows."""
    if request.fold.merger is None:
        raise TopologyError(
            f"operator {request.name!r}: these windows can merge, so their aggregates must merge too; "
            "say how: aggregate(…, merger=lambda key, a, b: …)"
        )
    spec, key, _ = custom_windows.build_operator(request)
    return BuiltOperator(
        MergingWindowAggregateSpec(**{f.name: getattr(spec, f.name) for f in dataclasses.fields(spec)}), key
    )


class MergingWindowAggregateOperator(CustomWindowAggregateOperator):
    """The running form."""

    def add(self, port: int, key: Any, value: Any, record_ts: int, at: int, windows: list[Bounds], now_ms: int) -> None:
        data = self._key_serde.serialize(key)
        # those that this record closes by advancing time may still merge with its window
        first_end = max(self.stream_time_ms - self._windows.grace_ms + 1, 0)
        before = self._held(data, first_end)
        held: OpenWindows = dict(before)
        sent: list[tuple[Bounds, tuple[Any, int] | None]] = []
        for window in windows:
            merged, members = self._grown(window, held)
            if merged[1] + self._windows.grace_ms <= now_ms:
                continue
            sent += [(m, None) for m in members if m != merged]
            row = self._with_record(port, key, value, at, merged, [held[m] for m in members])
            held = {w: r for w, r in held.items() if w not in members} | {merged: row}
            sent.append((merged, row))
        if not sent:
            self.not_taken(key, value, record_ts, late=bool(windows))
            return
        olds = self._held(data, first_end) if self._sends_olds else before  # functions may have changed those
        if self._emission == "every_update" and self.ctx.has_consumers:
            self._emit_changes(key, sent, olds, at)
        for window in before:
            if window not in held:
                self.keep(key, data, window, None, before[window][1], olds[window][0])
        for window, row in held.items():
            if row is not before.get(window):
                self.keep(key, data, window, row[0], row[1], olds[window][0] if window in olds else None)

    def _held(self, data: bytes, first_end: int) -> OpenWindows:
        """The open windows of a key."""
        found = self._state.fetch(data, first_end, _FAR_MS)
        return {(_START.unpack(e.suffix)[0], e.time_ms): (e.value, e.timestamp_ms) for e in found}

    def _grown(self, window: Bounds, held: OpenWindows) -> tuple[Bounds, list[Bounds]]:
        """The window that a new one merges into, and the windows that it replaces, by their ends."""
        for merged, members in self._windows.merge([*held, window]):
            if window in members:
                return merged, sorted((m for m in members if m in held), key=lambda m: (m[1], m[0]))
        return window, [window] if window in held else []

    def _with_record(
        self, port: int, key: Any, value: Any, at: int, merged: Bounds, members: list[tuple[Any, int]]
    ) -> tuple[Any, int]:
        fold = self._fold
        assert fold.merger is not None
        acc: Any = None
        if members:
            acc = None if fold.init is None else fold.init()
            for member, _ in members:
                acc = member if acc is None else fold.merger(key, acc, member)
        latest = max((ts for _, ts in members), default=at)
        return fold.add(port, key, value, at, acc), max(latest, at)

    def _emit_changes(
        self, key: Any, sent: list[tuple[Bounds, tuple[Any, int] | None]], olds: OpenWindows, at: int
    ) -> None:
        shown: dict[Bounds, Any] = {w: acc for w, (acc, _) in olds.items()}
        for window, row in sent:
            old = self._fold.shown(shown.get(window))
            if row is None:
                self.emit_row(Windowed(key, *window), None, olds[window][1] if window in olds else at, old=old)
            else:
                self.emit_row(Windowed(key, *window), self._fold.shown(row[0]), row[1], old=old)
            shown[window] = None if row is None else row[0]
