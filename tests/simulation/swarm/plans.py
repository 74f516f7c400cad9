"""What a seed stands for: a program, its workers, and the list of faults. Nothing is drawn later that a fault could
move, so that a list of faults can be shortened and run again."""

from __future__ import annotations

import dataclasses
import random
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
    "switch",
    "elect",
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
PROGRAMS = ("counts", "counts", "balances", "joined", "regions", "windows", "ticking", "stateless")


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
    those of the clock, not long ago."""

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
    faults: tuple[Fault, ...]
    events: int = EVENTS

    def without_most(self, faults: tuple[Fault, ...]) -> Plan:
        """The same run with these faults only."""
        return dataclasses.replace(self, faults=faults)


def plan_of(seed: int, events: int = EVENTS) -> Plan:
    """The run of a seed."""
    rng = random.Random(f"plan {seed}")
    form: Form = "fixed" if rng.random() < 0.3 else "group"
    partitions = rng.choice((1, 2, 2, 3))
    plan = Plan(
        seed,
        rng.choice(PROGRAMS),
        rng.choice(("exactly_once", "exactly_once", "at_least_once")),
        form,
        rng.randint(1, partitions if form == "fixed" else 4),
        partitions,
        rng.choice((120, 200, 300)),
        rng.choice((0, 0, 2, 5)),
        rng.random() < 0.5,
        rng.random() < 0.5,
        rng.choice((0, 0, 1, 1_000, 1_000)),
        form == "group" and rng.random() < 0.25,
        (),
        events,
    )
    return plan.without_most(_faults_of(plan, rng))


def _faults_of(plan: Plan, rng: random.Random) -> tuple[Fault, ...]:
    kinds: list[Kind] = [
        "kill",
        "power_cut",
        "freeze",
        "freeze",
        "answer",
        "answer",
        "outage",
        "compact",
        "damage",
        "elect",
    ]
    if plan.guarantee == "exactly_once":
        kinds.append("late_commit")
    kinds += ["join", "leave"] if plan.form == "group" else ["twin"]
    if plan.epochs_grow:
        kinds.append("epoch")
    enabled = sorted({k for k in kinds if rng.random() < 0.5}) or [rng.choice(kinds)]
    weights = [rng.random() ** 2 + 0.02 for _ in enabled]
    places = rng.sample(PLACES, rng.randint(2, 6))
    count = rng.randint(2, 24)
    faults = [_fault(rng.choices(enabled, weights)[0], plan, places, rng) for _ in range(count)]
    for _ in range(rng.choice((0, 0, 1, 1, 2))):
        faults += _story(plan, rng)
    if plan.form == "fixed" and rng.random() < 0.3:
        faults.append(Fault("switch", rng.randint(plan.events // 4, plan.events * 3 // 4), ms=rng.choice(TIMES_MS[3:])))
    if plan.program != "stateless" and rng.random() < 0.12:
        last: Kind = rng.choice(("truncate", "rewrite", "make_again"))
        faults.append(Fault(last, plan.events, who=rng.randrange(8), nth=rng.randint(1, 6)))
    return tuple(sorted(faults, key=lambda f: f.at))


def _story(plan: Plan, rng: random.Random) -> list[Fault]:
    """Faults that do harm together, and seldom come together by chance."""
    at, who = rng.randrange(plan.events // 8, plan.events * 3 // 4), rng.randrange(4)
    other: Kind = "join" if plan.form == "group" else "twin"
    cleaned = [Fault("compact", at + after) for after in (30, 80, 105, 115, 200)]
    held_ms = rng.choice(TIMES_MS[4:])
    stories = [
        # held up over the age of deletions, or in the middle of a restore, while others go on and the log is cleaned
        [
            Fault("freeze", at, who, rng.choice(("between", "poll", "restore")), 1, held_ms),
            Fault(other, at, who),
            *cleaned,
        ],
        # gone, and gone again in the middle of the restore: each time for less than deletions are kept
        [
            Fault("kill", at, who, "between", 1, 8_000),
            Fault(other, at, who),
            Fault("kill", at, who, "restore", 1, 8_000),
            *(Fault("compact", at + after) for after in (50, 150, 300, 700, 740, 780)),
        ],
        # a changelog that loses its end while a commit is under way
        [Fault("elect", at), Fault("freeze", at, who, "flush", 1, held_ms), Fault("elect", at + 20)],
    ]
    if plan.guarantee == "at_least_once":
        places = ("flush", "step:sent", "step:flushed", "consumer_commit_before")
        # what was never committed lies in the log, and whoever comes next has no state
        stories += 2 * [[Fault("kill", at, who, rng.choice(places), 1, 40_000), Fault(other, at, who), *cleaned]]
        stories.append([Fault("freeze", at, who, rng.choice(places), 1, held_ms), Fault(other, at, who), *cleaned])
        # gone in the very first commit, before any position was committed
        stories.append([Fault("kill", 1, w, rng.choice(places[1:3]), 1, 40_000) for w in range(4)])
    else:
        # a commit of which nobody knows, and another worker before the question is answered
        lost = Fault("answer", at, who, rng.choice(("commit_before", "commit_after")), 1, error="unknown")
        if rng.random() < 0.5:
            lost = Fault("late_commit", at, who, "commit_before", 1, held_ms // 2)
        asking = Fault("freeze", at, who, rng.choice(("init", "committed")), 1, held_ms)
        stories += 2 * [[lost, asking, Fault(other, at, who)]]
    return rng.choice(stories)


def _fault(kind: Kind, plan: Plan, places: list[str], rng: random.Random) -> Fault:
    at, who, ms = rng.randrange(plan.events), rng.randrange(4), rng.choice(TIMES_MS)
    if kind in ("kill", "power_cut", "freeze"):
        place, nth = rng.choice(places), rng.randint(1, 4)
        lost = kind == "freeze" and place in ERRORS and rng.random() < 0.5
        return Fault(kind, at, who, place, nth, ms, rng.choice(ERRORS[place]) if lost else "")
    if kind == "answer":
        point = rng.choice(sorted(ERRORS))
        return Fault(kind, at, who, point, rng.randint(1, 3), error=rng.choice(ERRORS[point]))
    if kind == "late_commit":
        return Fault(kind, at, who, "commit_before", 1, rng.choice((40, 200, 1_000, 6_000)))
    return Fault(kind, at, who, nth=rng.randint(1, 40), ms=ms)
