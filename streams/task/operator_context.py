"""A task's services for its operators: state, time, outputs, counters, and the policy for a record that failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, get_args

from penstock.state.errors import PenstockError, ProcessingError, SerdeError
from penstock.state.log import Headers, TaskId
from penstock.state.stores.store_view import KeyValueStoreView
from penstock.streams.events.facts import (
    BadRecord,
    ColumnsMissing,
    Null,
    NullsDropped,
    RecordDeadLettered,
    RecordFailed,
    RecordHeld,
    RecordSkipped,
)
from penstock.streams.events.port import NO_EVENTS, EventSink
from penstock.streams.task.engine import BatchTime
from penstock.streams.task.error_policies import Policies, then_of
from penstock.streams.task.external_calls import COMMIT_BYTES, ExternalCalls
from penstock.streams.task.failure_report import Failure, Origin, letter_headers, stop_message
from penstock.topologies.expressions.row_function import ExpressionFunction
from penstock.topologies.operator_api.batch import Batch
from penstock.topologies.operator_api.on_error import PAUSES_MAX_MS, ErrorPolicy, OnError, Retry
from penstock.topologies.operator_api.operator import CallFailedError, CallResult, ExternalCall
from penstock.topologies.operator_api.required_columns import RequiredColumns

if TYPE_CHECKING:
    from penstock.streams.task.engine import Engine


class RecordErrorHandler:
    """Applies the policies. Collects the records for the dead letter topic, by place, so that their order does not
    depend on how the input was cut into batches. Records that a timer or a commit emitted have no input record: their
    letters have a null key and value, and the error in the headers. ``declared``: where operators were declared, for
    messages. ``on_error``: the policies of single operators. ``pause``: waits between attempts."""

    def __init__(
        self,
        task: TaskId,
        policies: Policies,
        locate: Callable[[int], Origin | None],
        events: EventSink = NO_EVENTS,
        declared: Mapping[str, str] | None = None,
        on_error: Mapping[str, OnError] | None = None,
        pause: Callable[[int], object] = lambda ms: None,
    ) -> None:
        self.on_error = on_error or {}
        policies.check(self.on_error)
        self._pause = pause
        self._paused_ms = 0
        self._task = task
        self._events = events
        self._declared = declared or {}
        self._policies = policies
        self._locate = locate
        self._letters: list[tuple[int, int, Origin | None, Headers]] = []
        self.counts: Counter[str] = Counter()
        self.holding: dict[str, int] = {}
        """How many records wait, by the operator that holds them."""

    def located(self, place: int) -> Origin | None:
        """The input record behind a place."""
        return self._locate(place)

    def failed(self, operator: str, index: int, place: int, error: Exception, may_skip: bool = True) -> None:
        """Handle a record that failed in an operator. Raises ``ProcessingError``, or returns if it is skipped. Faults
        that are not the record's (of stores, of the machine) are raised as they are under every policy."""
        fault = _no_records(error)
        if fault is not None:
            raise fault
        kind: BadRecord = "deserialization" if isinstance(error, SerdeError) else "processing"
        chosen = self.on_error.get(operator)
        general = self._policies.deserialization if kind == "deserialization" else self._policies.processing
        policy = general if chosen is None else then_of(chosen)
        notes = getattr(error, "__notes__", ())
        text = str(error) if isinstance(error, ProcessingError) else f"{type(error).__name__}: {error}"
        problem = text + (f" ({'; '.join(notes)})" if notes else "")
        failure = Failure(kind, operator, problem, error, may_skip, chosen is not None)
        self._apply(policy if may_skip else "fail", failure, index, place)

    def held(self, operator: str, place: int, error: Exception, attempts: int) -> None:
        """A record failed that its operator holds. Faults that are not the record's are raised as they are."""
        fault = _no_records(error)
        if fault is not None:
            raise fault
        origin = self._locate(place)
        at = None if origin is None else (*origin.partition, origin.offset)
        self._events.emit(
            RecordHeld(self._task, "processing", operator, at, type(error).__name__, str(error), attempts)
        )
        self.counts["processing_held"] += 1

    def retry_of(self, operator: str) -> Retry | None:
        """How often an operator calls its function again, if it can."""
        return self._policies.retry_of(self.on_error.get(operator))

    def bad_timestamp(self, source: str, place: int, problem: str) -> None:
        """A record's timestamp was refused at entry."""
        chosen = self.on_error.get(source)
        policy = self._policies.of_source(chosen).timestamp
        assert policy != "clamp"
        self._apply(policy, Failure("timestamp", source, problem, own_policy=chosen is not None), 0, place)

    def _apply(self, policy: ErrorPolicy, failure: Failure, index: int, place: int) -> None:
        origin = self._locate(place)
        at = None if origin is None else (*origin.partition, origin.offset)
        name = "InvalidTimestamp" if failure.error is None else _name_of(failure.error)
        self._events.emit(_REPORTED[policy](self._task, failure.kind, failure.operator, at, name, failure.problem))
        declared = self._declared.get(failure.operator)
        if policy == "fail":
            raise ProcessingError(stop_message(self._task, failure, origin, declared)) from failure.error
        self.counts[f"{failure.kind}_{policy}"] += 1
        if policy == "dead_letter":
            self._letters.append((place, index, origin, letter_headers(failure, origin, declared)))

    def nulls_dropped(self, operator: str, reason: Null) -> None:
        """An operator dropped its first records with this null."""
        self._events.emit(NullsDropped(self._task, operator, reason, self._declared.get(operator)))

    def columns_missing(self, operator: str, columns: tuple[str, ...], records: int) -> None:
        """Expressions read columns that the first records of a source do not have."""
        self._events.emit(ColumnsMissing(self._task, operator, columns, records, self._declared.get(operator)))

    def again(self, chosen: Retry, fn: Callable[..., Any], row: Sequence[Any], error: Exception) -> Any:
        """Call a function that raised ``error`` until it returns; after the last attempt raise what it raised. Faults that
        are not the record's are raised as they are. Once the pauses of a batch add up to ``PAUSES_MAX_MS``, attempts
        follow each other at once."""
        for wait_ms in chosen.pauses_ms():
            if isinstance(error, PenstockError):
                break
            if self._paused_ms + wait_ms <= PAUSES_MAX_MS:
                self._paused_ms += wait_ms
                self._pause(wait_ms)
            try:
                return fn(*row)
            except Exception as exc:
                error = exc
        raise error

    def take_letters(self) -> list[tuple[Origin | None, Headers]]:
        """The batch's dead letters, in order."""
        letters, self._letters = self._letters, []
        self._paused_ms = 0
        letters.sort(key=lambda x: (x[0], x[1]))
        return [(origin, headers) for _, _, origin, headers in letters]


def _name_of(error: Exception) -> str:
    """The class of what was raised."""
    return error.said.partition(":")[0] if isinstance(error, CallFailedError) else type(error).__name__


def _no_records(error: BaseException | None) -> PenstockError | None:
    """The fault within an error that is not the record's: of a store, of the machine, of what a serde asks."""
    while error is not None:
        if isinstance(error, PenstockError) and not isinstance(error, (SerdeError, ProcessingError)):
            return error
        error = error.__cause__
    return None


_REPORTED: Final[Mapping[ErrorPolicy, type[RecordFailed | RecordSkipped | RecordDeadLettered]]] = {
    "fail": RecordFailed,
    "skip": RecordSkipped,
    "dead_letter": RecordDeadLettered,
}


_NULLS: Final[Mapping[str, Null]] = {null: null for null in get_args(Null)}


class TaskRequests:
    """Requests of user code to the runner."""

    def __init__(self) -> None:
        self.commit = False
        self.shutdown = False


class NodeContext:
    """One operator's context."""

    def __init__(
        self,
        name: str,
        index: int,
        task: TaskId,
        time: BatchTime,
        states: dict[str, KeyValueStoreView],
        failures: RecordErrorHandler,
        counters: Counter[str],
        requests: TaskRequests,
        *,
        has_consumers: bool,
        external_calls: ExternalCalls | None = None,
        needs: RequiredColumns | None = None,
    ) -> None:
        self.name = name
        self.index = index
        self.task = task
        self.has_consumers = has_consumers
        self.needs = needs
        self.time = time
        self._states = states
        self._failures = failures
        self._counters = counters
        self._requests = requests
        self.engine: Engine | None = None
        self._external_calls = external_calls

    def emit(self, batch: Batch, port: int = 0) -> None:
        """Hand records on."""
        assert self.engine is not None
        self.engine.emitted(self.index, batch, port)

    def state(self, store: str) -> KeyValueStoreView:
        """A store's view."""
        return self._states[store]

    def failed(self, batch: Batch, index: int, error: Exception, *, may_skip: bool = True) -> None:
        """Apply the policy to the record behind this row."""
        self._failures.failed(self.name, self.index, batch.order[index] // self.time.stride, error, may_skip)

    def held(self, batch: Batch, index: int, error: Exception, attempts: int) -> None:
        """Report a record that waits."""
        self._failures.held(self.name, batch.order[index] // self.time.stride, error, attempts)

    def holds(self, records: int) -> None:
        """Note how many records wait."""
        self._failures.holding[self.name] = records

    @property
    def retry(self) -> Retry | None:
        """The operator's own, or the application's."""
        return self._failures.retry_of(self.name)

    def retrying(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """The function, or one that calls it again. Expressions give the same again, so they are left alone."""
        chosen = self.retry
        if chosen is None or isinstance(fn, ExpressionFunction):
            return fn

        def attempted(*row: Any) -> Any:
            try:
                return fn(*row)
            except Exception as exc:
                return self._failures.again(chosen, fn, row, exc)

        return attempted

    def dropped(self, reason: str, count: int = 1) -> None:
        """Count records that the semantics drop; nulls are reported once."""
        if not count:
            return
        counter = f"{self.name}.{reason}"
        if counter not in self._counters and (null := _NULLS.get(reason)) is not None:
            self._failures.nulls_dropped(self.name, null)
        self._counters[counter] += count

    def columns_missing(self, columns: Sequence[str], records: int) -> None:
        """Report columns that expressions read and no record has so far."""
        self._failures.columns_missing(self.name, tuple(columns), records)

    def count(self, name: str, amount: int = 1) -> None:
        """Add to one of the user's counters."""
        self._counters[f"{self.name}.user.{name}"] += amount

    def ask(self, call: ExternalCall, rows: Sequence[tuple[Any, ...]]) -> list[CallResult]:
        """Make external calls, or return the journaled answers."""
        assert self._external_calls is not None, self.name
        answers = self._external_calls.ask(self.name, call, rows)
        if self._external_calls.noted_bytes > COMMIT_BYTES:
            self._requests.commit = True
        return answers

    def origin(self, order: int) -> tuple[str, int, int] | None:
        """The input record."""
        found = self._failures.located(order // self.time.stride)
        return None if found is None else (found.partition.topic, found.partition.partition, found.offset)

    def request_commit(self) -> None:
        """Early commit."""
        self._requests.commit = True

    def request_shutdown(self) -> None:
        """Clean stop."""
        self._requests.shutdown = True
