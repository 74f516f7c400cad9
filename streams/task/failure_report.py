"""The report of a record that failed: the message that stops a task, and the headers of a dead letter.

Both name the record, the operator and the line where it was declared, and the user's lines of the traceback. Pure.
"""

from __future__ import annotations

import dataclasses
from typing import Final, Literal

from penstock.state.log import Headers, TaskId, TopicPartition
from penstock.topologies.graph.source_lines import raised_at
from penstock.topologies.operator_api.operator import CallFailedError

FailureKind = Literal["deserialization", "processing", "timestamp"]
"""Which of the policies decides."""
SHOWN_BYTES: Final = 200
"""How much of a key or value a message shows."""
ERROR_CHARACTERS: Final = 1000
"""How much of an error a dead letter's header holds."""
_CORRECTED: Final[dict[FailureKind, str]] = {
    "deserialization": "Correct the serde or the record",
    "processing": "Correct the function or the record",
    "timestamp": "Correct the record's timestamp",
}


class Origin:
    """The input record behind a place of the batch, with its original bytes."""

    __slots__ = ("headers", "key", "offset", "partition", "timestamp_ms", "value")

    def __init__(
        self,
        partition: TopicPartition,
        offset: int,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        headers: Headers,
    ) -> None:
        self.partition = partition
        self.offset = offset
        self.key = key
        self.value = value
        self.timestamp_ms = timestamp_ms
        self.headers = headers


@dataclasses.dataclass(frozen=True)
class Failure:
    """A failure and its operator. ``kind``: the policy that decides. ``may_skip``: whether a policy may skip
    it; an operator that has done half of its work cannot continue without the rest. ``own_policy``: the operator's own one
    decides, not the application's."""

    kind: FailureKind
    operator: str
    problem: str
    error: Exception | None = None
    may_skip: bool = True
    own_policy: bool = False


def stop_message(task: TaskId, failure: Failure, origin: Origin | None, declared: str | None) -> str:
    """Why a task stopped: first what was seen, then where, then what to do. ``declared``: the operator's line, if
    known."""
    where = "a record that a wall-clock timer or the commit emitted"
    if origin is not None:
        topic, partition = origin.partition
        where = f"topic {topic}, partition {partition}, offset {origin.offset}"
    lines = [f"task {task} stopped at {where}, operator {failure.operator}: {failure.problem}"]
    lines += [f"  raised at {line}" for line in _frames(failure)]
    if declared is not None:
        lines.append(f"  operator {failure.operator} is declared at {declared}")
    if origin is not None:
        lines.append(f"  record: key {shortened(origin.key)}, value {shortened(origin.value)}")
    lines.append(f"Nothing from that record on is committed. {_advice(failure)}")
    return "\n".join(lines)


def letter_headers(failure: Failure, origin: Origin | None, declared: str | None) -> Headers:
    """The headers of a dead letter: the record's own, then what failed and where."""
    headers: list[tuple[str, bytes | None]] = [] if origin is None else list(origin.headers)
    headers.append(("penstock.error", failure.problem[:ERROR_CHARACTERS].encode(errors="backslashreplace")))
    headers.append(("penstock.operator", failure.operator.encode()))
    if declared is not None:
        headers.append(("penstock.declared", declared.encode(errors="backslashreplace")))
    if frames := _frames(failure):
        headers.append(("penstock.traceback", "\n".join(frames).encode(errors="backslashreplace")))
    if origin is not None:
        headers.append(("penstock.topic", origin.partition.topic.encode()))
        headers.append(("penstock.partition", str(origin.partition.partition).encode()))
        headers.append(("penstock.offset", str(origin.offset).encode()))
    return tuple(headers)


def shortened(data: bytes | None) -> str:
    """A key or value for a message: text if it is UTF-8, else bytes as Python writes them, cut to ``SHOWN_BYTES``."""
    if data is None:
        return "null"
    shown = data[:SHOWN_BYTES]
    try:
        text = repr(shown.decode())
    except UnicodeDecodeError:
        text = repr(shown)
    return text if len(data) <= SHOWN_BYTES else f"{text}… ({len(data)} bytes)"


def _frames(failure: Failure) -> list[str]:
    if isinstance(failure.error, CallFailedError):
        return list(failure.error.lines)
    return [] if failure.error is None else [str(line) for line in raised_at(failure.error)]


def _advice(failure: Failure) -> str:
    corrected = _CORRECTED[failure.kind]
    if not failure.may_skip:
        return f"{corrected}; the operator cannot go on without it, so no policy skips it"
    if failure.own_policy:
        return (
            f"{corrected}, or give this operator another on_error; a table over its own topic has only fail, one of "
            "builder.stream(…).to_table() any"
        )
    return (
        f'{corrected}, or set {failure.kind} = "skip" or "dead_letter" under [penstock.policies] in the settings file '
        f"(in code: Policies({failure.kind}=…))"
    )
