"""Read a function's definition and say, for each of its parts, what it means."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from penstock.topologies.expressions.tracing.calls import attribute, called, formatted, item
from penstock.topologies.expressions.tracing.meanings import (
    KINDS,
    Built,
    Constant,
    Evaluated,
    Meaning,
    Method,
    Pair,
    Requirement,
    Scalar,
    Untraceable,
    expressions_of,
    provided,
    scalar,
    sure,
    unusable,
)
from penstock.topologies.expressions.tracing.names import NamesOfFunction, function_of
from penstock.topologies.expressions.tracing.operations import arithmetic, choice, compared, inverse, negated, truth
from penstock.topologies.expressions.tracing.source import definition_of
from penstock.topologies.expressions.tree import Field, Input, Literal

_STEPS_MAX = 2000
"""If a function has more parts, with those behind each branch, it is left alone."""
_ARITHMETIC: dict[type, str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
}
_COMPARISONS: dict[type, str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.In: "in",
    ast.NotIn: "not in",
}
_REASONS: tuple[tuple[tuple[type, ...], str], ...] = (
    ((ast.For, ast.While, ast.AsyncFor), "it has a loop"),
    ((ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp), "it has a comprehension"),
    ((ast.Raise, ast.Assert), "it raises errors of its own"),
    ((ast.Try,), "it handles errors"),
    ((ast.Global, ast.Nonlocal), "it assigns to a variable outside"),
    ((ast.FunctionDef, ast.Lambda, ast.ClassDef), "it defines another function or class"),
    ((ast.Import, ast.ImportFrom), "it imports"),
    ((ast.NamedExpr,), "it assigns within an expression"),
    ((ast.Yield, ast.YieldFrom, ast.Await), "it is a generator"),
)
_Env = Mapping[str, Meaning]


class Tracer:
    """Traces one function, or a ``functools.partial`` of one. Raises ``Untraceable``."""

    def __init__(self, given: Any) -> None:
        fn = function_of(given)
        if fn is None:
            raise Untraceable("it is not defined by def or lambda")
        self.names = NamesOfFunction(fn, given)
        self._fn = fn
        self._definition = definition_of(fn)
        self._required: list[Requirement] = []
        self._steps = 0

    def traced(self, arguments: Sequence[Meaning], *, condition: bool = False) -> Meaning:
        """Return what the function gives for these arguments; with ``condition``, whether that is true. Raises
        ``Untraceable``."""
        env = self._bound(arguments)
        node = self._definition
        if isinstance(node, ast.Lambda):
            lambda_body = node.body
            return self._apart(
                lambda: self._condition(lambda_body, env) if condition else self._expression(lambda_body, env)
            )
        body = node.body
        return self._apart(lambda: self._run(body, env, condition=condition))

    def _bound(self, arguments: Sequence[Meaning]) -> dict[str, Meaning]:
        args = self._definition.args
        if args.vararg or args.kwarg or args.kwonlyargs:
            raise Untraceable("it takes any number of arguments, or keywords")
        names = [a.arg for a in (*args.posonlyargs, *args.args)]
        first, named = self.names.bound()
        given = [*first, *arguments]
        env = dict(zip(names, given, strict=False))
        wrong = len(given) > len(names) or any(n in env or n not in names[len(args.posonlyargs) :] for n in named)
        env |= named
        for name in names[len(names) - len(self._fn.__defaults__ or ()) :]:
            if name not in env:
                env[name] = self.names.default(name)
        if wrong or len(env) < len(names):
            raise Untraceable("it takes another number of arguments")
        return env

    def _apart(self, make: Callable[[], Meaning]) -> Meaning:
        """Return what ``make`` gives, failing where something that it read would have raised."""
        around, self._required = self._required, []
        try:
            return provided(make(), self._required)
        finally:
            self._required = around

    def _step(self) -> None:
        self._steps += 1
        if self._steps > _STEPS_MAX:
            raise Untraceable("it is too long")

    # -- statements ------------------------------------------------------------------------------------------------

    def _run(self, statements: Sequence[ast.stmt], env: _Env, *, condition: bool) -> Meaning:
        """Return what the statements return."""
        for place, statement in enumerate(statements):
            self._step()
            match statement:
                case ast.Return(value):
                    if value is None:
                        return truth(Constant(None)) if condition else Constant(None)
                    return self._condition(value, env) if condition else self._expression(value, env)
                case ast.If(test, body, orelse):
                    rest = statements[place + 1 :]
                    return self._either(
                        self._condition(test, env),
                        partial(self._run, [*body, *rest], env, condition=condition),
                        partial(self._run, [*orelse, *rest], env, condition=condition),
                    )
                case ast.Pass() | ast.Expr(ast.Constant()):
                    continue
                case _:
                    env = self._assigned(statement, env)
        return truth(Constant(None)) if condition else Constant(None)

    def _assigned(self, statement: ast.stmt, env: _Env) -> _Env:
        """The names after an assignment."""
        match statement:
            case ast.Assign([ast.Name(name)], value) | ast.AnnAssign(ast.Name(name), _, ast.expr() as value):
                made = self._expression(value, env)
            case ast.AugAssign(ast.Name(name) as target, op, value) if type(op) in _ARITHMETIC:
                old = self._expression(ast.Name(target.id, ast.Load()), env)
                made = arithmetic(_ARITHMETIC[type(op)], old, self._expression(value, env))
            case _:
                raise Untraceable(_why(statement))
        if isinstance(made, Method):  # Python reads it here, and raises where its owner is null
            raise Untraceable(unusable(made))
        # it is computed here, whether or not it is used
        for e in expressions_of(made):
            if not isinstance(e, (Field, Input, Literal)):
                self._required.append(Evaluated(e))
        return {**env, name: made}

    def _either(self, test: Constant | Scalar, then: Callable[[], Meaning], other: Callable[[], Meaning]) -> Meaning:
        if isinstance(test, Constant):
            return then() if test.value else other()
        return choice(test, self._apart(then), self._apart(other))

    # -- conditions ------------------------------------------------------------------------------------------------

    def _condition(self, node: ast.expr, env: _Env) -> Constant | Scalar:
        """Whether an expression is true."""
        match node:
            case ast.BoolOp(op, [first, *others]):
                test = self._condition(first, env)
                if not others:
                    return test
                rest = ast.BoolOp(op, others)
                if isinstance(op, ast.And):
                    return _as_condition(
                        self._either(test, lambda: self._condition(rest, env), lambda: Constant(False))
                    )
                return _as_condition(self._either(test, lambda: Constant(True), lambda: self._condition(rest, env)))
            case ast.UnaryOp(ast.Not(), of):
                return inverse(self._condition(of, env))
            case ast.IfExp(test_node, body, orelse):
                return _as_condition(
                    self._either(
                        self._condition(test_node, env),
                        lambda: self._condition(body, env),
                        lambda: self._condition(orelse, env),
                    )
                )
        return truth(self._expression(node, env))

    # -- expressions -----------------------------------------------------------------------------------------------

    def _expression(self, node: ast.expr, env: _Env) -> Meaning:
        self._step()
        match node:
            case ast.Constant(value):
                if type(value) not in (*KINDS, type(None)):
                    raise Untraceable(f"it has the constant {value!r:.60}")
                return Constant(value)
            case ast.Name(name):
                return self._name(name, env)
            case ast.Attribute(of, name):
                return self._read(attribute(self._expression(of, env), name))
            case ast.Subscript(of, key):
                return self._read(item(self._expression(of, env), self._expression(key, env)))
            case ast.BinOp(left, op, right) if type(op) in _ARITHMETIC:
                return arithmetic(_ARITHMETIC[type(op)], self._expression(left, env), self._expression(right, env))
            case ast.UnaryOp(ast.USub(), of):
                return negated(self._expression(of, env))
            case ast.UnaryOp(ast.Not(), _):
                return self._condition(node, env)
            case ast.Compare(left, ops, others):
                return self._compared(self._expression(left, env), ops, others, env)
            case ast.BoolOp(op, values):
                return self._bool_op(op, values, env)
            case ast.IfExp(test, body, orelse):
                return self._either(
                    self._condition(test, env),
                    lambda: self._expression(body, env),
                    lambda: self._expression(orelse, env),
                )
            case ast.Call(callee, args, keywords):
                return self._called(callee, args, keywords, env)
            case ast.JoinedStr(parts):
                return formatted([self._part(p, env) for p in parts])
            case ast.Dict(keys, values):
                return self._dict(keys, values, env)
            case ast.Tuple([key, value]):
                return Pair(self._expression(key, env), self._expression(value, env))
        raise Untraceable(_why(node))

    def _name(self, name: str, env: _Env) -> Meaning:
        if name in env:
            return env[name]
        if name in self._fn.__code__.co_varnames:
            raise Untraceable(f"it reads {name}, which is not set on each way")
        return self.names.meaning(name)

    def _read(self, found: tuple[Meaning, tuple[Requirement, ...]]) -> Meaning:
        self._required += found[1]
        return found[0]

    def _compared(self, left: Meaning, ops: Sequence[ast.cmpop], others: Sequence[ast.expr], env: _Env) -> Meaning:
        op = _COMPARISONS[type(ops[0])]
        right = self._among(others[0], env) if op in ("in", "not in") else self._expression(others[0], env)
        found = compared(op, left, right)
        if len(ops) == 1:
            return found
        return self._either(
            truth(found), lambda: self._compared(right, ops[1:], others[1:], env), lambda: Constant(False)
        )

    def _among(self, node: ast.expr, env: _Env) -> Meaning:
        """Return what stands behind ``in``."""
        if not isinstance(node, (ast.Tuple, ast.List, ast.Set)):
            return self._expression(node, env)
        parts = [self._expression(e, env) for e in node.elts]
        if not all(isinstance(p, Constant) for p in parts):
            raise Untraceable("it looks for a value among others that are not constant")
        return Constant(tuple(p.value for p in parts if isinstance(p, Constant)))

    def _bool_op(self, op: ast.boolop, values: Sequence[ast.expr], env: _Env) -> Meaning:
        """``and`` and ``or``, which give one of their sides."""
        first = self._expression(values[0], env)
        if len(values) == 1:
            return first
        test = truth(first)
        is_bool = isinstance(first, Scalar) and first.kind == "bool" and not first.nullable

        def rest() -> Meaning:
            return self._bool_op(op, values[1:], env)

        if isinstance(op, ast.And):
            return self._either(test, rest, lambda: Constant(False) if is_bool else first)
        if isinstance(first, Scalar):  # it is not null where it is true
            true: Meaning = Constant(True) if is_bool else Scalar(sure(first), first.kind)
        else:
            true = first
        return self._either(test, lambda: true, rest)

    def _called(
        self, callee: ast.expr, args: Sequence[ast.expr], keywords: Sequence[ast.keyword], env: _Env
    ) -> Meaning:
        if any(isinstance(a, ast.Starred) for a in args) or any(k.arg is None for k in keywords):
            raise Untraceable("it calls with * or **")
        named = [(k.arg, k.value) for k in keywords if k.arg is not None]
        found = self._expression(callee, env)
        return called(
            found, [self._expression(a, env) for a in args], [(n, self._expression(v, env)) for n, v in named]
        )

    def _part(self, node: ast.expr, env: _Env) -> Meaning:
        """A part of an f-string."""
        if isinstance(node, ast.FormattedValue):
            if node.format_spec is not None or node.conversion not in (-1, ord("s")):
                raise Untraceable("it formats a value by a specification")
            return self._expression(node.value, env)
        return self._expression(node, env)

    def _dict(self, keys: Sequence[ast.expr | None], values: Sequence[ast.expr], env: _Env) -> Meaning:
        names: list[str] = []
        for key in keys:
            found = None if key is None else self._expression(key, env)
            if not isinstance(found, Constant) or type(found.value) is not str:
                raise Untraceable("it makes a dict with keys other than constant texts")
            names.append(found.value)
        if len(set(names)) < len(names) or not names:
            raise Untraceable("it makes a dict with the same key twice, or without any")
        parts = [self._expression(v, env) for v in values]
        return Built(None, tuple(zip(names, map(scalar, parts), strict=True)))


def _as_condition(found: Meaning) -> Constant | Scalar:
    assert isinstance(found, (Constant, Scalar))
    return found


def _why(node: ast.AST) -> str:
    """Why a piece of a function is not traced."""
    for kinds, reason in _REASONS:
        if isinstance(node, kinds):
            return reason
    if isinstance(node, ast.Expr):
        return f"it calls {ast.unparse(node.value.func):.60}" if isinstance(node.value, ast.Call) else _why(node.value)
    return f"it has a part that has no expression: {ast.unparse(node):.60}"
