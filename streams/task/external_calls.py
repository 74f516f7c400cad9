"""External calls of operators, and their answers, which the journal keeps.

Live, the runner's ``CallExecutor`` makes the calls. Answers and failures alike are journaled with the commit, so a
replay gives each operator the same answers in the same order without calling anything.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol

import msgspec

from penstock.state.errors import IncompatibleError
from penstock.streams.task.journal import Answers
from penstock.topologies.graph.source_lines import raised_at
from penstock.topologies.operator_api.operator import CallResult, ExternalCall

_LINES: Final = msgspec.json.Decoder(tuple[str, tuple[str, ...]])
COMMIT_BYTES = 500_000
"""If there are more answers than this since the last commit, a commit is requested."""


class CallExecutor(Protocol):
    """Calls a user's function for many rows, possibly concurrently, and answers in the rows' order."""

    def ask(self, call: ExternalCall, rows: Sequence[tuple[Any, ...]]) -> list[CallResult]:
        """Return one answer per row. If the function raised or took too long, the answer holds the error."""


class InlineCallExecutor:
    """Calls one row after the other, in the task's thread. Functions must be synchronous; there is no time limit."""

    def ask(self, call: ExternalCall, rows: Sequence[tuple[Any, ...]]) -> list[CallResult]:
        """Return one answer per row."""
        return [_called(call.fn, row) for row in rows]


def _called(fn: Callable[..., Any], row: tuple[Any, ...]) -> CallResult:
    try:
        return CallResult(fn(*row))
    except Exception as exc:
        return failed_with(exc)


def failed_with(error: Exception) -> CallResult:
    """The answer to a call that raised this."""
    return CallResult(None, f"{type(error).__name__}: {error}", tuple(map(str, raised_at(error))))


class ExternalCalls:
    """The external calls of one task. ``replayed``: the answers to return instead of calling; ``None`` live.
    ``positions``: what the task has taken of its inputs."""

    def __init__(
        self,
        call_executor: CallExecutor,
        positions: Callable[[], dict[str, int]],
        note: Callable[[Answers], None],
        replayed: Iterable[Answers] | None,
    ) -> None:
        self._call_executor = call_executor
        self._positions = positions
        self._note = note
        self._script: dict[str, deque[bytes]] | None = None if replayed is None else {}
        """The answers that were read and not returned yet, because operators are at different places."""
        self._more = iter(replayed or ())
        self.noted_bytes = 0
        """Size of the answers since the last commit."""

    def ask(self, operator: str, call: ExternalCall, rows: Sequence[tuple[Any, ...]]) -> list[CallResult]:
        """Return the answers for the rows of one operator."""
        if self._script is not None:
            return [_decoded(call, self._next(operator)) for _ in rows]
        answers = self._call_executor.ask(call, rows)
        encoded = [_encoded(call, a) for a in answers]
        self._note(Answers(self._positions(), operator, encoded))
        self.noted_bytes += sum(map(len, encoded))
        # as a replay will read them: live runs use the decoded journal entry too
        return [_decoded(call, data) for data in encoded]

    def _next(self, operator: str) -> bytes:
        assert self._script is not None
        answers = self._script.setdefault(operator, deque())
        while not answers and (entry := next(self._more, None)) is not None:
            self._script.setdefault(entry.operator, deque()).extend(entry.values)
        if not answers:
            raise IncompatibleError(
                f"the journal holds no further answer for operator {operator!r}; replay with the topology that ran, and "
                "only over a range that was committed"
            )
        return answers.popleft()


def _encoded(call: ExternalCall, answer: CallResult) -> bytes:
    if answer.lines:
        return b"\x03" + msgspec.json.encode((answer.error, answer.lines))
    if answer.error is not None:
        return b"\x02" + answer.error.encode()
    if answer.value is None:
        return b"\x00"
    try:
        return b"\x01" + call.serde.serialize(answer.value)
    except Exception as exc:
        return b"\x02" + f"serde {call.serde.name} cannot write the answer {answer.value!r:.100} ({exc})".encode()


def _decoded(call: ExternalCall, data: bytes) -> CallResult:
    if data[0] == 3:
        return CallResult(None, *_LINES.decode(data[1:]))
    if data[0] == 2:
        return CallResult(None, data[1:].decode())
    return CallResult(None) if data[0] == 0 else CallResult(call.serde.deserialize(data[1:]))
