"""The faults of the swarm, and what a run is made of."""

from __future__ import annotations

import dataclasses
from typing import Literal

from penstock.streams.runtime.commit_protocol import Guarantee

Kind = Literal[
    "kill",
    "power_cut",
    "freeze",
    "answer",
    "late_commit",
    "outage",
    "compact",
    "damage",
    "join",
    "leave",
    "epoch",
    "twin",
    "static_twin",
    "switch",
    "elect",
    "snapshot",
    "truncate",
    "rewrite",
    "make_again",
]
Form = Literal["group", "fixed"]

EVENTS = 2_000
SENDING = ("send", "flush", "send_offsets", "commit_before")
ERRORS: dict[str, tuple[str, ...]] = {
    "init": ("retriable",),
    "begin": ("retired",),
    "send": ("abortable", "retriable", "retired"),
    "flush": ("abortable", "retriable", "retired"),
    "send_offsets": ("abortable", "retriable", "retired"),
    "commit_before": ("unknown", "unknown", "abortable", "retriable", "retired"),
    "commit_after": ("unknown", "unknown", "unknown"),
    "abort": ("retriable",),
    "committed": ("retriable",),
    "consumer_commit_before": ("retriable",),
    "consumer_commit_after": ("retriable",),
}
"""Which answers each request may get, by the points of the log."""
STEPS = ("begun", "prepared", "sent", "flushed", "offsets_added", "committed", "stores_written")
ASKING = ("init", "committed", "restore")
PLACES = ("between", "poll", *SENDING, *ASKING, "commit_after", "consumer_commit_before", *(f"step:{s}" for s in STEPS))
"""Where a worker may be killed or frozen."""
TIMES_MS = (200, 1_000, 2_000, 3_500, 6_000, 11_000, 16_000, 40_000)
"""Below and above the poll interval (3 s), the transaction's time-out (10 s), and the age of deletions (12 s)."""


@dataclasses.dataclass(frozen=True)
class Fault:
    """``at``: the event from which on it may strike; at the ``nth`` passage of ``place`` by worker ``who``. ``ms``: for how
    long; ``error``: the answer, of a freeze what its request has got meanwhile."""

    kind: Kind
    at: int
    who: int = 0
    place: str = "between"
    nth: int = 1
    ms: int = 0
    error: str = ""


@dataclasses.dataclass(frozen=True)
class Plan:
    """One run. ``late_chunks``: records that were fetched before a pause still come; ``young``: the times of the records are
    those of the clock, not long ago; ``input_share``: the part of the run in which the input comes; ``restored_share``: the
    part of a restore that is written before its middle; ``named``: workers note who they are, and fence those that died;
    ``static``: their memberships are static; ``incremental``: the group follows the broker's own protocol, with
    ``strict_epochs`` as brokers before KIP-1251 had it; ``drift``: how much their clocks run too fast or too slowly at
    most, as a part of the time."""

    seed: int
    program: str
    guarantee: Guarantee
    form: Form
    workers: int
    partitions: int
    records: int
    late_polls: int
    late_chunks: bool
    young: bool
    queue_max_records: int
    epochs_grow: bool
    input_share: float
    restored_share: float
    named: bool
    faults: tuple[Fault, ...]
    events: int = EVENTS
    static: bool = False
    incremental: bool = False
    strict_epochs: bool = False
    drift: float = 0.0

    def without_most(self, faults: tuple[Fault, ...]) -> Plan:
        """The same run with these faults only."""
        return dataclasses.replace(self, faults=faults)
