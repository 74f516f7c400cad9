"""Stateless operators of a stream: per record, per batch, and splitting and merging streams.

Operators that may change the key mark their flow: grouping or joining it first sends it through a repartition topic.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from penstock.state.errors import TopologyError
from penstock.topologies.dsl.internals.async_functions import awaited, called
from penstock.topologies.dsl.typed import result_serde, row_function, selection, traced
from penstock.topologies.dsl.wiring import Flow, check_function
from penstock.topologies.expressions.row_function import ExpressionFunction
from penstock.topologies.expressions.tree import Expression, StructOf
from penstock.topologies.functions import takes_two
from penstock.topologies.operator_api.operator import OperatorSpec
from penstock.topologies.operators.records import stateless


def then(
    flow: Flow,
    kind: str,
    name: str | None,
    make: Callable[[Callable[..., Any]], OperatorSpec],
    fn: Any,
    *,
    key: Any = None,
    value: Any = None,
    rekeyed: bool = False,
    condition: bool = False,
    gives: Literal["key", "value", "pair"] | None = None,
    takes: Sequence[str] = ("key", "value"),
) -> Flow:
    """Add an operator that ``make`` builds from the checked function, which is called with the arguments of ``takes``.
    ``condition`` and ``gives`` say what it takes from the function: a condition, or the new key, the value, or both. But for
    both, an expression is allowed, and the serde then follows from its type."""
    name = flow.wiring.name(flow, kind, name)
    if condition or gives in ("key", "value"):
        made = row_function(fn, name, flow, condition=condition, record=True, takes=takes)
    else:
        made = check_function(fn, name, takes=takes)
    key = result_serde(made, name, key) if gives == "key" else key
    value = result_serde(made, name, value) if gives == "value" else value
    behind = flow.behind(name, key=key, value=value, rekeyed=rekeyed)
    if condition:
        made = traced(made, flow, takes, "condition")
    elif gives is not None:
        written = {"key": (behind.key,), "value": (behind.value,), "pair": (behind.key, behind.value)}
        made = traced(made, flow, takes, gives, written[gives])
    flow.wiring.add(name, make(made), flow)
    return behind


# -- keys stay -----------------------------------------------------------------------------------------------


def filtered(flow: Flow, fn: Any, name: str | None) -> Flow:
    """Keep the records for which ``fn(key, value)`` is true."""
    if (how := awaited(fn)) is not None:
        return called(flow, "filter", name, "keep", how)
    return then(flow, "filter", name, lambda f: stateless.FilterSpec(fn=f), fn, condition=True)


def filtered_not(flow: Flow, fn: Any, name: str | None) -> Flow:
    """Keep the records for which ``fn(key, value)`` is false. If an expression is null, the record is dropped too."""
    if (how := awaited(fn)) is not None:
        return called(flow, "filter-not", name, "drop", how)
    if isinstance(fn, Expression):
        return then(flow, "filter-not", name, lambda f: stateless.FilterSpec(fn=f), ~fn, condition=True)
    return then(flow, "filter-not", name, lambda f: stateless.FilterSpec(fn=f, negate=True), fn, condition=True)


def filtered_by_value(flow: Flow, fn: Any, name: str | None) -> Flow:
    """Keep the records for which ``fn(value)`` is true."""
    if (how := awaited(fn)) is not None:
        return called(flow, "filter-values", name, "keep", how, with_key=False)
    return then(
        flow,
        "filter-values",
        name,
        lambda f: stateless.FilterSpec(fn=f, values_only=not isinstance(f, ExpressionFunction)),
        fn,
        condition=True,
        takes=("value",),
    )


def mapped_values(flow: Flow, fn: Any, value: Any, name: str | None) -> Flow:
    """Map values to ``fn(value)``, or to ``fn(key, value)`` if the function requires two arguments."""
    if (how := awaited(fn)) is not None:
        return called(flow, "map-values", name, "values", how, with_key=takes_two(how.fn), value=value)
    if isinstance(fn, StructOf):
        fn = selection(fn.fields, value)
    return then(
        flow,
        "map-values",
        name,
        lambda f: stateless.MapValuesSpec(fn=f, with_key=isinstance(f, ExpressionFunction) or takes_two(fn)),
        fn,
        value=value,
        gives="value",
        takes=("key", "value") if takes_two(fn) else ("value",),
    )


def mapped_values_with_key(flow: Flow, fn: Any, value: Any, name: str | None) -> Flow:
    """Map values to ``fn(key, value)``."""
    if (how := awaited(fn)) is not None:
        return called(flow, "map-values-with-key", name, "values", how, value=value)
    return then(
        flow,
        "map-values-with-key",
        name,
        lambda f: stateless.MapValuesSpec(fn=f, with_key=True),
        fn,
        value=value,
        gives="value",
    )


def flat_mapped_values(flow: Flow, fn: Any, value: Any, name: str | None) -> Flow:
    """Replace each value by the values of ``fn(value)``."""
    if (how := awaited(fn)) is not None:
        return called(flow, "flat-map-values", name, "flat_map_values", how, with_key=False, value=value)
    return then(
        flow,
        "flat-map-values",
        name,
        lambda f: stateless.FlatMapSpec(fn=f, values_only=True),
        fn,
        value=value,
        takes=("value",),
    )


def flat_mapped_values_with_key(flow: Flow, fn: Any, value: Any, name: str | None) -> Flow:
    """Replace each value by the values of ``fn(key, value)``."""
    if (how := awaited(fn)) is not None:
        return called(flow, "flat-map-values-with-key", name, "flat_map_values", how, value=value)
    return then(
        flow,
        "flat-map-values-with-key",
        name,
        lambda f: stateless.FlatMapSpec(fn=f, values_only=True, with_key=True),
        fn,
        value=value,
    )


def peeked(flow: Flow, kind: str, fn: Any, name: str | None) -> Flow:
    """Call ``fn(key, value)`` for its effect and pass the records on."""
    if (how := awaited(fn)) is not None:
        return called(flow, kind, name, "effect", how)
    return then(flow, kind, name, lambda f: stateless.PeekSpec(fn=f), fn)


# -- keys change ---------------------------------------------------------------------------------------------


def mapped(flow: Flow, fn: Any, key: Any, value: Any, name: str | None) -> Flow:
    """Map records to ``fn(key, value)``."""
    spec = stateless.MapSpec
    return then(flow, "map", name, lambda f: spec(fn=f), fn, key=key, value=value, rekeyed=True, gives="pair")


def flat_mapped(flow: Flow, fn: Any, key: Any, value: Any, name: str | None) -> Flow:
    """Replace each record by the pairs of ``fn(key, value)``."""
    if (how := awaited(fn)) is not None:
        return called(flow, "flat-map", name, "flat_map", how, key=key, value=value)
    return then(flow, "flat-map", name, lambda f: stateless.FlatMapSpec(fn=f), fn, key=key, value=value, rekeyed=True)


def with_selected_key(flow: Flow, kind: str, fn: Any, key: Any, name: str | None) -> Flow:
    """Set the key to ``fn(key, value)``."""
    return then(flow, kind, name, lambda f: stateless.SelectKeySpec(fn=f), fn, key=key, rekeyed=True, gives="key")


def mapped_batches(flow: Flow, fn: Any, key: Any, value: Any, name: str | None, *, keeps_key: bool) -> Flow:
    """Apply ``fn(batch)`` to whole batches of records."""
    return then(
        flow,
        "map-batch",
        name,
        lambda f: stateless.MapBatchSpec(fn=f),
        fn,
        key=key,
        value=value,
        rekeyed=not keeps_key,
        takes=("batch",),
    )


# -- several streams -----------------------------------------------------------------------------------------


def branched(flow: Flow, predicates: tuple[Any, ...], name: str | None, *, default: bool) -> dict[str, Flow]:
    """Return one flow per predicate, by branch name: the mapping's keys, else ``"1"``, ``"2"`` …"""
    wiring = flow.wiring
    name = wiring.name(flow, "branch", name)
    mapped = are_named(predicates)
    named = dict(predicates[0]) if mapped else {str(i): p for i, p in enumerate(predicates, 1)}
    ports = (*named, "default") if default else tuple(named)
    if not named or len(set(ports)) < len(ports) or any(not p.isidentifier() for p in ports if mapped):
        raise TopologyError(
            f"operator {name!r}: branches {', '.join(ports) or 'none'}; give at least one predicate, and "
            "each branch its own name of letters, digits and '_'"
        )
    both = ("key", "value")
    checked = tuple(
        traced(row_function(p, name, flow, condition=True), flow, both, "condition") for p in named.values()
    )
    wiring.add(name, stateless.BranchSpec(predicates=checked, out_ports=ports), flow)
    return {p: flow.behind(name, port=p) for p in ports}


def are_named(predicates: tuple[Any, ...]) -> bool:
    """Whether ``branch`` got a mapping from names to predicates."""
    return len(predicates) == 1 and isinstance(predicates[0], Mapping)


def merged(flows: Sequence[Flow], name: str | None) -> Flow:
    """Merge several flows into one."""
    first = flows[0]
    wiring = first.wiring
    name = wiring.name(first, "merge", name)
    for i, flow in enumerate(flows[1:], 1):
        wiring.check_own(flow, name)
        for what, mine, theirs in (("key", first.key, flow.key), ("value", first.value, flow.value)):
            if mine.name != theirs.name:
                raise TopologyError(
                    f"operator {name!r} merges streams with different {what} serdes: {first.out!r} has "
                    f"{mine.name}, {flow.out!r} has {theirs.name}; map one to the type of the other first"
                )
        if flow.out in {f.out for f in flows[:i]}:
            raise TopologyError(
                f"operator {name!r} merges {flow.out!r} with itself, which would double its records; merge it once"
            )
    wiring.add(name, stateless.MergeSpec(), *flows)
    behind = first.behind(name, rekeyed=any(f.rekeyed for f in flows))
    return dataclasses.replace(behind, watermarked=any(f.watermarked for f in flows))
