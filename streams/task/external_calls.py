"""Questions that operators put to the world outside, and their answers, which the journal keeps.

Live, a question is put by the ``CallExecutor`` of the runner, and what comes back, answers and failures alike, is
journaled with the commit, so that a replay gives each operator the same answers in the same order without asking
anybody.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from penstock.state.errors import IncompatibleError
from penstock.streams.task.journal import Answers
from penstock.topologies.operator_api.operator import CallResult, ExternalCall

COMMIT_BYTES = 500_000
"""More answers than this since the last commit ask for one."""


class CallExecutor(Protocol):
    """Calls a user's function for many rows; it may do so at the same time, and answers in the rows' order."""

    def ask(self, question: ExternalCall, rows: Sequence[tuple[Any, ...]]) -> list[CallResult]:
        """One answer per row. A function that raised, or took too long, is an answer with an error."""


class InlineCallExecutor:
    """One call after the other, in the task's own thread. Functions must be plain, and no time limit is kept."""

    def ask(self, question: ExternalCall, rows: Sequence[tuple[Any, ...]]) -> list[CallResult]:
        """One answer per row."""
        return [_called(question.fn, row) for row in rows]


def _called(fn: Callable[..., Any], row: tuple[Any, ...]) -> CallResult:
    try:
        return CallResult(fn(*row))
    except Exception as exc:
        return CallResult(None, f"{type(exc).__name__}: {exc}")


class ExternalCalls:
    """The questions of one task. ``replayed``: the answers to give instead of asking; ``None`` live. ``positions``: what
    the task has taken of its inputs."""

    def __init__(
        self,
        asker: CallExecutor,
        positions: Callable[[], dict[str, int]],
        note: Callable[[Answers], None],
        replayed: Iterable[Answers] | None,
    ) -> None:
        self._asker = asker
        self._positions = positions
        self._note = note
        self._script: dict[str, deque[bytes]] | None = None if replayed is None else {}
        """The answers that were read and not given yet: as many as operators are apart."""
        self._more = iter(replayed or ())
        self.noted_bytes = 0
        """Size of the answers since the last commit."""

    def ask(self, operator: str, question: ExternalCall, rows: Sequence[tuple[Any, ...]]) -> list[CallResult]:
        """The answers for the rows of one operator."""
        if self._script is not None:
            return [_decoded(question, self._next(operator)) for _ in rows]
        answers = self._asker.ask(question, rows)
        encoded = [_encoded(question, a) for a in answers]
        self._note(Answers(self._positions(), operator, encoded))
        self.noted_bytes += sum(map(len, encoded))
        # as a replay will read them: what the log gives back is what everybody goes on with
        return [_decoded(question, data) for data in encoded]

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


def _encoded(question: ExternalCall, answer: CallResult) -> bytes:
    if answer.error is not None:
        return b"\x02" + answer.error.encode()
    if answer.value is None:
        return b"\x00"
    try:
        return b"\x01" + question.serde.serialize(answer.value)
    except Exception as exc:
        return b"\x02" + f"serde {question.serde.name} cannot write the answer {answer.value!r:.100} ({exc})".encode()


def _decoded(question: ExternalCall, data: bytes) -> CallResult:
    if data[0] == 2:
        return CallResult(None, data[1:].decode())
    return CallResult(None) if data[0] == 0 else CallResult(question.serde.deserialize(data[1:]))
