"""A user's function in an operator, with the expression that it was traced to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from penstock.state.errors import TopologyError
from penstock.state.serdes.serde import BYTES, FLOAT, INT, JSON, STRING, Serde
from penstock.topologies.expressions.inference import ExpressionScope
from penstock.topologies.expressions.row_function import ExpressionFunction, to_function
from penstock.topologies.expressions.tracing.meanings import (
    NAMES,
    TYPES,
    Built,
    Constant,
    Meaning,
    Opaque,
    Pair,
    Scalar,
    Untraceable,
    Whole,
    scalar,
    size,
    unusable,
)
from penstock.topologies.expressions.tracing.names import Place, unchanged
from penstock.topologies.expressions.tracing.tracer import Tracer
from penstock.topologies.expressions.tree import Call, Expression, Input, StructOf
from penstock.topologies.expressions.types import DataType

Gives = Literal["condition", "key", "value", "pair"]
_SIZE_MAX = 400
"""Expressions with more nodes than this are not used: what stands there twice is computed twice."""
_WRITTEN: dict[str, Serde[Any]] = {"int64": INT, "float64": FLOAT, "string": STRING, "bytes": BYTES}


class Columns:
    """The expressions that a function was traced to. ``parts``: those of its result, one, or those of a key and a value.
    ``found``: the names that it reads, and what they meant. ``of_records``: only records that are not null have columns."""

    def __init__(
        self, parts: tuple[ExpressionFunction, ...], found: Mapping[Place, Any], *, of_records: bool = False
    ) -> None:
        self.parts = parts
        self.found = dict(found)
        self.of_records = of_records


class TracedFunction:
    """The function that a user gave, which it calls. ``gives``: what the operator takes from it; ``serdes``: those of the
    results, the key's before the value's. It equals the function, and what has an equal one."""

    def __init__(
        self,
        fn: Callable[..., Any],
        scope: ExpressionScope,
        arguments: tuple[str, ...],
        gives: Gives,
        serdes: tuple[Serde[Any], ...] = (),
        known: Columns | str | None = None,
    ) -> None:
        self.fn = fn
        self.scope = scope
        self.arguments = arguments
        self.gives: Gives = gives
        self.serdes = serdes
        self._known = known
        self.__wrapped__ = fn  # for inspect.signature
        self.__name__ = getattr(fn, "__name__", type(fn).__name__)

    def __call__(self, *args: Any) -> Any:
        return self.fn(*args)

    def __eq__(self, other: object) -> bool:
        return bool(self.fn == (other.fn if isinstance(other, TracedFunction) else other))

    def __hash__(self) -> int:
        return hash(self.fn)

    def __repr__(self) -> str:
        return repr(self.fn)

    def __reduce__(self) -> Any:
        # another process may have no source, and other values of names; serdes have been looked at, and some cannot be sent
        return type(self), (self.fn, self.scope, self.arguments, self.gives, (), self.columns)

    @property
    def columns(self) -> Columns | str:
        """Its expressions, or why it has none. Found when it is first asked for, after the topology was built, since names
        may be bound until then."""
        if self._known is None:
            try:
                self._known = self._traced()
            except Untraceable as exc:
                self._known = str(exc)
            except (TopologyError, TypeError, ValueError, RecursionError) as exc:  # of the classes that it names
                self._known = f"it cannot be traced ({type(exc).__name__}: {exc})"
        return self._known

    def unchanged(self) -> bool:
        """Whether all names that it reads still mean what they did."""
        return isinstance(self._known, Columns) and unchanged(self.fn, self._known.found)

    def _traced(self) -> Columns:
        tracer = Tracer(self.fn)
        given = [_argument(which, self.scope) for which in self.arguments]
        result = tracer.traced(given, condition=self.gives == "condition")
        if self.gives != "pair":
            parts = [result]
        elif isinstance(result, Pair):
            parts = [result.key, result.value]
        else:
            raise Untraceable("it gives no pair that is written as one")
        for part, serde in zip(parts, self.serdes, strict=False):
            _check_written(part, serde)
        if isinstance(parts[0], Whole) and (self.gives != "value" or isinstance(parts[0].expression, Input)):
            raise Untraceable(unusable(parts[0]))
        of_records = any(isinstance(part, Whole) and part.there for part in parts)
        return Columns(tuple(map(self._function, parts)), tracer.names.found, of_records=of_records)

    def _function(self, part: Meaning) -> ExpressionFunction:
        e = _expression(part)
        if size(e, {}) > _SIZE_MAX:
            raise Untraceable("its expression is too large")
        try:
            arguments = self.arguments if "left" in self.arguments else ("key", "value")
            return to_function(e, arguments, self.scope, condition=self.gives == "condition")
        except TopologyError as exc:
            raise Untraceable(f"its expression is refused: {exc}") from exc


def _argument(which: str, scope: ExpressionScope) -> Meaning:
    """The key or the value, either of which may be null, or a side of a join, which is null only where it is declared so."""
    if which in ("left", "right"):
        return _side(Input("left" if which == "left" else "right"), scope.value if which == "left" else scope.right)
    tp: DataType = scope.key if which == "key" else scope.value
    if tp.kind in TYPES:
        return Scalar(Input("key" if which == "key" else "value"), tp.kind, nullable=True)
    if tp.kind == "struct" and which == "value":
        return Whole(Input("value"), tp, nullable=True)
    if tp.kind == "unknown":
        return Opaque(f"its {which} has no declared type")
    return Opaque(f"its {which} is of type {tp.kind}")


def _side(side: Input, tp: DataType | None) -> Meaning:
    if tp is not None and tp.kind in TYPES:
        return Scalar(side, tp.kind, nullable=tp.nullable)
    if tp is not None and tp.kind == "struct":
        return Whole(side, tp, nullable=tp.nullable)
    return Opaque(f"its {side.which} side has no declared type, or one that has no columns")


def _expression(given: Meaning) -> Expression:
    match given:
        case Built(python, fields):
            return StructOf(tuple((name, _expression(part)) for name, part in fields), python)
        case Constant(value) if value is not None:
            return scalar(given).expression
        case Scalar(expression=e):
            return e
        case Whole(expression=e, there=there) if all(_is_record_there(c) for c in there):
            return e
    raise Untraceable("it gives null" if isinstance(given, Constant) else unusable(given))


def _is_record_there(condition: Expression) -> bool:
    """Whether a condition is that the record is not null."""
    return condition.same_as(Call("is_not_null", (Input("value"),)))


def _check_written(given: Meaning, serde: Serde[Any]) -> None:
    """Refuse a result that the serde may not write as it is."""
    if serde == JSON and serde.declared is None:
        if isinstance(given, Scalar) and given.kind == "bytes":
            raise Untraceable("it gives bytes, which JSON cannot hold")
        return
    match given:
        case Built(python, _):
            fits = python is not None and serde.declared is python
            what = "a dict" if python is None else f"a {python.__name__}"
        case Scalar() | Constant():
            kind = "null" if given == Constant(None) else scalar(given).kind
            fits, what = serde == _WRITTEN.get(kind), NAMES.get(kind, kind)
        case Whole(expression=e, type=tp):
            fits = isinstance(e, Input) or (tp.python is not None and serde.declared is tp.python)
            what = f"a {'dict' if tp.python is None else tp.python.__name__}"
        case _:
            return
    if not fits:
        raise Untraceable(f"it gives {what}, and the serde {serde.name} is for something else")
