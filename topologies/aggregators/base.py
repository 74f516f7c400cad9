"""A ready aggregate: a value that defines how records are folded, merged, subtracted and serialized.

Every ready aggregate keeps these rules, and the tests check them:

* Accumulators are immutable: ``add``, ``inverse``, ``merge`` and ``subtract`` return new ones. An accumulator that is
  written and read is equal to the first, and equal accumulators have equal bytes.
* Nulls are ignored, as in SQL: an aggregate of a column skips the records in which the column is null. If there was no
  value at all, the result is null (a count is 0, a collection is empty).
* ``merge(fold(a), fold(b))`` has the same ``result`` as ``fold(a + b)`` for every split when ``exact_merge``. Float sums
  have no exact merge: addition of floats is not associative.
* ``inverse(add(acc, x), x)`` has the same ``result`` as ``acc``; for floats up to rounding.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias, cast

from penstock.state.errors import TopologyError
from penstock.state.serdes.serde import Serde
from penstock.state.type_parameters import VR, A, V
from penstock.topologies.aggregators.encoding import RESULT_JSON, joined
from penstock.topologies.aggregators.kept_records import KeptRecords
from penstock.topologies.aggregators.members_apart import MembersApart, members_of_all

if TYPE_CHECKING:
    from penstock.topologies.expressions.row_function import ExpressionFunction
    from penstock.topologies.expressions.tree import Expression

AggregateInput: TypeAlias = "str | Callable[[V], object] | Expression | None"
"""The column to aggregate: a field's name, a function or an expression of the value, or ``None`` for the value
itself."""


class Part(NamedTuple):
    """An aggregate expression as a value: ``function`` of the column ``of`` (``None``: of records), whose type is
    ``kind``. ``merge`` combines two accumulators. ``prepare``: see ``Step``."""

    function: str
    of: ExpressionFunction | None
    kind: str
    merge: Callable[[Any, Any], Any] | None
    prepare: Callable[[Any], Any] | None = None


class Step(NamedTuple):
    """How one value of the column that is not null is added: ``add(acc, value, timestamp_ms)``. With ``prepare``, ``add``
    gets ``prepare(value)`` instead."""

    add: Callable[[Any, Any, int], Any]
    prepare: Callable[[Any], Any] | None = None

    def of(self, pick: Callable[[Any], Any]) -> Callable[[Any, Any, int], Any]:
        """The ``add`` of an aggregate whose column is ``pick`` of a record's value. Nulls are ignored."""
        fold, prepare = self

        def add(acc: Any, row: Any, timestamp_ms: int) -> Any:
            x = pick(row)
            return acc if x is None else fold(acc, x if prepare is None else prepare(x), timestamp_ms)

        return add


@dataclasses.dataclass(frozen=True, kw_only=True)
class Aggregator(Generic[VR, V, A]):
    """One aggregate of values of type ``V``, with results of type ``VR`` and accumulators of type ``A``. ``add(acc,
    value, timestamp_ms)`` takes the whole value of a record and picks its column itself; so does ``inverse``, which
    removes the record again. ``merge(a, b)`` combines two disjoint sets of records, those of ``b`` after those of
    ``a``. ``subtract(a, b)`` removes the records of ``b`` from ``a``, which must contain them all.

    ``ordered``: the result depends on the order of the records (first, list, EWMA…), so partials of parallel tasks
    have no single result. ``step``: how a value of the column is added, if ``add`` was built from a step. ``part``: the
    aggregate as an expression, if it is one. ``parts``: those of the members, if all members are expressions; the
    accumulator is then the tuple of theirs. ``result_of_parts``: the result as an expression over the results of the parts,
    the fields ``part1`` and so on, if it is one. ``apart``: its form with distinct members in a store of their own, if it
    has any; results, and records that fail, are the same in both. ``kept``: what it keeps, if that is whole
    values, which need not be decoded for it.
    """

    name: str
    init: Callable[[], A]
    add: Callable[[A, V, int], A]
    result: Callable[[A], VR]
    serde: Serde[A]
    result_serde: Serde[VR]
    merge: Callable[[A, A], A] | None = None
    inverse: Callable[[A, V, int], A] | None = None
    subtract: Callable[[A, A], A] | None = None
    exact_merge: bool = False
    ordered: bool = False
    step: Step | None = None
    part: Part | None = None
    parts: tuple[Part, ...] = ()
    result_of_parts: ExpressionFunction | None = None
    apart: MembersApart | None = None
    kept: KeptRecords | None = None

    def mapped(self, fn: Callable[[Any], Any], **changes: Any) -> Aggregator[Any, V, A]:
        """The aggregate with ``fn`` of its results, and with other properties changed, in both of its forms."""
        apart, result = self.apart, self.result
        if apart is not None:
            apart = apart._replace(aggregator=apart.aggregator.mapped(fn, **changes))
        return dataclasses.replace(self, result=lambda acc: fn(result(acc)), apart=apart, kept=None, **changes)

    def fold(self, rows: Iterable[tuple[V, int]]) -> A:
        """Fold rows ``(value, timestamp_ms)`` into an accumulator."""
        acc = self.init()
        for value, timestamp_ms in rows:
            acc = self.add(acc, value, timestamp_ms)
        return acc


def getter(of: AggregateInput, name: str, serde: Serde[Any] | None = None) -> Callable[[Any], Any]:
    """The function that picks the column; an expression is typed by the values' serde, if it is known. Raises
    ``TopologyError`` for anything but a name, an expression of the value's columns, a function or ``None``."""
    # ready aggregates are also built from expressions
    from penstock.topologies.expressions.row_function import to_function
    from penstock.topologies.expressions.tree import Expression
    from penstock.topologies.expressions.types import UNKNOWN

    if of is None:
        return _itself
    if isinstance(of, Expression):
        schema = None if serde is None else serde.declared or serde.exact
        return to_function(of, ("value",), UNKNOWN if schema is None else schema, operator=name)
    if isinstance(of, str):
        return _field(of)
    if callable(of):
        return of
    raise TopologyError(
        f"aggregate {name!r} cannot use {of!r:.100}; give a field's name, a function of the value, or nothing for the "
        "value itself"
    )


def expressions_of(functions: Sequence[Callable[..., Any]]) -> tuple[ExpressionFunction, ...] | None:
    """The functions, if all are expressions."""
    from penstock.topologies.expressions.row_function import ExpressionFunction

    found = tuple(fn for fn in functions if isinstance(fn, ExpressionFunction))
    return found if len(found) == len(functions) else None


def _itself(value: Any) -> Any:
    return value


def _field(field: str) -> Callable[[Any], Any]:
    item = itemgetter(field)

    def pick(value: Any) -> Any:
        return item(value) if isinstance(value, dict) else getattr(value, field)

    return pick


def named(kind: str, of: AggregateInput) -> str:
    """The aggregate's name: its kind and, where it has a name, its column."""
    return f"{kind}({of})" if isinstance(of, str) else kind


def agg(*positional: object, **parts: Aggregator) -> Aggregator[dict[str, Any]]:
    """Several aggregates at once: the result is a dict of the parts' results by name.

        agg(total=sum_("price"), bids=count())

    The whole can do only what all parts can do (merge, inverse, subtract).
    """
    wrong = [f"{n}={p!r:.60}" for n, p in parts.items() if not isinstance(p, Aggregator)]
    wrong += [f"{p!r:.60}" for p in positional]
    if wrong or not parts:
        raise TopologyError(
            f"agg was given {', '.join(wrong) or 'nothing'}; give it aggregates by name: agg(total=sum_('price'))"
        )
    names, members = tuple(parts), tuple(parts.values())
    adders = tuple(p.add for p in members)
    results = tuple(p.result for p in members)

    def init() -> tuple[Any, ...]:
        return tuple([p.init() for p in members])

    def add(acc: tuple[Any, ...], value: Any, timestamp_ms: int) -> tuple[Any, ...]:
        return tuple([fn(part, value, timestamp_ms) for fn, part in zip(adders, acc, strict=True)])

    def result(acc: tuple[Any, ...]) -> dict[str, Any]:
        return {name: fn(part) for name, fn, part in zip(names, results, acc, strict=True)}

    return Aggregator(
        name=f"agg({', '.join(f'{n}={p.name}' for n, p in parts.items())})",
        init=init,
        add=add,
        result=result,
        serde=joined(tuple(p.serde for p in members)),
        result_serde=RESULT_JSON,
        merge=_both([p.merge for p in members]),
        inverse=_each([p.inverse for p in members]),
        subtract=_both([p.subtract for p in members]),
        exact_merge=all(p.exact_merge for p in members),
        ordered=any(p.ordered for p in members),
        parts=tuple(p.part for p in members if p.part is not None) if all(p.part for p in members) else (),
        apart=_apart(parts),
    )


def _apart(parts: dict[str, Aggregator]) -> MembersApart | None:
    """Several aggregates with their distinct members apart; ``None`` if they have none."""
    found = [(place, p.apart) for place, p in enumerate(parts.values()) if p.apart is not None]
    if not found:
        return None
    whole = agg(**{n: p if p.apart is None else p.apart.aggregator for n, p in parts.items()})
    paths = tuple((place, *path) for place, apart in found for path in apart.paths)
    return MembersApart(whole, paths, members_of_all([apart for _, apart in found]))


def _both(parts: list[Callable[[Any, Any], Any] | None]) -> Callable[[Any, Any], Any] | None:
    """A function of two accumulators, part by part; ``None`` if one part has no such function."""
    if None in parts:
        return None
    functions = cast("list[Callable[[Any, Any], Any]]", parts)

    def both(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(fn(x, y) for fn, x, y in zip(functions, a, b, strict=True))

    return both


def _each(parts: list[Callable[[Any, Any, int], Any] | None]) -> Callable[[Any, Any, int], Any] | None:
    if None in parts:
        return None
    functions = cast("list[Callable[[Any, Any, int], Any]]", parts)

    def each(acc: tuple[Any, ...], value: Any, timestamp_ms: int) -> tuple[Any, ...]:
        return tuple(fn(x, value, timestamp_ms) for fn, x in zip(functions, acc, strict=True))

    return each
