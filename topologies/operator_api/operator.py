"""The operator interface: each operator is written once, against whole batches.

An ``OperatorSpec`` is a value in the graph: its ports, stores and properties. ``open(ctx)`` makes the ``Operator`` of
one task. The engine calls it in one thread:

* ``process(port, batch)`` for every run of records on an input port, in task order. A run may have any length from 1 to
  the whole batch; the result must not depend on where runs are cut.
* ``advance(place)`` and, after the last run of a task batch, ``end_batch()``, for operators with event-time timers
  (``uses_stream_time``, ``uses_watermark``).
* ``flush()`` right before a commit, for operators that emit per commit.
* ``prefetch(port, batch)`` may come before ``process``, with records that follow later, to load their state in one go.

Operators emit by ``ctx.emit(batch, port)``, in task order. They reach state, time, counters and policies only through
``ctx``, and use no clock, randomness, file or client. State that is not in a store does not survive a restart, except
``stream_time_ms`` and ``input_times_ms``, which are committed with the offsets.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

from penstock.state.errors import ProcessingError
from penstock.state.log import TaskId
from penstock.state.serdes.serde import Serde
from penstock.state.stores.store import StoreSpec
from penstock.state.stores.store_view import KeyValueStoreView
from penstock.topologies.operator_api.batch import Batch, ColumnBatch
from penstock.topologies.operator_api.columns import Ints
from penstock.topologies.operator_api.edge_kinds import NO_RETRACTIONS, EdgeKind, Emits
from penstock.topologies.operator_api.on_error import Retry
from penstock.topologies.operator_api.required_columns import (
    ALL_AS_ROWS,
    NO_COLUMNS,
    ROW_LAYOUT,
    EdgeLayout,
    InputMode,
    RequiredColumns,
    path_of,
)

Emission = Literal["every_update", "per_commit", "on_close"]
NO_TIME = -1
"""Stream time before the first record."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExternalCall:
    """An external call that an operator makes per row: ``fn(*row)``, plain or ``async``. ``serde`` writes the answers
    to the journal. At most ``concurrency`` calls run at a time, each for at most ``timeout_s``. ``ordered_by_key`` and
    ``pauses_ms`` are for ``async`` functions: calls of rows that begin with equal keys follow each other; a call that fails
    is repeated after each of the pauses."""

    fn: Callable[..., Any]
    serde: Serde[Any]
    concurrency: int = 16
    timeout_s: float = 10.0
    ordered_by_key: bool = False
    pauses_ms: tuple[int, ...] = ()


class CallResult(NamedTuple):
    """The answer to one row's call, or the error, with the user's lines of its traceback."""

    value: Any
    error: str | None = None
    lines: tuple[str, ...] = ()


class CallFailedError(ProcessingError):
    """An external call failed. Its error is what the journal has of it, so that a replay says the same: ``said``, such as
    ``ConnectionError: away``, and the user's ``lines``."""

    def __init__(self, said: str, lines: tuple[str, ...] = ()) -> None:
        super().__init__(f"the call failed: {said}")
        self.said = said
        self.lines = lines


class BatchTimes(Protocol):
    """Event time of the task, by place in the batch that is being run."""

    @property
    def stride(self) -> int:
        """The factor of a place in ``Batch.order``."""

    @property
    def before_ms(self) -> int:
        """Stream time before the batch's first record; ``NO_TIME`` before any."""

    @property
    def times(self) -> Ints:
        """``by_place_ms`` as an array, which costs less."""

    @property
    def watermarks(self) -> Ints:
        """``watermark_by_place_ms`` as an array, which costs less."""

    @property
    def by_place_ms(self) -> list[int]:
        """Stream time after each input record of the batch, filtered ones included. Filled only if some operator of the
        plan has ``uses_stream_time`` or ``uses_watermark``."""

    @property
    def watermark_before_ms(self) -> int:
        """The watermark before the batch's first record: no record with a timestamp up to it is expected; ``NO_TIME``
        before any."""

    @property
    def watermark_by_place_ms(self) -> list[int]:
        """The watermark after each input record of the batch. Filled only if some operator of the plan has
        ``uses_watermark``."""

    @property
    def idle_by_place(self) -> list[bool]:
        """Whether all sources that have a watermark strategy were idle after each input record of the batch. Empty if
        none has a strategy."""

    @property
    def wall_ms(self) -> int:
        """Processing time: the last reading of the clock that the journal holds. It stands still within a batch."""


class OperatorContext(Protocol):
    """The context of an operator: everything it may reach."""

    name: str
    index: int
    task: TaskId
    has_consumers: bool
    """Whether any consumer takes what the operator emits; if not, the operator need not produce it."""
    needs: RequiredColumns | None
    """For a source: what is needed of its records; ``None``: it emits them as lists."""

    @property
    def time(self) -> BatchTimes:
        """The task's stream time."""

    @property
    def retry(self) -> Retry | None:
        """How often to call again, if a ``Retry`` was chosen for the operator, or for all."""

    def emit(self, batch: Batch, port: int = 0) -> None:
        """Emit records, in task order; empty batches are allowed."""

    def state(self, store: str) -> KeyValueStoreView:
        """One of the operator's declared stores."""

    def failed(self, batch: Batch, index: int, error: Exception, *, may_skip: bool = True) -> None:
        """Report that a user function raised on this row. Raises ``ProcessingError`` under the policy ``fail``, and if
        the work cannot be skipped record by record. Returns if the record is skipped; then it is already counted
        or sent to the dead letter topic."""

    def held(self, batch: Batch, index: int, error: Exception, attempts: int) -> None:
        """Report that a user function raised on this row, that many times so far, and that the row will be tried again.
        Raises a fault that is not the record's."""

    def holds(self, records: int) -> None:
        """Say how many records the operator holds for a later attempt, whenever that changes."""

    def retrying(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``fn``, or if ``retry`` is not ``None``, a function that calls it again when it raises. The
        spec must have ``retries``."""

    def dropped(self, reason: str, count: int = 1) -> None:
        """Count records that semantics drop: ``null_key``, ``null_value``, ``late``, ``expired``. The first null of each
        kind is also reported."""

    def columns_missing(self, columns: Sequence[str], records: int) -> None:
        """Report columns that expressions read and none of the source's first ``records`` has."""

    def count(self, name: str, amount: int = 1) -> None:
        """Add to a user counter."""

    def ask(self, call: ExternalCall, rows: Sequence[tuple[Any, ...]]) -> list[CallResult]:
        """Make the external call for each row. Returns one answer per row and journals them; on replay returns those of
        the journal. The spec must set ``makes_external_calls``."""

    def origin(self, order: int) -> tuple[str, int, int] | None:
        """Topic, partition and offset of the input record at a place of the order; ``None`` if the clock or a commit
        caused it."""

    def request_commit(self) -> None:
        """Ask for a commit right after this batch."""

    def request_shutdown(self) -> None:
        """Ask the worker to commit and stop after this batch."""


class Operator:
    """An operator that runs in one task. Subclasses override what they need."""

    stream_time_ms: int = NO_TIME
    input_times_ms: dict[str, int] | None = None
    """For an operator with a stream time per in port: these, by port; committed like ``stream_time_ms``."""

    def __init__(self, ctx: OperatorContext) -> None:
        self.ctx = ctx

    def resumed(self) -> None:
        """Called once, before anything else; ``stream_time_ms`` and ``input_times_ms`` then have the values of the last
        commit."""

    def process(self, port: int, batch: Batch) -> None:
        """Handle a run of records of one input port, one by one. This form is the reference."""
        raise AssertionError(f"{type(self).__name__} was given records but has no process method")

    def process_columns(self, port: int, batch: ColumnBatch) -> Batch | None:
        """Handle a run of records by their columns; the engine asks where a batch has columns and is long enough for them.
        Returns what is left for ``process``: the batch where nothing can be done so, or some of its records; ``None``:
        nothing. Nothing has been done with, and nothing reported of, what is left."""
        return batch

    def process_together(self, batches: Sequence[tuple[int, Batch]]) -> bool:
        """Handle the records of several in ports at once, by columns: each port's batch, and where their orders are equal,
        those of the earlier batch come first. The engine asks where ``input_mode`` says columns for all ports; batches that
        are too short for columns come as lists. ``False``: nothing was done, and the records come in runs."""
        return False

    def prefetch(self, port: int, batch: Batch) -> None:
        """Load the state of records that will follow."""

    def prefetch_columns(self, port: int, batch: ColumnBatch) -> bool:
        """Load it for ``process_columns``. ``False``: nothing was done, ``prefetch`` must do it."""
        return False

    def advance(self, place: int) -> None:
        """Fire the event-time timers that the records before ``place`` made due."""

    def end_batch(self) -> None:
        """The task's batch ends; places start at 0 again."""

    def flush(self) -> None:
        """A commit follows: emit what was held for it."""

    def wall_intervals_ms(self) -> list[int]:
        """The intervals of its wall-clock timers; the task calls ``punctuate`` when it passes a multiple of one."""
        return []

    def next_wall_ms(self) -> int | None:
        """When its next processing-time timer is due; ``None`` without one. The task calls ``punctuate`` then."""
        return None

    def punctuate(self, now_ms: int, before_ms: int) -> None:
        """The clock went from ``before_ms`` (the reading of the previous call) to ``now_ms``; both are journaled."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class OperatorSpec:
    """The specification of an operator, a value in the graph.

    ``in_ports`` and ``out_ports`` name its ports. ``stores`` are the stores it reads or writes: operators that name the
    same store share it. ``uses_stream_time``, ``uses_watermark`` and ``uses_wall_time``: it has timers of that time, or
    reads it. ``reads_wall_time``: it stamps records with wall-clock time: the clock is read, and journaled, before
    records are taken. ``makes_external_calls``: see ``OperatorContext.ask``. ``order_sensitive``: its result depends on the
    order of records with different keys. ``emission``: see ``describe``; ``None`` for stateless operators.
    ``sends_olds``: its output has the column ``olds``. ``emits`` and ``accepts``: see
    ``penstock.topologies.operator_api.edge_kinds``.
    """

    in_ports: tuple[str, ...] = ("in",)
    out_ports: tuple[str, ...] = ("out",)
    stores: tuple[StoreSpec, ...] = ()
    uses_stream_time: bool = False
    uses_watermark: bool = False
    uses_wall_time: bool = False
    reads_wall_time: bool = False
    makes_external_calls: bool = False
    order_sensitive: bool = False
    emission: Emission | None = None
    sends_olds: bool = False
    emits: Emits = "same"
    accepts: frozenset[EdgeKind] = NO_RETRACTIONS

    retries: ClassVar[bool] = False
    """Whether it can call its function again for a record (``OperatorContext.retrying``)."""

    @property
    def kind(self) -> str:
        """The operator's name in ``describe``."""
        return type(self).__name__.removesuffix("Spec")

    @property
    def timed(self) -> bool:
        """Whether event time triggers it between records."""
        return self.uses_stream_time or self.uses_watermark

    @property
    def resources(self) -> tuple[str, ...]:
        """The resources it shares with others: operators that name the same resource run in lockstep."""
        return tuple(f"store:{s.name}" for s in self.stores)

    @property
    def by_key(self) -> bool:
        """Whether records of different keys may change places: it uses its stores under a record's key alone, and nothing
        else stays from one record to the next."""
        return False

    @property
    def keeps_keys(self) -> bool:
        """Whether what it emits for a record has the record's key."""
        return False

    @property
    def at_most_one(self) -> bool:
        """Whether it emits at most one record for each that it gets, and no others."""
        return False

    def writes(self, port: int) -> tuple[str, ...]:
        """The resources that records of an in port write."""
        return self.touches(port)

    def touches(self, port: int) -> tuple[str, ...]:
        """The resources that records of an in port touch."""
        return self.resources

    def reads_values(self, port: int) -> bool:
        """Whether anything depends on the values of an in port's records, and not just on which of them are null."""
        return True

    def input_mode(self, port: int, out: Sequence[RequiredColumns]) -> InputMode:
        """How it takes the records of an in port (a source: those of its topic), if ``out`` is required of its out
        ports. By default: whole rows, one by one."""
        return InputMode(ALL_AS_ROWS, "it does not support columns")

    def row_reason(self, port: int, given: EdgeLayout) -> str | None:
        """Why records that arrive at an in port in this layout are taken one by one although ``input_mode`` says
        columns; ``None``: they are taken as columns."""
        own = self.input_mode(port, [NO_COLUMNS] * max(len(self.out_ports), 1)).needs
        if own.key and not given.keys:
            return "keys come as lists"
        if (own.value or own.fields) and not given.values:
            return "values come as lists"
        if given.fields is not None and not own.fields <= given.fields:
            missing = sorted(map(path_of, own.fields - given.fields))
            return f"values come without columns of {', '.join(map('.'.join, missing))}"
        return None if given.keys or given.values else "records come as lists"

    def output_layout(self, port: int, given: EdgeLayout, input_mode: InputMode) -> EdgeLayout:
        """The layout of an out port if records arrive at every in port in this layout and are taken so. By default:
        lists."""
        return ROW_LAYOUT

    def open(self, ctx: OperatorContext) -> Operator:
        """Build the operator of one task."""
        raise AssertionError(f"{self.kind} has no operator")

    def details(self) -> dict[str, Any]:
        """The text that ``describe`` prints after the name."""
        return {}
