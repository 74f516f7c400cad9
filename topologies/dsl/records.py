"""Whole records, side inputs, topics on the way, and named sub-graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.state.errors import TopologyError
from penstock.state.log import Headers, Record
from penstock.topologies.dsl.global_table import GlobalKTable, global_rows
from penstock.topologies.dsl.handle import Handle
from penstock.topologies.dsl.typed import RECORD, scope_of_flow
from penstock.topologies.dsl.wiring import as_serde, check_function
from penstock.topologies.expressions.row_function import to_function
from penstock.topologies.expressions.tree import Expression
from penstock.topologies.operator_api.operator import ExternalCall
from penstock.topologies.operators.joins.side_input import SideInputSpec
from penstock.topologies.operators.records.external_lookup import LookupSpec
from penstock.topologies.operators.records.record_functions import MapRecordsSpec
from penstock.topologies.operators.records.source_sink import SourceSpec

if TYPE_CHECKING:
    from penstock.topologies.dsl.stream import KStream

T = TypeVar("T")


class RecordMethods(Handle):
    """Methods of ``KStream``."""

    def map_records(
        self,
        fn: Callable[[Record], Record | None],
        *,
        key: Any = None,
        value: Any = None,
        keeps_key: bool = False,
        name: str | None = None,
    ) -> KStream:
        """The records ``fn(record)``, with timestamp and headers; ``None`` drops one."""
        return self._then(
            "map-records", name, lambda f: MapRecordsSpec(fn=f), fn, key=key, value=value, rekeyed=not keeps_key
        )

    def with_headers(self, fn: Callable[[Record], Headers], *, name: str | None = None) -> KStream:
        """The same records with the headers ``fn(record)``: pairs of a name and bytes."""
        checked = check_function(fn, name or "with-headers")
        return self._then(
            "with-headers", name, lambda f: MapRecordsSpec(fn=f), lambda r: r._replace(headers=tuple(checked(r)))
        )

    def with_timestamp(self, fn: Callable[[Record], int] | Expression, *, name: str | None = None) -> KStream:
        """The same records with the event time ``fn(record)``, in milliseconds, or that of an expression. Times may go
        back; what lies behind operators with windows may then be late."""
        if isinstance(fn, Expression):
            of_record = to_function(fn, RECORD, scope_of_flow(self._flow), operator=name or "with-timestamp")
            fn = lambda r: of_record(r.key, r.value, r.timestamp_ms, r.headers)  # noqa: E731  # stands for a function
        checked = check_function(fn, name or "with-timestamp")
        return self._then(
            "with-timestamp", name, lambda f: MapRecordsSpec(fn=f), lambda r: r._replace(timestamp_ms=checked(r))
        )

    def map_with_side(
        self,
        fn: Callable[..., Any],
        *sides: GlobalKTable,
        value: Any = None,
        name: str | None = None,
    ) -> KStream:
        """The values ``fn(key, value, side, …)``, each side being a view of a whole table: see ``SideView``. The stream
        begins when the tables are loaded."""
        wiring = self._flow.wiring
        name = wiring.name(self._flow, "map-with-side", name)
        if not sides or not all(isinstance(s, GlobalKTable) for s in sides):
            raise TopologyError(
                f"operator {name!r} needs at least one side input; give what global_table(topic) or as_global() returned"
            )
        for side in sides:
            wiring.check_own(side._flow, name)
        stores = tuple(global_rows(s, f"{name}-side-{i}") for i, s in enumerate(sides, 1))
        wiring.add(name, SideInputSpec(stores=stores, fn=check_function(fn, name)), self._flow)
        return self._stream(self._behind(name, value=value))

    def lookup(
        self,
        fn: Callable[[Any, Any], Any],
        joiner: Callable[[Any, Any], Any] | None = None,
        *,
        answer: Any,
        value: Any = None,
        concurrency: int = 16,
        timeout_s: float = 10.0,
        name: str | None = None,
    ) -> KStream:
        """Ask the world outside about each record: ``fn(key, value)``, plain or ``async``, at most
        ``concurrency`` at a time. The value becomes the answer, or ``joiner(value, answer)``; ``answer`` is the serde by
        which answers are journaled, so that a replay asks nobody. See
        ``penstock.topologies.operators.records.external_lookup``."""
        name = self._flow.wiring.name(self._flow, "lookup", name)
        if concurrency < 1 or timeout_s <= 0:
            raise TopologyError(
                f"operator {name!r}: concurrency={concurrency}, timeout_s={timeout_s}; give more than 0"
            )
        serde = as_serde(answer, f"the answers of operator {name!r}")
        question = ExternalCall(
            fn=check_function(fn, name, awaited=True), serde=serde, concurrency=concurrency, timeout_s=float(timeout_s)
        )
        spec = LookupSpec(question=question, joiner=None if joiner is None else check_function(joiner, name))
        self._flow.wiring.add(name, spec, self._flow)
        made = value if value is not None else (serde if joiner is None else None)
        return self._stream(self._behind(name, value=made))

    def as_global(self) -> GlobalKTable:
        """The stream as a table of which every task has all rows: the last value per key, null deleting."""
        return GlobalKTable(self._flow)

    def through(self, topic: str, *, name: str | None = None) -> KStream:
        """The same records through a topic of the user's, which must be there: ``to(topic)`` and ``stream(topic)`` in
        one. They are partitioned by their keys."""
        self._stream(self._flow).to(topic, name=None if name is None else f"{name}-sink")
        flow = self._flow
        source = topic if name is None else name
        spec = SourceSpec(topic=topic, key_serde=flow.key, value_serde=flow.value)
        flow.wiring.add_source(source, spec)
        return self._stream(self._behind_source(source))

    def apply(self, name: str, transform: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """``transform(stream, …)`` as a named part of the graph: operators that it adds without a name of their own, and
        their stores and topics, are called ``<name>-<kind>``, so that the part can be used many times and read as one."""
        check_function(transform, name)
        with self._flow.wiring.part(name):
            return transform(self._stream(self._flow), *args, **kwargs)
