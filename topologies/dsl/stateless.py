"""What a stream can do without state: per record, per batch, and splitting and merging streams.

Operators that may change the key mark their stream: grouping or joining it first sends it through a repartition topic.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, overload

from penstock.state.errors import TopologyError
from penstock.topologies.dsl.handle import Function, Handle
from penstock.topologies.dsl.typed import row_function, selection
from penstock.topologies.expressions.row_function import ExpressionFunction
from penstock.topologies.expressions.tree import Expression, StructOf
from penstock.topologies.functions import takes_two
from penstock.topologies.operator_api.batch import Batch
from penstock.topologies.operators.records import stateless

if TYPE_CHECKING:
    from penstock.topologies.dsl.stream import KStream


class StatelessMethods(Handle):
    """Methods of ``KStream``."""

    # -- keys stay -------------------------------------------------------------------------------------------

    def filter(self, fn: Function | Expression, *, name: str | None = None) -> KStream:
        """The records for which ``fn(key, value)`` is true."""
        return self._then("filter", name, lambda f: stateless.FilterSpec(fn=f), fn, condition=True)

    def filter_not(self, fn: Function | Expression, *, name: str | None = None) -> KStream:
        """The records for which ``fn(key, value)`` is false; those for which an expression is null are dropped too."""
        if isinstance(fn, Expression):
            return self._then("filter-not", name, lambda f: stateless.FilterSpec(fn=f), ~fn, condition=True)
        return self._then("filter-not", name, lambda f: stateless.FilterSpec(fn=f, negate=True), fn)

    def filter_values(self, fn: Callable[[Any], Any] | Expression, *, name: str | None = None) -> KStream:
        """The records for which ``fn(value)`` is true."""
        return self._then(
            "filter-values",
            name,
            lambda f: stateless.FilterSpec(fn=f, values_only=not isinstance(f, ExpressionFunction)),
            fn,
            condition=True,
        )

    def map_values(
        self, fn: Callable[[Any], Any] | Function | Expression, *, value: Any = None, name: str | None = None
    ) -> KStream:
        """The values ``fn(value)``, or ``fn(key, value)`` of a function that must be given two arguments. A ``struct(…)``
        becomes an instance of the Struct or dataclass that ``value`` names, and
        leaves null values null."""
        if isinstance(fn, StructOf):
            fn = selection(fn.fields, value)
        return self._then(
            "map-values",
            name,
            lambda f: stateless.MapValuesSpec(fn=f, with_key=isinstance(f, ExpressionFunction) or takes_two(f)),
            fn,
            value=value,
            gives="value",
        )

    def map_values_with_key(self, fn: Function | Expression, *, value: Any = None, name: str | None = None) -> KStream:
        """The values ``fn(key, value)``."""
        return self._then(
            "map-values-with-key",
            name,
            lambda f: stateless.MapValuesSpec(fn=f, with_key=True),
            fn,
            value=value,
            gives="value",
        )

    def flat_map_values(
        self, fn: Callable[[Any], Iterable[Any]], *, value: Any = None, name: str | None = None
    ) -> KStream:
        """Each value of ``fn(value)``, under the same key."""
        return self._then(
            "flat-map-values", name, lambda f: stateless.FlatMapSpec(fn=f, values_only=True), fn, value=value
        )

    def flat_map_values_with_key(
        self, fn: Callable[[Any, Any], Iterable[Any]], *, value: Any = None, name: str | None = None
    ) -> KStream:
        """Each value of ``fn(key, value)``, under the same key."""
        return self._then(
            "flat-map-values-with-key",
            name,
            lambda f: stateless.FlatMapSpec(fn=f, values_only=True, with_key=True),
            fn,
            value=value,
        )

    def peek(self, fn: Function, *, name: str | None = None) -> KStream:
        """The same records; ``fn(key, value)`` is called for its effect, which may repeat after a restart."""
        return self._then("peek", name, lambda f: stateless.PeekSpec(fn=f), fn)

    def foreach(self, fn: Function, *, name: str | None = None) -> None:
        """Call ``fn(key, value)`` for its effect, which may repeat after a restart."""
        self._then("foreach", name, lambda f: stateless.PeekSpec(fn=f), fn)

    # -- keys change -----------------------------------------------------------------------------------------

    def map(
        self,
        fn: Callable[[Any, Any], tuple[Any, Any]],
        *,
        key: Any = None,
        value: Any = None,
        name: str | None = None,
    ) -> KStream:
        """The records ``fn(key, value)``, pairs of key and value."""
        return self._then("map", name, lambda f: stateless.MapSpec(fn=f), fn, key=key, value=value, rekeyed=True)

    def flat_map(
        self,
        fn: Callable[[Any, Any], Iterable[tuple[Any, Any]]],
        *,
        key: Any = None,
        value: Any = None,
        name: str | None = None,
    ) -> KStream:
        """Each pair of key and value of ``fn(key, value)``."""
        return self._then(
            "flat-map", name, lambda f: stateless.FlatMapSpec(fn=f), fn, key=key, value=value, rekeyed=True
        )

    def select_key(self, fn: Function | Expression, *, key: Any = None, name: str | None = None) -> KStream:
        """The same values under ``fn(key, value)``."""
        return self._then(
            "select-key", name, lambda f: stateless.SelectKeySpec(fn=f), fn, key=key, rekeyed=True, gives="key"
        )

    def map_batch(
        self,
        fn: Callable[[Batch], Batch | None],
        *,
        key: Any = None,
        value: Any = None,
        keeps_key: bool = False,
        name: str | None = None,
    ) -> KStream:
        """``fn(batch)`` of whole runs of records: see ``MapBatch`` for what it must keep to."""
        return self._then(
            "map-batch",
            name,
            lambda f: stateless.MapBatchSpec(fn=f),
            fn,
            key=key,
            value=value,
            rekeyed=not keeps_key,
        )

    # -- several streams -------------------------------------------------------------------------------------

    @overload
    def branch(
        self, *predicates: Function | Expression, default: bool = False, name: str | None = None
    ) -> tuple[KStream, ...]: ...

    @overload
    def branch(
        self, predicates: Mapping[str, Function | Expression], /, *, default: bool = False, name: str | None = None
    ) -> dict[str, KStream]: ...

    def branch(
        self, *predicates: Any, default: bool = False, name: str | None = None
    ) -> tuple[KStream, ...] | dict[str, KStream]:
        """One stream per predicate ``fn(key, value)``, each record going to the first that is true; with
        ``default`` one more for the rest, which is dropped otherwise. Given a mapping, its keys name the
        branches (and ``default`` the rest) and a dict comes back."""
        wiring = self._flow.wiring
        name = wiring.name(self._flow, "branch", name)
        mapped = len(predicates) == 1 and isinstance(predicates[0], Mapping)
        named = dict(predicates[0]) if mapped else {str(i): p for i, p in enumerate(predicates, 1)}
        ports = (*named, "default") if default else tuple(named)
        if not named or len(set(ports)) < len(ports) or any(not p.isidentifier() for p in ports if mapped):
            raise TopologyError(
                f"operator {name!r}: branches {', '.join(ports) or 'none'}; give at least one predicate, and "
                "each branch a name of its own of letters, digits and '_'"
            )
        checked = tuple(row_function(p, name, self._flow, condition=True) for p in named.values())
        wiring.add(name, stateless.BranchSpec(predicates=checked, out_ports=ports), self._flow)
        streams = {p: self._stream(self._behind(name, port=p)) for p in ports}
        return streams if mapped else tuple(streams.values())

    def merge(self, *others: KStream, name: str | None = None) -> KStream:
        """One stream of several, in the task's order. Serdes must agree."""
        wiring = self._flow.wiring
        name = wiring.name(self._flow, "merge", name)
        flows = (self._flow, *(o._flow for o in others))
        for i, flow in enumerate(flows[1:], 1):
            wiring.check_own(flow, name)
            for what, mine, theirs in (
                ("key", self.key_serde, flow.key),
                ("value", self.value_serde, flow.value),
            ):
                if mine.name != theirs.name:
                    raise TopologyError(
                        f"operator {name!r} merges streams with different {what} serdes: {self.out!r} has "
                        f"{mine.name}, {flow.out!r} has {theirs.name}; map one to the other's type first"
                    )
            if flow.out in {f.out for f in flows[:i]}:
                raise TopologyError(
                    f"operator {name!r} merges {flow.out!r} with itself, which would double its records; merge it once"
                )
        wiring.add(name, stateless.MergeSpec(), *flows)
        flow = self._behind(name, rekeyed=any(f.rekeyed for f in flows))
        return self._stream(dataclasses.replace(flow, watermarked=any(f.watermarked for f in flows)))
