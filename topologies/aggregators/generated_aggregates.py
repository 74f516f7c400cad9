"""Several aggregate expressions at once, as one generated function that adds a record, one that merges two accumulators,
and one that gives the results.

The parts of ``agg`` are the reference: a row that is left to it, or that raises, has its answer or error. Columns,
conditions and prepared values that several parts need are computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.topologies.aggregators.base import Aggregator, Part, Step
from penstock.topologies.aggregators.members_apart import keep_first, left_alone
from penstock.topologies.expressions.generated import ExpressionWriter
from penstock.topologies.expressions.inference import ExpressionScope, Inference
from penstock.topologies.expressions.python_source import PythonSource, TooDeepError
from penstock.topologies.expressions.tree import Case, Expression, Field, Input, Literal

_BETTER = {"min": "<", "max": ">"}


def generated_add(members: Sequence[Aggregator], reference: Callable[..., Any]) -> Callable[..., Any]:
    """The ``add`` of an ``agg`` of aggregate expressions over one scope, with the answers of ``reference``."""
    scopes = [m.part.of.scope for m in members if m.part is not None and m.part.of is not None]
    if any(m.part is None for m in members) or any(scope != scopes[0] for scope in scopes):
        return reference
    source = PythonSource()
    writer = ExpressionWriter(source, Inference(scopes[0] if scopes else ExpressionScope()))
    adder = _AddWriter(source, writer)
    try:
        source.line(f"{''.join(f'a{i}, ' for i in range(len(members)))} = acc")
        for place, member in enumerate(members):
            assert member.part is not None
            if member.add is not left_alone:
                adder.part(f"a{place}", member.part, member.step)
        result = f"({''.join(f'a{i}, ' for i in range(len(members)))})"
        return writer.function(("acc", "value", "timestamp_ms"), result, reference)
    except (TooDeepError, RecursionError):
        return reference


def generated_merge(members: Sequence[Aggregator], reference: Callable[..., Any]) -> Callable[..., Any]:
    """The ``merge`` of an ``agg`` of aggregate expressions, with the answers of ``reference``. All parts can merge."""
    source = PythonSource()
    for name in "ab":
        source.line(f"{''.join(f'{name}{i}, ' for i in range(len(members)))} = {name}")
    merged = [_merged(source, member, f"a{i}", f"b{i}") for i, member in enumerate(members)]
    return source.function("a, b", f"({', '.join(merged)},)", reference, lambda again: [])


def _merged(source: PythonSource, member: Aggregator, a: str, b: str) -> str:
    """The text of a part's merge. What is inline is what the merge does with accumulators of whole numbers."""
    function = None if member.part is None else member.part.function
    if member.merge is keep_first:
        return a
    if function == "count":
        return f"{a} + {b}"
    merge = f"{source.bound(member.merge)}({a}, {b})"
    if function in ("sum", "mean"):
        plain = f"{b}[0] and len({a}) == len({b}) == 2 and type({a}[1]) is type({b}[1]) is int"
        return f"({a}[0] + {b}[0], {a}[1] + {b}[1]) if {plain} else {merge}"
    if function in _BETTER:
        plain = f"{a} and {b} and type({a}[0]) is type({b}[0]) is int"
        return f"({b} if {b}[0] {_BETTER[function]} {a}[0] else {a}) if {plain} else {merge}"
    return merge


def generated_members(members: Sequence[Aggregator], reference: Callable[..., Any]) -> Callable[..., Any]:
    """``MembersApart.members`` of distinct counts that are aggregate expressions over one scope, with the answers of
    ``reference``."""
    parts = [(m.part, m.step) for m in members if m.part is not None and m.part.of is not None]
    assert len(parts) == len(members) and parts and parts[0][0].of is not None
    source = PythonSource()
    writer = ExpressionWriter(source, Inference(parts[0][0].of.scope))
    taker = _MemberWriter(source, writer)
    try:
        for place, (part, step) in enumerate(parts):
            source.line(f"m{place} = None")
            taker.part(f"m{place}", part, step)
        return writer.function(("value",), f"({''.join(f'm{i}, ' for i in range(len(parts)))})", reference)
    except (TooDeepError, RecursionError):
        return reference


class _AddWriter:
    def __init__(self, source: PythonSource, writer: ExpressionWriter) -> None:
        self._source = source
        self._writer = writer

    def part(self, acc: str, part: Part, step: Step | None) -> None:
        """The lines that add the record to the accumulator of one part."""
        if part.of is None:
            self._source.line(f"{acc} = {acc} + 1")
            return
        tree: Expression = part.of.expression
        if isinstance(tree, Case) and len(tree.branches) == 1 and _is_null(tree.default):
            (holds, then) = tree.branches[0]
            self._source.line(f"if {self._writer.condition(holds)}:")
            with self._source.block():
                self._value(acc, part, step, self._writer.write(then))
        else:
            self._value(acc, part, step, self._writer.write(tree))

    def _value(self, acc: str, part: Part, step: Step | None, x: str) -> None:
        if x in self._source.never_null:
            self._added(acc, part, step, x)
            return
        self._source.line(f"if {x} is not None:")
        with self._source.block():
            self._added(acc, part, step, x)

    def _added(self, acc: str, part: Part, step: Step | None, x: str) -> None:
        """Add a value that is not null. What is inline is what the step does with values of these classes."""
        source = self._source
        if part.function == "count":
            source.line(f"{acc} = {acc} + 1")
            return
        assert step is not None
        given = x if step.prepare is None else self._prepared(step.prepare, x)
        added = f"{source.bound(step.add)}({acc}, {given}, timestamp_ms)"
        of_ints = f"type({x}) is int and"
        if part.function in ("sum", "mean") and part.kind in ("int64", "unknown"):
            plain = f"{of_ints} len({acc}) == 2 and type({acc}[1]) is int"
            source.line(f"{acc} = ({acc}[0] + 1, {acc}[1] + {x}) if {plain} else {added}")
        elif part.function in _BETTER:
            source.line(f"if {of_ints} {acc} and type({acc}[0]) is int:")
            source.line(f" if {x} {_BETTER[part.function]} {acc}[0]: {acc} = ({x},)")
            source.line(f"else: {acc} = {added}")
        else:
            source.line(f"{acc} = {added}")

    def _prepared(self, prepare: Callable[[Any], Any], x: str) -> str:
        key = ("prepared", prepare, x)
        known = self._source.known(key)
        if known is not None:
            return known
        made = self._source.variable()
        self._source.line(f"{made} = {self._source.bound(prepare)}({x})")
        return self._source.remember(key, made)


class _MemberWriter(_AddWriter):
    def _added(self, acc: str, part: Part, step: Step | None, x: str) -> None:
        """Note a value that is not null, in the form in which it is kept."""
        assert step is not None and step.prepare is not None
        self._source.line(f"{acc} = {self._prepared(step.prepare, x)}")


def _is_null(e: Expression) -> bool:
    return isinstance(e, Literal) and e.value is None


def generated_result(
    members: dict[str, Aggregator],
    output: Expression,
    scope: ExpressionScope,
    reference: Callable[[Any], Any],
) -> Callable[[Any], Any]:
    """The ``result`` of accumulators of these parts: ``output`` over their results by name, as columns of a value."""
    source = PythonSource()
    writer = ExpressionWriter(source, Inference(scope))
    try:
        source.line(f"{''.join(f'a{i}, ' for i in range(len(members)))} = acc")
        for place, (name, member) in enumerate(members.items()):
            writer.given(Field(Input("value"), name), _result(source, member, f"a{place}"))
        result = writer.write(output)
        return writer.function(("acc",), result, reference)
    except (TooDeepError, RecursionError):
        return reference


def _result(source: PythonSource, member: Aggregator, acc: str) -> str:
    """The text of a part's result."""
    if member.part is not None and member.part.function in _BETTER:
        return f"{acc}[0] if {acc} else None"
    return f"{source.bound(member.result)}({acc})"
