"""Measurements, taken once per batch and never per record. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias

from penstock.state.log import TaskId


@dataclasses.dataclass(frozen=True, slots=True)
class RecordsConsumed:
    """One poll returned records of a topic. ``size_bytes``: keys and values, estimated if they are objects."""

    topic: str
    records: int
    size_bytes: int


@dataclasses.dataclass(frozen=True, slots=True)
class RecordsProduced:
    """Records were handed to the producer."""

    topic: str
    records: int
    size_bytes: int


@dataclasses.dataclass(frozen=True, slots=True)
class BatchProcessed:
    """A task processed one batch."""

    task: TaskId
    records: int
    seconds: float


@dataclasses.dataclass(frozen=True, slots=True)
class TaskPunctuated:
    """Wall-clock timers or idle sources of a task were due."""

    task: TaskId
    seconds: float


@dataclasses.dataclass(frozen=True, slots=True)
class RecordsVisible:
    """A commit made a task's results visible. ``age_s``: how old the newest record was then, by its timestamp."""

    task: TaskId
    age_s: float


Measurement: TypeAlias = RecordsConsumed | RecordsProduced | BatchProcessed | TaskPunctuated | RecordsVisible


CommitStep = Literal["begun", "prepared", "sent", "flushed", "offsets_added", "committed", "stores_written"]
"""The step that has just been done, in the order of a commit."""


class Metric(NamedTuple):
    """``name`` follows Prometheus: ``…_total`` only grows while a task lives, other values are current ones."""

    name: str
    labels: Mapping[str, str]
    value: float
