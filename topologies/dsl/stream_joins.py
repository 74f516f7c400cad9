"""Joins of a stream: with a table (``stream_table_joins``), and with another stream within a window of time."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from penstock.state.errors import TopologyError
from penstock.topologies.dsl.handle import Function
from penstock.topologies.dsl.stream_table_joins import StreamTableJoinMethods
from penstock.topologies.dsl.wiring import Flow, check_function
from penstock.topologies.operators.stream_join import ResultTime, StreamStreamJoin, buffer_retention_ms, join_stores
from penstock.topologies.operators.timers import timer_store
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
        joiner: Function,
        *,
        before: int | str | None = None,
        after: int | str | None = None,
        within: int | str | None = None,
        grace: int | str | None = None,
        condition: Function | None = None,
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
        joiner: Function,
        *,
        before: int | str | None = None,
        after: int | str | None = None,
        within: int | str | None = None,
        grace: int | str | None = None,
        condition: Function | None = None,
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

    def outer_join(
        self,
        other: KStream,
        joiner: Function,
        *,
        before: int | str | None = None,
        after: int | str | None = None,
        within: int | str | None = None,
        grace: int | str | None = None,
        condition: Function | None = None,
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
        joiner: Function,
        bounds: _Within,
        condition: Function | None,
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
        checked = check_function(joiner, name)
        left, right = wiring.by_key(self._flow), wiring.by_key(other._flow)
        _check_keys(left, right, name)
        wiring.check_together((left, right), name)
        keep_ms = buffer_retention_ms(before_ms, after_ms, grace_ms)
        stores = join_stores(name, (left.key, right.key), (left.value, right.value), keep_ms)
        watermarked = left.watermarked or right.watermarked
        spec = StreamStreamJoin(
            stores=(*stores, timer_store(f"{name}-unmatched")) if any(keeps) and not eager else stores,
            joiner=checked,
            before_ms=before_ms,
            after_ms=after_ms,
            grace_ms=grace_ms,
            keeps=keeps,
            condition=None if condition is None else check_function(condition, name),
            eager=eager,
            result_time=result_time,
            uses_watermark=watermarked,
        )
        wiring.add_ports(name, spec, {"left": left, "right": right})
        flow = dataclasses.replace(self._stream(left)._behind(name, port="out", value=value), watermarked=watermarked)
        return self._stream(flow)

    def late_of(self, joined: KStream, *, name: str | None = None) -> KStream:
        """The records of either side that the stream–stream join behind ``joined`` dropped for their lateness (under
        watermarks); their values are those of the inputs."""
        return self._stream(dataclasses.replace(joined._flow, port="late", value=self._flow.value))


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
