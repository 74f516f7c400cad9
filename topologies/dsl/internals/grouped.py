"""Aggregations of a grouped stream, per key, and per key and window."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from penstock.state.serdes.serde import INT, taking_dicts
from penstock.topologies.aggregators.base import Aggregator
from penstock.topologies.aggregators.expression_aggregates import aggregator_of_one
from penstock.topologies.aggregators.members_apart import MembersApart
from penstock.topologies.dsl.internals.aggregation import Aggregated, add_aggregation
from penstock.topologies.dsl.internals.combining import Grouping, input_of
from penstock.topologies.dsl.typed import aggregate_of, options_and_parts, scope_of_flow, serde_of_type
from penstock.topologies.dsl.wiring import as_emission, as_serde, check_function, serde_of_aggregates
from penstock.topologies.expressions.tree import Expression
from penstock.topologies.operator_api.operator import Emission
from penstock.topologies.operators.aggregates.fold import COUNTING, Aggregation, DistinctCounts, Fold, FoldApart
from penstock.topologies.windows import Windows


@dataclasses.dataclass(frozen=True)
class RecordGroups:
    """Grouped records, windowed or not."""

    grouping: Grouping
    windows: Windows | None = None
    retention_ms: int | None = None
    ttl_ms: int | None = None

    def name(self, kind: str, name: str | None) -> str:
        """The operator's own name, or the next automatic one."""
        return self.grouping.flow.wiring.name(self.grouping.flow, kind, name)

    def split(self, ways: int) -> RecordGroups:
        """Spread each key's records over sub-keys."""
        return dataclasses.replace(self, grouping=self.grouping.split(ways))


@dataclasses.dataclass(frozen=True)
class EmissionOptions:
    """The user's options for emitting results: see ``KGroupedStream``."""

    emission: Emission | None
    late: bool
    combine: bool | None


def counted(groups: RecordGroups, name: str | None, how: EmissionOptions) -> Aggregated:
    """Count the records."""
    return _folded(groups, groups.name("count", name), INT, how, COUNTING)


def reduced(
    groups: RecordGroups, fn: Any, inverse: Any, merge: Any, name: str | None, how: EmissionOptions
) -> Aggregated:
    """Fold the values with ``fn(aggregate, value)``."""
    name = groups.name("reduce", name)
    for given in (fn, inverse, merge):
        if given is not None:
            check_function(given, name, takes=("aggregate", "value"))
    fold = Fold(
        adders=(lambda key, value, aggregate: fn(aggregate, value),),
        merger=lambda key, a, b: fn(a, b),
        merge=fn if inverse is not None and merge is None else merge,
        inverse=inverse,
    )
    return _folded(groups, name, groups.grouping.flow.value, how, fold)


def aggregated(
    groups: RecordGroups,
    init: Any,
    adder: Any,
    *,
    value: Any,
    merger: Any,
    merge: Any,
    inverse: Any,
    name: str | None,
    how: EmissionOptions,
    approximate: bool,
) -> Aggregated:
    """Fold the records with ``adder(key, value, aggregate)`` or a ready aggregate."""
    name = groups.name("aggregate", name)
    if isinstance(init, Expression):
        init, tp = aggregator_of_one(init, scope_of_flow(groups.grouping.flow), operator=name)
        value = serde_of_type(tp) if value is None else value
    if isinstance(init, Aggregator):
        return _ready(groups, name, init, value, how, approximate=approximate)
    serde = serde_of_aggregates(value, name)
    _check_functions(name, merger, merge, inverse)
    fold = Fold(
        adders=(check_function(adder, name, takes=("key", "value", "aggregate")),),
        init=check_function(init, name, takes=()),
        merger=merger,
        merge=merge,
        inverse=inverse,
    )
    return _folded(groups, name, serde, how, fold)


def aggregated_parts(
    groups: RecordGroups, value: Any, name: Any, how: EmissionOptions, parts: Mapping[str, Any], *, approximate: bool
) -> Aggregated:
    """Compute several ready aggregates at once."""
    (name, value), named = options_and_parts({"name": name, "value": value}, parts)
    name = groups.name("agg", name)
    made, shown = aggregate_of(named, name, groups.grouping.flow, value)
    return _ready(groups, name, made, shown, how, approximate=approximate)


def _ready(
    groups: RecordGroups, name: str, of: Aggregator, value: Any, how: EmissionOptions, *, approximate: bool
) -> Aggregated:
    shown = of.result_serde if value is None else taking_dicts(as_serde(value, f"the results of operator {name!r}"))
    merge, apart = of.merge, of.apart
    fold = dataclasses.replace(
        _fold_of(of),
        merger=None if merge is None else lambda key, a, b: merge(a, b),
        merge=merge if of.exact_merge and not of.ordered else None,
        inverse=of.subtract if of.exact_merge and not of.ordered else None,
        apart=None if apart is None else _fold_apart(apart),
    )
    request = dataclasses.replace(_request(groups, name, of.serde, how, fold), shown_serde=shown)
    partly = merge if not of.ordered and (of.exact_merge or approximate) else None
    flow, request = input_of(groups.grouping, request, how.combine, partly)
    return add_aggregation((flow,), request)


def _fold_of(of: Aggregator) -> Fold:
    add = of.add
    return Fold(
        adders=(lambda key, timed, acc: add(acc, timed[0], timed[1]),),
        init=of.init,
        timed=True,
        result=of.result,
        parts=of.parts,
        result_of_parts=of.result_of_parts,
        kept=of.kept,
    )


def _fold_apart(apart: MembersApart) -> FoldApart:
    fold = dataclasses.replace(_fold_of(apart.aggregator), distinct=DistinctCounts.of(apart))
    return FoldApart(fold, apart.aggregator.serde, apart.aggregator.merge)


def _folded(groups: RecordGroups, name: str, value: Any, how: EmissionOptions, fold: Fold) -> Aggregated:
    flow, request = input_of(groups.grouping, _request(groups, name, value, how, fold), how.combine, fold.merge)
    return add_aggregation((flow,), request)


def _request(groups: RecordGroups, name: str, value: Any, how: EmissionOptions, fold: Fold) -> Aggregation:
    flow, emission = groups.grouping.flow, how.emission
    return Aggregation(
        name=name,
        key=flow.key,
        value=value,
        shown_serde=value,
        emission=flow.wiring.emission if emission is None else as_emission(emission, f"operator {name!r}"),
        fold=fold,
        windows=groups.windows,
        retention_ms=groups.retention_ms,
        record=flow.value,
        late=how.late,
        by_watermark=flow.watermarked,
        ttl_ms=groups.ttl_ms,
    )


def _check_functions(name: str, *functions: Callable[..., Any] | None) -> None:
    for fn in functions:
        if fn is not None:
            check_function(fn, name)
