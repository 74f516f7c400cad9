"""Joins of a stream: with a table (``stream_table_joins``), and with another stream within a window of time."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, get_args

from penstock.state.errors import TopologyError
from penstock.state.stores.store import StoreSpec
from penstock.topologies.dsl.handle import Function
from penstock.topologies.dsl.stream_table_joins import StreamTableJoinMethods
from penstock.topologies.dsl.typed import join_function, result_serde
from penstock.topologies.dsl.wiring import Flow, check_function
from penstock.topologies.expressions.tree import Expression
from penstock.topologies.operators.base.store_timers import timer_store
from penstock.topologies.operators.joins.as_of_join import AsOfJoinSpec, Direction, as_of_stores
from penstock.topologies.operators.joins.multi_stream_join import MultiStreamJoinSpec
from penstock.topologies.operators.joins.stream_stream_join import (
    ResultTime,
    StreamStreamJoinSpec,
    buffer_retention_ms,
    join_stores,
)
from penstock.topologies.windows import duration_ms

if TYPE_CHECKING:
    from penstock.topologies.dsl.stream import KStream
    from penstock.topologies.dsl.table import KTable


@dataclasses.dataclass(frozen=True)
class _Within:
    """How far apart partners may be."""

    before: int | str | None
    after: int | str | None
    within: int | str | None
    grace: int | str | None

    @property
    def given(self) -> bool:
        return any(x is not None for x in (self.before, self.after, self.within))


class StreamJoinMethods(StreamTableJoinMethods):
    """Methods of ``KStream``. ``within`` is short for equal ``before`` and ``after``. Negative bounds are fine as long as
    the window is not empty: ``before=-1, after=3`` takes partners that come 1 to 3 ms later."""

    def join(
        self,
        other: KStream | KTable,
        joiner: Function | Expression,
        *,
        before: int | str | None = None,
        after: int | str | None = None,
        within: int | str | None = None,
        grace: int | str | None = None,
        condition: Function | Expression | None = None,
        result_time: ResultTime = "latest",
        value: Any = None,
        name: str | None = None,
    ) -> KStream:
        """With a stream: ``joiner(left, right)`` for each pair of equal key whose right timestamp lies between the left
        one's - ``before`` and + ``after``; ``grace`` as for windows. With a table: ``joiner(left, row)`` for each record
        that meets a row when it is processed (``grace``: see ``stream_table_joins``)."""
        bounds = _Within(before, after, within, grace)
        return self._joined("join", other, joiner, bounds, condition, result_time, value, name, (False, False))

    def left_join(
        self,
        other: KStream | KTable,
        joiner: Function | Expression,
        *,
        before: int | str | None = None,
        after: int | str | None = None,
        within: int | str | None = None,
        grace: int | str | None = None,
        condition: Function | Expression | None = None,
        result_time: ResultTime = "latest",
        eager: bool = False,
        value: Any = None,
        name: str | None = None,
    ) -> KStream:
        """As ``join``, and ``joiner(left, None)`` for records of the left that meet nobody: with a stream once no partner
        can come any more (``eager``: at once, and again with each partner), with a table at once."""
        bounds = _Within(before, after, within, grace)
        return self._joined(
            "left-join", other, joiner, bounds, condition, result_time, value, name, (True, False), eager=eager
        )

    def right_join(
        self,
        other: KStream,
        joiner: Function | Expression,
        *,
        before: int | str | None = None,
        after: int | str | None = None,
        within: int | str | None = None,
        grace: int | str | None = None,
        condition: Function | Expression | None = None,
        result_time: ResultTime = "latest",
        eager: bool = False,
        value: Any = None,
        name: str | None = None,
    ) -> KStream:
        """As ``join``, and ``joiner(None, right)`` for records of the right that meet nobody, when ``left_join`` emits
        those of the left."""
        bounds = _Within(before, after, within, grace)
        return self._joined(
            "right-join", other, joiner, bounds, condition, result_time, value, name, (False, True), eager=eager
        )

    def outer_join(
        self,
        other: KStream,
        joiner: Function | Expression,
        *,
        before: int | str | None = None,
        after: int | str | None = None,
        within: int | str | None = None,
        grace: int | str | None = None,
        condition: Function | Expression | None = None,
        result_time: ResultTime = "latest",
        eager: bool = False,
        value: Any = None,
        name: str | None = None,
    ) -> KStream:
        """As ``left_join``, and ``joiner(None, right)`` for records of the right that meet nobody."""
        bounds = _Within(before, after, within, grace)
        return self._joined(
            "outer-join", other, joiner, bounds, condition, result_time, value, name, (True, True), eager=eager
        )

    def _joined(
        self,
        kind: str,
        other: Any,
        joiner: Function | Expression,
        bounds: _Within,
        condition: Function | Expression | None,
        result_time: ResultTime,
        value: Any,
        name: str | None,
        keeps: tuple[bool, bool],
        *,
        eager: bool = False,
    ) -> KStream:
        from penstock.topologies.dsl.stream import KStream

        wiring = self._flow.wiring
        name = wiring.name(self._flow, kind, name)
        if not isinstance(other, KStream):
            if bounds.given or condition is not None or keeps[1] or eager:
                raise TopologyError(
                    f"operator {name!r} joins {other!r:.100} within a window of time; that is between two streams: "
                    "give a KStream, or leave out before, after, within and condition for a table"
                )
            return self._join_table(other, joiner, value, name, left=keeps[0], grace=bounds.grace)
        before_ms, after_ms, grace_ms = _bounds(bounds, name)
        left, right = wiring.by_key(self._flow), wiring.by_key(other._flow)
        checked = join_function(joiner, name, (left, right), nulls=(keeps[1], keeps[0]), into=value)
        _check_keys(left, right, name)
        wiring.check_together((left, right), name)
        keep_ms = buffer_retention_ms(before_ms, after_ms, grace_ms)
        stores = join_stores(name, (left.key, right.key), (left.value, right.value), keep_ms)
        watermarked = left.watermarked or right.watermarked
        spec = StreamStreamJoinSpec(
            stores=(*stores, timer_store(f"{name}-unmatched")) if any(keeps) and not eager else stores,
            joiner=checked,
            before_ms=before_ms,
            after_ms=after_ms,
            grace_ms=grace_ms,
            keeps=keeps,
            condition=None if condition is None else join_function(condition, name, (left, right), condition=True),
            eager=eager,
            result_time=result_time,
            uses_watermark=watermarked,
        )
        wiring.add_ports(name, spec, {"left": left, "right": right})
        flow = dataclasses.replace(
            self._stream(left)._behind(name, port="out", value=result_serde(checked, name, value)),
            watermarked=watermarked,
        )
        return self._stream(flow)

    def join_as_of(
        self,
        other: KStream,
        joiner: Function,
        *,
        tolerance: int | str,
        grace: int | str,
        direction: Direction = "backward",
        left: bool = False,
        value: Any = None,
        name: str | None = None,
    ) -> KStream:
        """``joiner(left, right)`` of each record with the one of ``other`` that is nearest in time, at most ``tolerance``
        away (``penstock.topologies.operators.joins.as_of_join``); ``left``: also with ``None`` when there is none."""
        wiring = self._flow.wiring
        name = wiring.name(self._flow, "join-as-of", name)
        if direction not in get_args(Direction):
            raise TopologyError(f"operator {name!r}: direction={direction!r}; use backward, forward or nearest")
        tolerance_ms, grace_ms = duration_ms(tolerance), duration_ms(grace)
        mine, theirs = wiring.by_key(self._flow), wiring.by_key(_other_stream(other, name)._flow)
        _check_keys(mine, theirs, name)
        wiring.check_together((mine, theirs), name)
        watermarked = mine.watermarked or theirs.watermarked
        spec = AsOfJoinSpec(
            stores=as_of_stores(name, mine.key, theirs.value, direction, tolerance_ms, grace_ms),
            joiner=check_function(joiner, name),
            direction=direction,
            tolerance_ms=tolerance_ms,
            grace_ms=grace_ms,
            left_value=mine.value,
            left=left,
            uses_watermark=watermarked,
        )
        wiring.add_ports(name, spec, {"left": mine, "right": theirs})
        flow = dataclasses.replace(self._stream(mine)._behind(name, value=value), watermarked=watermarked)
        return self._stream(flow)

    def join_all(
        self,
        *others: KStream,
        joiner: Callable[..., Any],
        within: int | str,
        grace: int | str,
        value: Any = None,
        name: str | None = None,
    ) -> KStream:
        """``joiner(value, value, …)`` for every way to take one record of this stream and of each other, of equal key, all
        within ``within`` of each other."""
        wiring = self._flow.wiring
        name = wiring.name(self._flow, "join-all", name)
        if not others:
            raise TopologyError(f"operator {name!r} joins nothing; give at least one other stream")
        flows = [wiring.by_key(f) for f in (self._flow, *(_other_stream(o, name)._flow for o in others))]
        for flow in flows[1:]:
            _check_keys(flows[0], flow, name)
        wiring.check_together(flows, name)
        within_ms, grace_ms = duration_ms(within), duration_ms(grace)
        watermarked = any(f.watermarked for f in flows)
        ports = tuple(f"in{i}" for i in range(len(flows)))
        kept_ms = max(within_ms + grace_ms, 1)
        spec = MultiStreamJoinSpec(
            in_ports=ports,
            stores=tuple(
                StoreSpec(f"{name}-{p}", "list", f.key, f.value, retention_ms=kept_ms)
                for p, f in zip(ports, flows, strict=True)
            ),
            joiner=check_function(joiner, name),
            within_ms=within_ms,
            grace_ms=grace_ms,
            uses_watermark=watermarked,
        )
        wiring.add_ports(name, spec, dict(zip(ports, flows, strict=True)))
        flow = dataclasses.replace(self._stream(flows[0])._behind(name, value=value), watermarked=watermarked)
        return self._stream(flow)

    def late_of(self, joined: KStream, *, name: str | None = None) -> KStream:
        """The records of either side that the stream–stream join behind ``joined`` dropped for their lateness (under
        watermarks); their values are those of the inputs."""
        return self._stream(dataclasses.replace(joined._flow, port="late", value=self._flow.value))


def _other_stream(other: Any, name: str) -> KStream:
    from penstock.topologies.dsl.stream import KStream

    if not isinstance(other, KStream):
        raise TopologyError(f"operator {name!r} joins {other!r:.100}; the other side must be a KStream")
    return other


def _bounds(bounds: _Within, name: str) -> tuple[int, int, int]:
    within_ms = None if bounds.within is None else duration_ms(bounds.within)
    before_ms = within_ms if bounds.before is None else _signed_ms(bounds.before)
    after_ms = within_ms if bounds.after is None else _signed_ms(bounds.after)
    if before_ms is None or after_ms is None:
        raise TopologyError(
            f"operator {name!r} joins two streams without a bound, which would keep both for ever; give within=, or "
            "before= and after="
        )
    if bounds.grace is None:
        raise TopologyError(
            f"operator {name!r} joins two streams and needs grace=: for how long after its window a record may still "
            "come; every choice loses either late records or memory (grace=0 takes none)"
        )
    if before_ms + after_ms < 0:
        raise TopologyError(
            f"operator {name!r}: the window from {-before_ms} to {after_ms} ms is empty; no pair can ever meet in it"
        )
    return before_ms, after_ms, duration_ms(bounds.grace)


def _signed_ms(value: int | str) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else duration_ms(value)


def _check_keys(left: Flow, right: Flow, name: str) -> None:
    if left.key.name != right.key.name:
        raise TopologyError(
            f"operator {name!r}: keys of {left.out!r} are {left.key.name}, those of {right.out!r} are {right.key.name}, "
            "and would never meet; bring one to the other's with select_key(…, key=…)"
        )
