"""Operators without state. Functions named ``fn`` get ``(key, value)``, those of the ``values`` forms only the value.
Output timestamps and headers are the input record's (Kafka Streams), so what a function returns for a retraction
retracts what it returned for the record."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any, ClassVar, Final

from penstock.topologies.expressions.row_function import OfRecord
from penstock.topologies.operator_api.batch import Batch, ColumnBatch
from penstock.topologies.operator_api.columns import Column, Mask
from penstock.topologies.operator_api.edge_kinds import ANY_KIND, EdgeKind
from penstock.topologies.operator_api.operator import Operator, OperatorContext, OperatorSpec
from penstock.topologies.operator_api.required_columns import (
    ALL_AS_ROWS,
    ROW_LAYOUT,
    EdgeLayout,
    InputMode,
    RequiredColumns,
)
from penstock.topologies.operators.base.flat_map_children import children_of
from penstock.topologies.operators.base.row_functions import map_rows
from penstock.topologies.operators.columnar import stateless as columnar
from penstock.topologies.operators.columnar.mapping import pair_layout, pair_mode, pairs_of, why_pairs_by_rows
from penstock.topologies.operators.columnar.splitting import children_mode, words_of

_first: Final = itemgetter(0)
_second: Final = itemgetter(1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FilterSpec(OperatorSpec):
    """Keeps the records for which ``fn(key, value)`` is true (``negate``: false)."""

    retries: ClassVar[bool] = True
    fn: Callable[..., Any]
    negate: bool = False
    values_only: bool = False
    accepts: frozenset[EdgeKind] = ANY_KIND

    @property
    def at_most_one(self) -> bool:
        return True

    def input_mode(self, port: int, out: Sequence[RequiredColumns]) -> InputMode:
        return columnar.filter_mode(self.fn, self.values_only, out[0])

    def output_layout(self, port: int, given: EdgeLayout, input_mode: InputMode) -> EdgeLayout:
        return given

    def open(self, ctx: OperatorContext) -> Operator:
        """The running form."""
        return _FilterOperator(ctx, self)


def _columns(fn: Callable[..., Any], batch: Batch, values_only: bool) -> tuple[Sequence[Any], ...]:
    """The columns that a function of records takes."""
    if isinstance(fn, OfRecord):
        return batch.keys, batch.values, batch.timestamps, batch.headers or [()] * len(batch)
    return (batch.values,) if values_only else (batch.keys, batch.values)


class _FunctionOperator(Operator):
    """Runs one function of records, over columns by its ``step``, and emits what ``show`` makes of its results.
    ``values_only``: the function takes the value alone."""

    def __init__(
        self, ctx: OperatorContext, fn: Callable[..., Any], step: columnar.ColumnarStep | None, *, values_only: bool
    ) -> None:
        super().__init__(ctx)
        self._fn, self._step, self._values_only = ctx.retrying(fn), step, values_only

    def process_columns(self, port: int, batch: ColumnBatch) -> Batch | None:
        return columnar.by_columns(self.ctx, batch, self._step, self.show, self._fn, self._given)

    def process(self, port: int, batch: Batch) -> None:
        results, batch = map_rows(self.ctx, batch, self._fn, *self._given(batch))
        self.show(batch, results)

    def show(self, batch: Batch, results: Any) -> None:
        """Emit records; ``results``: of each of them, as a list, a column or a mask."""
        raise AssertionError(type(self).__name__)

    def _given(self, batch: Batch) -> tuple[Sequence[Any], ...]:
        return _columns(self._fn, batch, self._values_only)


class _FilterOperator(_FunctionOperator):
    def __init__(self, ctx: OperatorContext, spec: FilterSpec) -> None:
        super().__init__(ctx, spec.fn, columnar.mask_of(spec.fn), values_only=spec.values_only)
        self._negate = spec.negate

    def show(self, batch: Batch, results: list[Any] | Mask) -> None:
        if self._negate:
            results = [not m for m in results] if isinstance(results, list) else ~results
        self.ctx.emit(batch.where(results))


@dataclasses.dataclass(frozen=True, kw_only=True)
class MapValuesSpec(OperatorSpec):
    """Replaces the value by ``fn(value)``, or ``fn(key, value)`` with ``with_key``."""

    retries: ClassVar[bool] = True
    fn: Callable[..., Any]
    with_key: bool = False
    accepts: frozenset[EdgeKind] = ANY_KIND

    @property
    def at_most_one(self) -> bool:
        return True

    def input_mode(self, port: int, out: Sequence[RequiredColumns]) -> InputMode:
        return columnar.values_mode(self.fn, self.with_key, out[0])

    def output_layout(self, port: int, given: EdgeLayout, input_mode: InputMode) -> EdgeLayout:
        return columnar.values_layout(self.fn, given, input_mode)

    def open(self, ctx: OperatorContext) -> Operator:
        """The running form."""
        return _MapValuesOperator(ctx, self.fn, columnar.values_of(self.fn), values_only=not self.with_key)


class _MapValuesOperator(_FunctionOperator):
    def show(self, batch: Batch, results: list[Any] | Column) -> None:
        self.ctx.emit(batch.replace(values=results))


@dataclasses.dataclass(frozen=True, kw_only=True)
class MapSpec(OperatorSpec):
    """Replaces key and value by ``fn(key, value)``, a pair. Any other result is an error of the row."""

    retries: ClassVar[bool] = True
    fn: Callable[[Any, Any], tuple[Any, Any]]
    accepts: frozenset[EdgeKind] = ANY_KIND

    @property
    def at_most_one(self) -> bool:
        return True

    def input_mode(self, port: int, out: Sequence[RequiredColumns]) -> InputMode:
        return pair_mode(self.fn, out[0])

    def row_reason(self, port: int, given: EdgeLayout) -> str | None:
        return super().row_reason(port, given) or why_pairs_by_rows(self.fn, given)

    def output_layout(self, port: int, given: EdgeLayout, input_mode: InputMode) -> EdgeLayout:
        return pair_layout(self.fn, given, input_mode)

    def open(self, ctx: OperatorContext) -> Operator:
        """The running form."""
        return _MapOperator(ctx, self)


class _MapOperator(Operator):
    def __init__(self, ctx: OperatorContext, spec: MapSpec) -> None:
        super().__init__(ctx)
        self._fn = ctx.retrying(spec.fn)
        self._pairs = pairs_of(spec.fn)

    def process_columns(self, port: int, batch: ColumnBatch) -> Batch | None:
        found = None if self._pairs is None else self._pairs(batch)
        if found is None:
            return batch
        keys, values = found
        self.ctx.emit(batch.replace(keys=keys, values=values))
        return None

    def process(self, port: int, batch: Batch) -> None:
        pairs, batch = map_rows(self.ctx, batch, self._fn, batch.keys, batch.values)
        if pairs and not (set(map(type, pairs)) == {tuple} and set(map(len, pairs)) == {2}):
            pairs, batch = map_rows(self.ctx, batch, _as_pair, pairs)
        if pairs:
            self.ctx.emit(batch.replace(keys=list(map(_first, pairs)), values=list(map(_second, pairs))))


def _as_pair(result: Any) -> tuple[Any, Any]:
    """A tuple or list of two. A dict, a set or a string with two members is refused: nobody means its members."""
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        raise TypeError(f"the function must return a (key, value) pair, not {result!r:.100}")
    return result[0], result[1]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SelectKeySpec(OperatorSpec):
    """Replaces the key by ``fn(key, value)``."""

    retries: ClassVar[bool] = True
    fn: Callable[[Any, Any], Any]
    accepts: frozenset[EdgeKind] = ANY_KIND

    @property
    def at_most_one(self) -> bool:
        return True

    def input_mode(self, port: int, out: Sequence[RequiredColumns]) -> InputMode:
        return columnar.key_mode(self.fn, out[0])

    def output_layout(self, port: int, given: EdgeLayout, input_mode: InputMode) -> EdgeLayout:
        return dataclasses.replace(given, keys=input_mode.rows is None)

    def open(self, ctx: OperatorContext) -> Operator:
        """The running form."""
        return _SelectKeyOperator(ctx, self.fn, columnar.keys_of(self.fn), values_only=False)


class _SelectKeyOperator(_FunctionOperator):
    def show(self, batch: Batch, results: list[Any] | Column) -> None:
        self.ctx.emit(batch.replace(keys=results))


@dataclasses.dataclass(frozen=True, kw_only=True)
class FlatMapSpec(OperatorSpec):
    """Replaces a record by the records of ``fn``: ``fn(key, value)`` gives pairs; with ``values_only``
    ``fn(value)``, or ``fn(key, value)`` if also ``with_key``, gives values under the same key. The children stand
    in the order given."""

    retries: ClassVar[bool] = True
    fn: Callable[..., Iterable[Any]]
    values_only: bool = False
    with_key: bool = False
    accepts: frozenset[EdgeKind] = ANY_KIND

    def input_mode(self, port: int, out: Sequence[RequiredColumns]) -> InputMode:
        return children_mode(self.fn, self.values_only, self.with_key, out[0])

    def row_reason(self, port: int, given: EdgeLayout) -> str | None:
        return None if given.texts else "its texts have been changed since they were read"

    def output_layout(self, port: int, given: EdgeLayout, input_mode: InputMode) -> EdgeLayout:
        return EdgeLayout(given.keys, True, True) if input_mode.rows is None else ROW_LAYOUT

    def open(self, ctx: OperatorContext) -> Operator:
        """The running form."""
        return _FlatMapOperator(ctx, self)


class _FlatMapOperator(Operator):
    def __init__(self, ctx: OperatorContext, spec: FlatMapSpec) -> None:
        super().__init__(ctx)
        self._values_only = spec.values_only
        self._with_key = spec.with_key or not spec.values_only
        fn = spec.fn
        self._fn: Callable[..., Iterable[Any]] = fn
        self._words = words_of(fn) if spec.values_only else None
        if not spec.values_only:
            self._fn = lambda key, value: [_as_pair(p) for p in fn(key, value)]
        again = ctx.retrying(self._fn)
        if again is not self._fn:
            # a generator that raised gives nothing more, so the function itself is called again
            made = self._fn
            self._fn = ctx.retrying(lambda *row: list(made(*row)))

    def process_columns(self, port: int, batch: ColumnBatch) -> Batch | None:
        found = None if self._words is None else self._words(batch)
        if found is None:
            return batch
        self.ctx.emit(found)
        return None

    def process(self, port: int, batch: Batch) -> None:
        columns = (batch.keys, batch.values) if self._with_key else (batch.values,)
        children, batch = map_rows(self.ctx, batch, self._fn, *columns)
        if not set(map(type, children)) <= {list, tuple}:
            # generators are run here, so that their errors belong to their rows
            children, batch = map_rows(self.ctx, batch, list, children)
        flat = list(chain.from_iterable(children))
        if not flat:
            return
        if self._values_only:
            self.ctx.emit(children_of(batch, children, flat))
        else:
            children_values = list(map(_second, flat))
            self.ctx.emit(children_of(batch, children, children_values).replace(keys=list(map(_first, flat))))


@dataclasses.dataclass(frozen=True, kw_only=True)
class PeekSpec(OperatorSpec):
    """Calls ``fn(key, value)`` for its effect and passes the record on. Under exactly-once the effect may repeat
    after an abort or a restart."""

    retries: ClassVar[bool] = True
    fn: Callable[[Any, Any], Any]

    @property
    def at_most_one(self) -> bool:
        return True

    def input_mode(self, port: int, out: Sequence[RequiredColumns]) -> InputMode:
        return InputMode(ALL_AS_ROWS, columnar.PYTHON)

    def output_layout(self, port: int, given: EdgeLayout, input_mode: InputMode) -> EdgeLayout:
        return given

    def open(self, ctx: OperatorContext) -> Operator:
        """The running form."""
        return _PeekOperator(ctx, self)


class _PeekOperator(Operator):
    def __init__(self, ctx: OperatorContext, spec: PeekSpec) -> None:
        super().__init__(ctx)
        self._fn = ctx.retrying(spec.fn)

    def process(self, port: int, batch: Batch) -> None:
        _, batch = map_rows(self.ctx, batch, self._fn, batch.keys, batch.values)
        self.ctx.emit(batch)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BranchSpec(OperatorSpec):
    """Sends each record to the out port of the first predicate ``fn(key, value)`` that is true. A record without one
    goes to the last port if there is one more port than predicates, and is dropped otherwise."""

    retries: ClassVar[bool] = True
    predicates: tuple[Callable[[Any, Any], Any], ...]
    accepts: frozenset[EdgeKind] = ANY_KIND

    @property
    def at_most_one(self) -> bool:
        return True

    def input_mode(self, port: int, out: Sequence[RequiredColumns]) -> InputMode:
        return columnar.branch_mode(self.predicates, out)

    def output_layout(self, port: int, given: EdgeLayout, input_mode: InputMode) -> EdgeLayout:
        return given

    def open(self, ctx: OperatorContext) -> Operator:
        """The running form."""
        return _BranchOperator(ctx, self)


class _BranchOperator(Operator):
    def __init__(self, ctx: OperatorContext, spec: BranchSpec) -> None:
        super().__init__(ctx)
        self._ports = len(spec.out_ports)
        predicates = spec.predicates

        def port_of(key: Any, value: Any) -> int:
            for i, predicate in enumerate(predicates):
                if predicate(key, value):
                    return i
            return len(predicates)

        self._port_of = ctx.retrying(port_of)
        self._masks = columnar.ports_of(predicates)

    def process_columns(self, port: int, batch: ColumnBatch) -> Batch | None:
        masks = None if self._masks is None else self._masks(batch)
        if masks is None:
            return batch
        for number, mask in zip(range(self._ports), masks, strict=False):
            self.ctx.emit(batch.where(mask), number)
        return None

    def process(self, port: int, batch: Batch) -> None:
        ports, batch = map_rows(self.ctx, batch, self._port_of, batch.keys, batch.values)
        for number in range(self._ports):
            self.ctx.emit(batch.where([p == number for p in ports]), number)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MergeSpec(OperatorSpec):
    """One stream of several, in the task's order."""

    accepts: frozenset[EdgeKind] = ANY_KIND

    def input_mode(self, port: int, out: Sequence[RequiredColumns]) -> InputMode:
        return InputMode(out[0])

    def output_layout(self, port: int, given: EdgeLayout, input_mode: InputMode) -> EdgeLayout:
        return given

    def open(self, ctx: OperatorContext) -> Operator:
        """The running form."""
        return _MergeOperator(ctx)


class _MergeOperator(Operator):
    def process(self, port: int, batch: Batch) -> None:
        self.ctx.emit(batch)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MapBatchSpec(OperatorSpec):
    """The hot path for users: ``fn(batch)`` gets whole runs of records and returns a ``Batch`` or ``None``. Its
    answer must not depend on where runs are cut; ``order`` and ``timestamps`` come from the records that it keeps
    (``where``, ``pick``, ``replace`` do that). An exception counts against the run's first record."""

    fn: Callable[[Batch], Batch | None]

    def input_mode(self, port: int, out: Sequence[RequiredColumns]) -> InputMode:
        return InputMode(ALL_AS_ROWS, columnar.PYTHON)

    def open(self, ctx: OperatorContext) -> Operator:
        """The running form."""
        return _MapBatchOperator(ctx, self)


class _MapBatchOperator(Operator):
    def __init__(self, ctx: OperatorContext, spec: MapBatchSpec) -> None:
        super().__init__(ctx)
        self._fn = spec.fn

    def process(self, port: int, batch: Batch) -> None:
        batch = batch.listed()  # a plain batch, as a user's function makes them
        try:
            out = self._fn(batch)
        except Exception as exc:
            if len(batch) == 1:
                self.ctx.failed(batch, 0, exc)
                return
            # one record at a time, so that the policy applies to the record that failed
            for i in range(len(batch)):
                self.process(port, batch.slice(i, i + 1))
            return
        if out is not None:
            self.ctx.emit(out)
