"""Row functions of the DSL, given as functions or as expressions.

When the operator is added, an expression is typed against the types that the flow's serdes declare. The type of its
result decides the serde. int64, float64, string and bytes have one each, and a timestamp uses that of int64. A struct or a
list is written as JSON; if it can hold floats, that serde refuses inf and nan.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, TypedDict

import msgspec

from penstock.state.errors import TopologyError
from penstock.state.log import Windowed
from penstock.state.serdes.record_classes import record_class
from penstock.state.serdes.serde import BYTES, FLOAT, INT, JSON, STRING, Serde, finite, serde_of, taking_dicts
from penstock.state.serdes.window_keys import WindowedSerde
from penstock.topologies.aggregators.base import Aggregator, agg
from penstock.topologies.aggregators.expression_aggregates import aggregator_of_all
from penstock.topologies.dsl.wiring import Flow, check_function
from penstock.topologies.expressions.inference import ExpressionScope, assignable
from penstock.topologies.expressions.row_function import ExpressionFunction, to_function
from penstock.topologies.expressions.tracing.traced_function import Gives, TracedFunction
from penstock.topologies.expressions.tree import Expression, HeaderValue, Input, StructOf, walk
from penstock.topologies.expressions.types import TIMESTAMP, UNKNOWN, DataType, schema_of, struct_of

RECORD = ("key", "value", "timestamp", "headers")
"""The arguments of an expression that reads the record's time or headers."""


def schema_of_serde(serde: Serde[Any]) -> DataType:
    """Return the type that a serde declares for its values; unknown if it declares none."""
    if isinstance(serde, WindowedSerde):
        inner = schema_of_serde(serde.inner)
        return struct_of({"key": inner, "start_ms": TIMESTAMP, "end_ms": TIMESTAMP}, Windowed)
    return schema_of(serde.exact if serde.declared is None else serde.declared) if _declares(serde) else UNKNOWN


def _declares(serde: Serde[Any]) -> bool:
    return serde.declared is not None or serde.exact is not None


def scope_of_flow(flow: Flow) -> ExpressionScope:
    """Return the scope for typing an expression on the flow's records."""
    return ExpressionScope(schema_of_serde(flow.value), schema_of_serde(flow.key))


def row_function(
    fn: Any,
    name: str,
    flow: Flow,
    arguments: tuple[str, ...] = ("key", "value"),
    *,
    condition: bool = False,
    record: bool = False,
    takes: Sequence[str] | None = None,
) -> Callable[..., Any]:
    """Return ``fn`` as a function of these arguments. A callable stays as it is, and must take those of ``takes``, else of
    ``arguments``; an expression is typed against the flow (as a condition, if it must be one). ``record``: the operator can
    pass the record's time and headers too, to a function that takes all arguments of ``RECORD``. Raises
    ``TopologyError``."""
    if not isinstance(fn, Expression):
        return check_function(fn, name, takes=arguments if takes is None else takes)
    if record and any(
        isinstance(n, HeaderValue) or (isinstance(n, Input) and n.which == "timestamp") for n in walk(fn)
    ):
        arguments = RECORD
    return to_function(fn, arguments, scope_of_flow(flow), operator=name, condition=condition)


def traced(
    fn: Any, flow: Flow, arguments: Sequence[str], gives: Gives, serdes: tuple[Serde[Any], ...] = ()
) -> Callable[..., Any]:
    """Return a checked function as one that may have columns (see ``penstock.topologies.expressions.tracing``); an
    expression as it is. ``serdes``: those of its results."""
    if isinstance(fn, ExpressionFunction):
        return fn
    return TracedFunction(fn, scope_of_flow(flow), tuple(arguments), gives, serdes)


def join_function(
    fn: Any,
    name: str,
    sides: tuple[Flow, Flow],
    *,
    nulls: tuple[bool, bool] = (False, False),
    condition: bool = False,
    into: Any = None,
) -> Callable[..., Any]:
    """Return ``fn(left, right)``: a callable as one that may have columns, an expression typed against both sides.
    ``nulls``: which sides may be null. ``into``: the result's serde, or its class, which a ``struct(…)`` creates. Raises
    ``TopologyError``."""
    left, right = (schema_of_serde(f.value).or_null(n) for f, n in zip(sides, nulls, strict=True))
    scope = ExpressionScope(left, schema_of_serde(sides[0].key), right)
    if not isinstance(fn, Expression):
        checked = check_function(fn, name, takes=("left", "right"))
        serde = sides[0].value if into is None else serde_of(into)
        gives: Gives = "condition" if condition else "value"
        return TracedFunction(checked, scope, ("left", "right"), gives, () if condition else (serde,))
    if isinstance(fn, StructOf) and _is_class(into):
        fn = dataclasses.replace(fn, python=into)
    return to_function(fn, ("left", "right"), scope, operator=name, condition=condition)


def result_serde(fn: Any, name: str, given: Any) -> Any:
    """Return the serde for a function's result: the given one, else that of an expression's type, else ``None`` (the
    flow's stays). Raises ``TopologyError`` if the given one does not fit an expression's result."""
    if not isinstance(fn, ExpressionFunction):
        return given
    if given is None:
        return serde_of_type(fn.result)
    serde = serde_of(given)
    wanted = schema_of_serde(serde)
    # a null result is the log's null, which every serde can write
    if not assignable(fn.result.not_null(), wanted.or_null()) and wanted.python is None:
        raise TopologyError(
            f"operator {name!r}, expression {fn.expression.text()}: its type is {fn.result}, but its serde needs {wanted}; "
            "cast it, or name another serde"
        )
    return taking_dicts(serde) if fn.result.kind == "struct" and fn.result.python is None else given


def serde_of_type(tp: DataType) -> Serde[Any] | None:
    """Return the serde of an expression's result; ``None`` if the type is unknown."""
    if tp.kind in ("unknown", "null"):
        return None
    plain = _PLAIN.get(tp.kind)
    if plain is not None:
        return plain
    if tp.kind == "struct" and tp.python is not None:
        return serde_of(tp.python)
    made = dataclasses.replace(JSON, declared=tp)
    if not _is_json(tp):
        decoder = msgspec.json.Decoder(_annotation(tp.not_null()))
        made = Serde(f"json:{tp.not_null()}", msgspec.json.encode, decoder.decode, declared=tp)
    return finite(made) if _may_have_floats(tp) else made


_PLAIN: dict[str, Serde[Any]] = {
    "int64": INT,
    "float64": FLOAT,
    "string": STRING,
    "bytes": BYTES,
    "timestamp": dataclasses.replace(INT, declared=TIMESTAMP),
}
_ANNOTATIONS: dict[str, Any] = {
    "int64": int,
    "float64": float,
    "bool": bool,
    "string": str,
    "bytes": bytes,
    "timestamp": int,
    "decimal": Decimal,
    "null": None,
    "unknown": Any,
}


def _is_json(tp: DataType) -> bool:
    """Whether plain JSON restores values unchanged."""
    if tp.kind in ("decimal", "bytes") or tp.python is not None:
        return False
    return all(map(_is_json, _parts(tp)))


def _may_have_floats(tp: DataType) -> bool:
    return tp.kind in ("float64", "unknown") or any(map(_may_have_floats, _parts(tp)))


def _parts(tp: DataType) -> list[DataType]:
    return [t for _, t in tp.fields] + ([] if tp.element is None else [tp.element])


def _annotation(tp: DataType) -> Any:
    """Return the type as a msgspec annotation."""
    made: Any
    if tp.kind == "list":
        assert tp.element is not None
        made = types.GenericAlias(list, (_annotation(tp.element),))
    elif tp.kind == "struct":
        fields = {n: _annotation(t) for n, t in tp.fields}
        made = tp.python or TypedDict("Row", fields)  # type: ignore[operator]  # made at run time
    else:
        made = _ANNOTATIONS[tp.kind]
    return made | None if tp.nullable and made not in (Any, None) else made


def selection(fields: tuple[tuple[str, Expression], ...], into: Any) -> StructOf:
    """Return the struct of these columns of a record, null if its value is null: a dict, or an instance of the Struct
    or dataclass that ``into`` names."""
    return StructOf(fields, into if _is_class(into) else None, Input("value"))


def _is_class(into: Any) -> bool:
    return isinstance(into, type) and record_class(into) is not None


def options_and_parts(options: dict[str, Any], parts: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Split keyword arguments into options and aggregates. An aggregate or expression that was given under the name of an
    option is a part of that name, and the option is ``None``. Returns the options in order, and all parts."""
    named = {n: o for n, o in options.items() if isinstance(o, (Aggregator, Expression))}
    return [None if n in named else o for n, o in options.items()], {**named, **parts}


def aggregate_of(
    parts: Mapping[str, Aggregator | Expression], name: str, flow: Flow, value: Any
) -> tuple[Aggregator, Any]:
    """Combine named aggregates, ready ones and expressions, into one. Also returns the serde for its results. Raises
    ``TopologyError``."""
    expressions = {n: p for n, p in parts.items() if isinstance(p, Expression)}
    others: dict[str, Any] = {n: p for n, p in parts.items() if not isinstance(p, Expression)}
    if others and _is_class(value):
        value = taking_dicts(serde_of(value))
    if not expressions:
        return agg(**others), value
    schema = scope_of_flow(flow)
    into = value if _is_class(value) and not others else None
    made, tp = aggregator_of_all(expressions, schema, operator=name, into=into)
    if not others:
        return made, serde_of_type(tp) if value is None else value
    both = agg(**others, **{_COMPUTED: made})

    def in_order(found: dict[str, Any]) -> dict[str, Any]:
        found |= found.pop(_COMPUTED)
        return {n: found[n] for n in parts}

    return both.mapped(in_order, name=f"agg({', '.join(parts)})"), value


_COMPUTED = "(expressions)"
