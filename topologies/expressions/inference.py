"""Infer the type of an expression against declared schemas.

A mismatch is a ``TopologyError`` that names the operator, the expression and what to do. If a schema is unknown, the
type is unknown, and values are checked at run time.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Sequence
from typing import Any

from penstock.state.errors import TopologyError
from penstock.topologies.expressions.catalog import CATALOG
from penstock.topologies.expressions.signature import GROUPS, FunctionSignature, Mismatch, common_of_all
from penstock.topologies.expressions.tree import (
    COMPARISONS,
    LOGIC,
    AggregateExpression,
    Alias,
    Binary,
    Call,
    Case,
    Cast,
    Expression,
    Extend,
    Field,
    HeaderValue,
    Input,
    Literal,
    StructOf,
    Unary,
    walk,
)
from penstock.topologies.expressions.types import (
    BOOL,
    BYTES,
    FLOAT64,
    INT64,
    STRING,
    TIMESTAMP,
    UNKNOWN,
    DataType,
    common_type,
    is_number,
    schema_of,
    struct_of,
)


@dataclasses.dataclass(frozen=True)
class ExpressionScope:
    """The input of an expression. ``value`` and ``key`` are the record's (in a join the left value, and the key).
    ``right``: the right value of a join, which then has no ``value()``. ``record``: whether the record's timestamp and
    headers are available; ``keyed``: whether its key is."""

    value: DataType = UNKNOWN
    key: DataType = UNKNOWN
    right: DataType | None = None
    record: bool = True
    keyed: bool = True

    def side(self, which: str) -> DataType:
        """The type of an input. Raises ``Mismatch`` for one that is not available."""
        if which in ("left", "right"):
            if self.right is None:
                raise Mismatch(f"{which}() is only allowed in the functions of joins; use col() for the record's value")
            return self.value if which == "left" else self.right
        if which == "value" and self.right is not None:
            raise Mismatch("a join has two values; say left('…') or right('…') instead of col('…') and value()")
        if which == "timestamp":
            self.check_record("timestamp()")
            return TIMESTAMP
        if which == "key" and not self.keyed:
            raise _absent("key()")
        return self.key if which == "key" else self.value

    def check_record(self, what: str) -> None:
        """Raise ``Mismatch`` if the operator's function gets no record."""
        if not self.record:
            raise _absent(what)


def _absent(what: str) -> Mismatch:
    return Mismatch(f"{what} is not available here; put it into the value first, with with_columns(…)")


def scope_of(schema: Any) -> ExpressionScope:
    """Return a scope unchanged; take anything else as the schema of the record's value."""
    return schema if isinstance(schema, ExpressionScope) else ExpressionScope(schema_of(schema))


def infer(expression: Expression, schema: Any = UNKNOWN, *, operator: str | None = None) -> DataType:
    """The type of the expression over the schema (a ``ExpressionScope``, or the schema of the record's value). Raises
    ``TopologyError``, which names the operator if it is given."""
    return Inference(scope_of(schema)).checked(expression, operator)


class Inference:
    """Infers the types of trees over one scope, each node once."""

    def __init__(self, scope: ExpressionScope) -> None:
        self.scope = scope
        self._known: dict[int, tuple[Expression, DataType]] = {}

    def checked(self, expression: Expression, operator: str | None = None, *, condition: bool = False) -> DataType:
        """The type, or ``TopologyError``; ``condition``: it must be one."""
        try:
            tp = self.of(expression)
            if condition:
                require_bool(expression, tp, "needs a condition")
            return tp
        except Mismatch as exc:
            where = "" if operator is None else f"operator {operator!r}, "
            raise TopologyError(f"{where}expression {expression.text()}: {exc}") from exc

    def of(self, e: Expression) -> DataType:
        """The type of a node. Raises ``Mismatch``."""
        known = self._known.get(id(e))
        if known is None:
            # keep the node with its type, so that its id is not reused
            known = self._known[id(e)] = (e, self._of_node(e))
        return known[1]

    def _of_node(self, e: Expression) -> DataType:
        match e:
            case Literal(_, tp):
                return tp
            case Input(which):
                return self.scope.side(which)
            case HeaderValue(name):
                self.scope.check_record(f"header({name!r})")
                return BYTES.or_null()
            case Field(of, name):
                return _field_type(of, self.of(of), name)
            case Unary(op, of):
                return _unary_type(op, of, self.of(of))
            case Binary(op, left, right):
                return binary_type(op, left, self.of(left), right, self.of(right))
            case Call():
                return self._call_type(e)
            case Case():
                return self._case_type(e)
            case Cast(of, to, strict):
                return _cast_type(of, self.of(of), to, strict)
            case Alias(of, _):
                return self.of(of)
            case StructOf():
                return self._struct_type(e)
            case Extend(of, fields):
                return _extended(of, self.of(of), {n: self.of(f) for n, f in fields})
            case AggregateExpression():
                raise Mismatch(
                    f"{e.text()} is an aggregate over rows; it is only allowed in agg(…) of a grouped stream"
                )
        raise AssertionError(f"{type(e).__name__} has no type")

    def _declared(self, e: Expression) -> DataType:
        """The type; not nullable if only undeclared columns could be null, which is checked at run time."""
        tp = self.of(e)
        return tp.not_null() if any(self.of(n).kind == "unknown" for n in walk(e)) else tp

    def _struct_type(self, e: StructOf) -> DataType:
        if e.python is None:
            tp = struct_of({n: self.of(f) for n, f in e.fields})
        else:
            tp = _fit({n: self._declared(f) for n, f in e.fields}, e.python)
        return tp if e.of is None else tp.or_null(self.of(e.of).nullable)

    def _case_type(self, e: Case) -> DataType:
        for condition, _ in e.branches:
            require_bool(condition, self.of(condition), "when() takes a condition")
        return common_of_all([*(self.of(v) for _, v in e.branches), self.of(e.default)])

    def _call_type(self, e: Call) -> DataType:
        function = CATALOG.get(e.function)
        if function is None:
            raise Mismatch(f"there is no function {e.function}(){did_you_mean(e.function, CATALOG)}")
        most = "any number of" if function.variadic else str(len(function.parameters))
        if len(e.args) < function.least_arguments() or (
            len(e.args) > len(function.parameters) and not function.variadic
        ):
            raise Mismatch(
                f"{e.function}() takes {function.least_arguments()} to {most} arguments, but got {len(e.args)}"
            )
        types = [self.of(a) for a in e.args]
        for place, (arg, tp) in enumerate(zip(e.args, types, strict=True)):
            _check_argument(e.function, function, place, arg, tp)
        if function.constants:
            function.make(constants_of(e, function))
        if function.comparable:
            for arg, tp in zip(e.args[1:], types[1:], strict=True):
                check_comparable(e.function, e.args[0], types[0], arg, tp)
        result = function.result if isinstance(function.result, DataType) else function.result(types)
        if function.never_null:
            return result
        if e.function == "coalesce":
            return result.not_null() if any(not t.nullable for t in types) else result
        return result.or_null(function.may_be_null or any(t.nullable for t in types))


def constants_of(e: Call, function: FunctionSignature) -> list[Any]:
    """The values of arguments that must be literals."""
    return [a.value for i, a in enumerate(e.args) if i in function.constant_places() and isinstance(a, Literal)]


def _check_argument(name: str, function: FunctionSignature, place: int, arg: Expression, tp: DataType) -> None:
    if place in function.constant_places() and (not isinstance(arg, Literal) or arg.value is None):
        raise Mismatch(f"argument {place + 1} of {name}() must be a constant, not {arg.text()}")
    group = function.parameter(place)
    if group == "any" or tp.kind in ("null", "unknown") or tp.kind in GROUPS[group]:
        return
    taken = " or ".join(sorted(GROUPS[group]))
    raise Mismatch(f"{name}() takes {taken} at place {place + 1}, and {arg.text()} is {tp}; cast it")


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Suggest names that resemble an unknown one; empty if none does."""
    found = difflib.get_close_matches(name, list(names), n=3)
    return f"; did you mean {' or '.join(map(repr, found))}?" if found else ""


def _field_type(of: Expression, tp: DataType, name: str) -> DataType:
    if tp.kind in ("unknown", "null"):
        return UNKNOWN
    if tp.kind != "struct":
        raise Mismatch(f"{of.text()} is {tp}, which has no fields, and no {name!r}; use {of.text()} itself")
    found = tp.field(name)
    if found is None:
        listed = ", ".join(n for n, _ in tp.fields)
        owner = f" of {tp.python.__name__}" if tp.python is not None else ""
        near = did_you_mean(name, [n for n, _ in tp.fields])
        typed = (
            ""
            if near or not owner
            else "; if a function before it returns another type, name that in its call: value=…"
        )
        raise Mismatch(f"there is no column {name!r}{near or ';'} the columns{owner} are: {listed}{typed}")
    return found.or_null(tp.nullable)


def _unary_type(op: str, of: Expression, tp: DataType) -> DataType:
    if op == "~":
        require_bool(of, tp, "~ takes a condition")
        return BOOL.or_null(tp.nullable)
    if not is_number(tp) and tp.kind not in ("null", "unknown"):
        raise Mismatch(f"- takes a number, and {of.text()} is {tp}; cast it")
    return tp


def require_bool(e: Expression, tp: DataType, what: str) -> None:
    """Raise ``Mismatch`` unless the node is a condition, or may be one at run time."""
    if tp.kind not in ("bool", "null", "unknown"):
        raise Mismatch(f"{what}, and {e.text()} is {tp}; compare it with something")


def check_comparable(op: str, left: Expression, a: DataType, right: Expression, b: DataType) -> None:
    """Raise ``Mismatch`` unless values of both can be compared."""
    if {a.kind, b.kind} & {"null", "unknown"}:
        return
    both = common_type(a, b)
    if both is None or both.kind in ("list", "struct"):
        raise Mismatch(
            f"{op} cannot compare {left.text()}, {a}, with {right.text()}, {b}; cast one of them, or take a field"
        )


def binary_type(op: str, left: Expression, a: DataType, right: Expression, b: DataType) -> DataType:
    """The type of a ``Binary``. Raises ``Mismatch``."""
    nullable = a.nullable or b.nullable
    if op in LOGIC:
        require_bool(left, a, f"{op} takes conditions")
        require_bool(right, b, f"{op} takes conditions")
        return BOOL.or_null(nullable)
    if op in COMPARISONS:
        check_comparable(op, left, a, right, b)
        return BOOL.or_null(nullable)
    result = _arithmetic_type(op, a, b)
    if result is None:
        raise Mismatch(f"{left.text()} {op} {right.text()}: {a} {op} {b} is not defined; cast one of them")
    return result.or_null(nullable)


def _arithmetic_type(op: str, a: DataType, b: DataType) -> DataType | None:
    for x, y in ((a, b), (b, a)):
        if x.kind == "unknown" and (y.kind in ("unknown", "null", "string", "timestamp") or is_number(y)):
            return UNKNOWN
        if x.kind == "null" and (y.kind in ("null", "string", "timestamp") or is_number(y)):
            return FLOAT64 if op == "/" and y.kind == "int64" else y
    if is_number(a) and is_number(b):
        common = common_type(a, b)
        if common is None:
            return None
        return FLOAT64 if op == "/" and common.kind == "int64" else common.not_null()
    kinds = (a.kind, b.kind)
    if op == "+" and kinds == ("string", "string"):
        return STRING
    if (op == "+" and kinds in (("timestamp", "int64"), ("int64", "timestamp"))) or (
        op == "-" and kinds == ("timestamp", "int64")
    ):
        return TIMESTAMP
    return INT64 if op == "-" and kinds == ("timestamp", "timestamp") else None


_CASTS: dict[str, frozenset[str]] = {
    "string": frozenset(("int64", "float64", "bool", "string", "bytes", "timestamp", "decimal")),
    "int64": frozenset(("int64", "float64", "bool", "string", "timestamp", "decimal")),
    "float64": frozenset(("int64", "float64", "string", "decimal")),
    "bool": frozenset(("bool", "string", "int64")),
    "bytes": frozenset(("bytes", "string")),
    "timestamp": frozenset(("timestamp", "int64", "string")),
    "decimal": frozenset(("int64", "float64", "string", "decimal")),
    "list": frozenset(("list",)),
    "struct": frozenset(("struct",)),
    "unknown": frozenset(("int64", "float64", "bool", "string", "bytes", "timestamp", "decimal", "list", "struct")),
}


def _cast_type(of: Expression, tp: DataType, to: DataType, strict: bool) -> DataType:
    if tp.kind not in ("null", "unknown") and tp.kind not in _CASTS.get(to.kind, ()):
        raise Mismatch(f"{of.text()} is {tp}, which cannot be cast to {to}")
    return to.or_null(tp.nullable or not strict)


def _extended(of: Expression, tp: DataType, added: dict[str, DataType]) -> DataType:
    if tp.kind in ("unknown", "null"):
        return UNKNOWN
    if tp.kind != "struct":
        raise Mismatch(f"{of.text()} is {tp}, which has no columns to add to; make a struct: select(…)")
    return struct_of({**dict(tp.fields), **added}).or_null(tp.nullable)


def _fit(given: dict[str, DataType], python: type) -> DataType:
    """The type of an instance of the class, built from these fields."""
    wanted = schema_of(python)
    if wanted.kind != "struct" or wanted.python is None:
        raise Mismatch(f"{python.__name__} cannot be built from columns; use a Struct, a dataclass or dict")
    for name, tp in given.items():
        expected = wanted.field(name)
        if expected is None:
            listed = ", ".join(n for n, _ in wanted.fields)
            hint = did_you_mean(name, [n for n, _ in wanted.fields]) or ";"
            raise Mismatch(f"{python.__name__} has no field {name!r}{hint} its fields are: {listed}")
        if not assignable(tp, expected):
            raise Mismatch(f"{python.__name__}.{name} is {expected}, but got {tp}; cast it, or coalesce its nulls")
    missing = [n for n in _required(python) if n not in given]
    if missing:
        raise Mismatch(f"{python.__name__} needs {', '.join(missing)} too; name them as columns")
    return wanted


def _required(python: type) -> Sequence[str]:
    """The fields that have no default."""
    if dataclasses.is_dataclass(python):
        absent = dataclasses.MISSING
        return [
            f.name for f in dataclasses.fields(python) if f.init and f.default is absent and f.default_factory is absent
        ]
    names: tuple[str, ...] = getattr(python, "__struct_fields__", getattr(python, "_fields", ()))
    defaults = getattr(python, "__struct_defaults__", None)
    if defaults is not None:
        return _without_defaults(names, defaults)
    return [n for n in names if n not in getattr(python, "_field_defaults", {})]


def _without_defaults(names: tuple[str, ...], defaults: tuple[Any, ...]) -> list[str]:
    """For a Struct: defaults belong to the last fields; fields without one are marked there."""
    from msgspec import NODEFAULT

    plain = len(names) - len(defaults)
    return [*names[:plain], *(n for n, d in zip(names[plain:], defaults, strict=True) if d is NODEFAULT)]


def assignable(tp: DataType, to: DataType) -> bool:
    """Whether every value of the type is valid where the other is declared; unknown types are checked at run time."""
    if "unknown" in (tp.kind, to.kind):
        return True
    if tp.nullable and not to.nullable:
        return False
    both = common_type(tp, to)
    return both is not None and both.kind == to.kind
