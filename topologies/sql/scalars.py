"""Scalar SQL as expressions."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from sqlglot import exp

from penstock.state.errors import TopologyError
from penstock.topologies.expressions.inference import ExpressionScope, infer
from penstock.topologies.expressions.tree import (
    AggregateExpression,
    Binary,
    Call,
    Case,
    Expression,
    Field,
    Literal,
    Unary,
    literal,
)
from penstock.topologies.sql.like import like_pattern
from penstock.topologies.sql.names import Names, columns_alone
from penstock.topologies.sql.parsing import Text, interval_ms

_BINARY: dict[type[exp.Expression], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.EQ: "==",
    exp.NEQ: "!=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.And: "&",
    exp.Or: "|",
}
_CALLS: dict[type[exp.Expression], str] = {
    exp.Lower: "lower",
    exp.Upper: "upper",
    exp.Length: "length",
    exp.Trim: "strip",
    exp.Abs: "abs",
    exp.Floor: "floor",
    exp.Ceil: "ceil",
    exp.Sqrt: "sqrt",
    exp.Year: "year",
    exp.Month: "month",
    exp.Day: "day",
    exp.Hour: "hour",
    exp.Minute: "minute",
    exp.Second: "second",
    exp.StartsWith: "starts_with",
    exp.EndsWith: "ends_with",
    exp.RegexpLike: "regexp_matches",
    exp.Replace: "replace",
    exp.Least: "least",
    exp.Greatest: "greatest",
    exp.Coalesce: "coalesce",
    exp.Concat: "concat",
    exp.DPipe: "concat",
    exp.Between: "between",
}
"""Functions whose arguments have the same order."""
_PARTS = ("this", "expression", "expressions", "low", "high", "replacement")
_TIME_PARTS = ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND")
_TYPES = {
    "BIGINT": "int64",
    "INT": "int64",
    "SMALLINT": "int64",
    "DOUBLE": "float64",
    "FLOAT": "float64",
    "BOOLEAN": "bool",
    "VARCHAR": "string",
    "TEXT": "string",
    "VARBINARY": "bytes",
    "TIMESTAMP": "timestamp",
    "TIMESTAMPTZ": "timestamp",
    "DECIMAL": "decimal",
}
_AGGREGATES: dict[type[exp.Expression], tuple[str, tuple[Any, ...]]] = {
    exp.Sum: ("sum", ()),
    exp.Avg: ("mean", ()),
    exp.Min: ("min", ()),
    exp.Max: ("max", ()),
    exp.Variance: ("variance", ()),
    exp.VariancePop: ("variance", (True,)),
    exp.Stddev: ("std_dev", ()),
    exp.StddevSamp: ("std_dev", ()),
    exp.StddevPop: ("std_dev", (True,)),
    exp.FirstValue: ("first", ()),
    exp.LastValue: ("last", ()),
    exp.ArrayAgg: ("collect_list", ()),
}


class Scalars:
    """Converts the expressions of a statement's rows. Subclasses add further kinds of nodes."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.text: Text = names.text

    @property
    def scope(self) -> ExpressionScope:
        """The scope against which the expressions are typed."""
        return self.names.scope

    def convert(self, node: Any) -> Expression:
        """The expression of a node. Raises ``TopologyError`` with its place."""
        op = _BINARY.get(type(node))
        if op is not None:
            self.text.only(node, "this", "expression")
            return Binary(op, self.convert(node.this), self.convert(node.expression))
        function = _CALLS.get(type(node))
        if function is not None:
            return self._call(node, function)
        other = _OTHERS.get(type(node))
        if other is None:
            raise self.text.error(node, f"{_label(node)} is not supported")
        self.text.only(node, *_ALLOWED[type(node)])
        return other(self, node)

    def condition(self, node: Any) -> Expression:
        """A condition, typed."""
        made = self.convert(node)
        self.check(node, made)
        return made

    def check(self, node: Any, made: Expression) -> None:
        """Type the result of a node, so that a type error is reported at the node's place."""
        with self.text.at(node):
            infer(made, self.scope)

    def constant(self, node: Any) -> Any:
        """The value of a constant."""
        if isinstance(node, exp.Neg):
            return -self.constant(node.this)
        if isinstance(node, exp.Literal):
            return _literal(node).value
        raise self.text.error(node, f"{node.sql()} must be a constant")

    def _call(self, node: Any, function: str) -> Expression:
        self.text.only(node, *_PARTS, "safe", "coalesce", "typed", "big_int", "is_null", "ignore_nulls", "start")
        args: list[Expression] = []
        for name in _PARTS:
            part = node.args.get(name)
            parts = part if isinstance(part, list) else [part]
            args += [self.convert(p) for p in parts if isinstance(p, exp.Expression)]
        return Call(function, tuple(args))

    def divided(self, node: Any) -> Expression:
        """``/``; integers are divided towards zero."""
        left, right = self.convert(node.this), self.convert(node.expression)
        with self.text.at(node):
            kinds = {infer(e, self.scope).kind for e in (left, right)}
        if "unknown" in kinds and not kinds & {"float64", "decimal"}:
            raise self.text.error(
                node,
                f"{_label(node)}: integers are divided towards zero, other numbers are not, and a type is not declared "
                "here; declare it (value=… of the input) or write CAST(… AS BIGINT), AS DOUBLE or AS DECIMAL(p, s)",
            )
        return Call("quotient", (left, right)) if kinds == {"int64"} else Binary("/", left, right)

    def remainder(self, node: Any) -> Expression:
        """``%``, with the dividend's sign."""
        return Call("remainder", (self.convert(node.this), self.convert(node.expression)))

    def case(self, node: Any) -> Expression:
        """``CASE``, with or without an operand."""
        operand = None if node.this is None else self.convert(node.this)
        branches = []
        for branch in node.args["ifs"]:
            when = self.convert(branch.this)
            condition = when if operand is None else Binary("==", operand, when)
            branches.append((condition, self.convert(branch.args["true"])))
        default = node.args.get("default")
        return Case(tuple(branches), literal(None) if default is None else self.convert(default))

    def cast(self, node: Any, *, strict: bool) -> Expression:
        """``CAST`` or ``TRY_CAST``."""
        to = node.args["to"]
        name = _TYPES.get(to.this.name if isinstance(to.this, exp.DataType.Type) else str(to.this))
        if name is None:
            raise self.text.error(node, f"there is no cast to {to.sql()}; use {', '.join(sorted(_TYPES))}")
        sizes = [p.this.this for p in to.expressions]
        made = self.convert(node.this).cast(name, strict=strict)
        if name == "decimal":
            return _sized(made, [int(size) for size in sizes], strict=strict)
        if sizes and name != "timestamp":
            raise self.text.error(node, f"{to.sql()}: leave the length out; strings have no maximum length")
        return made

    def like(self, node: Any) -> Expression:
        """``LIKE`` with a constant pattern."""
        pattern = self.constant(node.expression)
        if not isinstance(pattern, str):
            raise self.text.error(node, "LIKE takes a string")
        found = self.convert(node.this).regexp_matches(like_pattern(pattern))
        return Unary("~", found) if node.args.get("negate") else found

    def is_(self, node: Any) -> Expression:
        """``IS NULL``, ``IS TRUE``, ``IS FALSE``."""
        of = self.convert(node.this)
        if isinstance(node.expression, exp.Null):
            return of.is_null()
        if isinstance(node.expression, exp.Boolean):
            value = of if node.expression.this else Unary("~", of)
            return Call("coalesce", (value, literal(False)))
        raise self.text.error(node, "IS takes NULL, TRUE or FALSE")

    def in_(self, node: Any) -> Expression:
        """``IN`` of a list."""
        return self.convert(node.this).is_in(*(self.convert(e) for e in node.expressions))

    def substring(self, node: Any) -> Expression:
        """``SUBSTRING``, from 1 on."""
        start, length = node.args.get("start"), node.args.get("length")
        first = self.constant(start)
        if not isinstance(first, int) or first < 1:
            raise self.text.error(node, "SUBSTRING needs a constant start of at least 1")
        return self.convert(node.this).substring(first - 1, None if length is None else self.convert(length))

    def split_part(self, node: Any) -> Expression:
        """``SPLIT_PART``, counted from 1."""
        place = self.constant(node.args["part_index"])
        if not isinstance(place, int) or place < 1:
            raise self.text.error(node, "SPLIT_PART counts from 1")
        return self.convert(node.this).split_part(self.convert(node.args["delimiter"]), place - 1)

    def regexp_extract(self, node: Any) -> Expression:
        """``REGEXP_EXTRACT`` of a group (the whole match by default)."""
        group = node.args.get("group")
        pattern = self.constant(node.expression)
        number = 0 if group is None else self.constant(group)
        return self.convert(node.this).regexp_extract(str(pattern), int(number))

    def round(self, node: Any) -> Expression:
        """``ROUND`` to a constant number of digits, ties away from zero."""
        digits = node.args.get("decimals")
        return _rounded(self.convert(node.this), 0 if digits is None else int(self.constant(digits)))

    def extract(self, node: Any) -> Expression:
        """``EXTRACT(HOUR FROM t)``."""
        part = str(node.this).upper()
        if part not in _TIME_PARTS:
            raise self.text.error(node, f"EXTRACT supports {', '.join(_TIME_PARTS)}")
        return Call(part.lower(), (self.convert(node.expression),))

    def nullif(self, node: Any) -> Expression:
        """``NULLIF``."""
        of = self.convert(node.this)
        return Case(((Binary("==", of, self.convert(node.expression)), literal(None)),), of)

    def bracket(self, node: Any) -> Expression:
        """An element of an array, counted from 1; ``ELEMENT_AT`` counts from the end if negative. Null if there is no
        such element."""
        if len(node.expressions) != 1:
            raise self.text.error(node, "give one index of the array")
        of, at = self.convert(node.this), node.expressions[0]
        place = self.convert(at)
        from_end = node.args.get("offset") == 1
        known = _whole_constant(place)
        if known is not None:
            if known == 0 or (known < 0 and not from_end):
                raise self.text.error(
                    at,
                    f"{known} is not a valid index: an array counts from 1, and ELEMENT_AT(…, -1) gives its last element",
                )
            return of.element(known - 1 if known > 0 else known)
        with self.text.at(at):
            tp = infer(place, self.scope)
        if tp.kind not in ("int64", "unknown", "null"):
            raise self.text.error(at, f"the index of an element is an int64, but {at.sql()} is {tp}; cast it")
        branches = [(place > 0, place - 1)] + ([(place < 0, place)] if from_end else [])
        return of.element(Case(tuple(branches), literal(None)))

    def aggregate(self, node: Any) -> AggregateExpression:
        """An aggregate function of the rows' columns."""
        if isinstance(node, exp.Filter):
            self.text.only(node, "this", "expression")
            return self.aggregate(node.this).where(self._column_alone(node.expression.this))
        if not isinstance(node, exp.Count) and type(node) not in _AGGREGATES:
            raise self.text.error(node, f"{_label(node)} is not supported as an aggregate")
        self.text.only(node, "this", "big_int", "nulls_excluded")
        of = node.this
        if isinstance(of, exp.Distinct):
            if not isinstance(node, exp.Count) or len(of.expressions) != 1:
                raise self.text.error(node, "DISTINCT is only allowed in COUNT(DISTINCT column)")
            return AggregateExpression("count_distinct", self._column_alone(of.expressions[0]))
        if isinstance(node, exp.Count):
            return AggregateExpression("count", None if isinstance(of, exp.Star) else self._column_alone(of))
        function, args = _AGGREGATES[type(node)]
        return AggregateExpression(function, self._column_alone(of), args)

    def _column_alone(self, node: Any) -> Expression:
        return columns_alone(self.text, node, self.convert(node))


def is_aggregate(node: Any) -> bool:
    """Whether the node itself is an aggregate function."""
    return isinstance(node, exp.AggFunc) or (isinstance(node, exp.Filter) and isinstance(node.this, exp.AggFunc))


def _rounded(of: Expression, digits: int) -> Expression:
    return Call("round_half_up", (of, literal(digits)))


def _sized(of: Expression, sizes: list[int], *, strict: bool) -> Expression:
    """A decimal of a precision and a scale, if they are named: what is rounded to the scale must have no more digits."""
    scale = sizes[1] if len(sizes) == 2 else 0
    made = _rounded(of, scale)
    if not sizes:
        return made
    return Call("fitting" if strict else "fitting_or_null", (made, literal(sizes[0] - scale)))


def _whole_constant(of: Expression) -> int | None:
    """The value of a constant int with its sign; ``None`` for anything else."""
    sign, of = (-1, of.of) if isinstance(of, Unary) and of.op == "-" else (1, of)
    return sign * of.value if isinstance(of, Literal) and type(of.value) is int else None


def _label(node: Any) -> str:
    if isinstance(node, exp.Anonymous):
        return f"the function {node.name}()"
    text = node.sql() if isinstance(node, exp.Expression) else str(node)
    return text if len(text) <= 40 else f"{text[:40]}…"


def _literal(node: exp.Literal) -> Any:
    text = str(node.this)
    if node.is_string:
        return literal(text)
    return literal(int(text) if re.fullmatch(r"\d+", text) else float(text))


def _number(scalars: Scalars, node: Any) -> Expression:
    try:
        return _literal(node)  # type: ignore[no-any-return]  # a literal
    except TopologyError as exc:
        raise scalars.text.error(node, str(exc)) from exc


_OTHERS: dict[type[exp.Expression], Callable[[Scalars, Any], Expression]] = {
    exp.Column: lambda s, n: s.names.column(n),
    exp.Dot: lambda s, n: Field(s.convert(n.this), n.expression.name),
    exp.Literal: _number,
    exp.Boolean: lambda s, n: literal(bool(n.this)),
    exp.Null: lambda s, n: literal(None),
    exp.Paren: lambda s, n: s.convert(n.this),
    exp.Neg: lambda s, n: -s.convert(n.this),
    exp.Not: lambda s, n: Unary("~", s.convert(n.this)),
    exp.Interval: lambda s, n: literal(interval_ms(s.text, n)),
    exp.Div: Scalars.divided,
    exp.IntDiv: lambda s, n: Call("quotient", (s.convert(n.this), s.convert(n.expression))),
    exp.Mod: Scalars.remainder,
    exp.Case: Scalars.case,
    exp.If: lambda s, n: Case(
        ((s.convert(n.this), s.convert(n.args["true"])),),
        literal(None) if n.args.get("false") is None else s.convert(n.args["false"]),
    ),
    exp.Cast: lambda s, n: s.cast(n, strict=True),
    exp.TryCast: lambda s, n: s.cast(n, strict=False),
    exp.Like: Scalars.like,
    exp.Is: Scalars.is_,
    exp.In: Scalars.in_,
    exp.Substring: Scalars.substring,
    exp.SplitPart: Scalars.split_part,
    exp.RegexpExtract: Scalars.regexp_extract,
    exp.Round: Scalars.round,
    exp.Extract: Scalars.extract,
    exp.Nullif: Scalars.nullif,
    exp.Bracket: Scalars.bracket,
}

_TWO = ("this", "expression")
_ALLOWED: dict[type[exp.Expression], tuple[str, ...]] = {
    exp.Column: ("this", "table", "db", "catalog"),
    exp.Dot: _TWO,
    exp.Literal: ("this", "is_string"),
    exp.Boolean: ("this",),
    exp.Null: (),
    exp.Paren: ("this",),
    exp.Neg: ("this",),
    exp.Not: ("this",),
    exp.Interval: ("this", "unit"),
    exp.Div: (*_TWO, "typed", "safe"),
    exp.IntDiv: _TWO,
    exp.Mod: _TWO,
    exp.Case: ("this", "ifs", "default"),
    exp.If: ("this", "true", "false"),
    exp.Cast: ("this", "to"),
    exp.TryCast: ("this", "to", "safe", "requires_string"),
    exp.Like: (*_TWO, "negate"),
    exp.Is: _TWO,
    exp.In: ("this", "expressions"),
    exp.Substring: ("this", "start", "length"),
    exp.SplitPart: ("this", "delimiter", "part_index"),
    exp.RegexpExtract: (*_TWO, "group", "null_if_pos_overflow"),
    exp.Round: ("this", "decimals"),
    exp.Extract: _TWO,
    exp.Nullif: _TWO,
    exp.Bracket: ("this", "expressions", "offset", "safe"),
}
"""The parts of a node that its conversion reads; any other is refused, so that none is ignored silently."""
