"""Faults that do harm together, and seldom come together by chance: the stories of the swarm.

An event is 20 ms while nobody is held up; while somebody is, 120 events pass.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Sequence

from tests.simulation.swarm.faults import ERRORS, TIMES_MS, Fault, Kind, Plan

LAST = -1
"""The worker that came last."""
HELD_EVENTS = 120


@dataclasses.dataclass(frozen=True)
class Scene:
    """When a story begins, and with whom. ``other``: how another worker comes to the tasks of this one."""

    plan: Plan
    rng: random.Random
    at: int
    who: int
    other: Kind
    held_ms: int

    def cleaned(self, *after: int) -> list[Fault]:
        """The log is cleaned after so many events."""
        return [Fault("compact", self.at + events) for events in after]

    def comes(self, after: int = 0) -> Fault:
        """Another worker."""
        return Fault(self.other, self.at + after, self.who)

    def frozen(self, place: str, ms: int, error: str = "") -> Fault:
        """The worker stands still there."""
        return Fault("freeze", self.at, self.who, place, 1, ms, error)

    def killed(self, place: str, ms: int) -> Fault:
        """The worker is gone for so long."""
        return Fault("kill", self.at, self.who, place, 1, ms)


@dataclasses.dataclass(frozen=True)
class Story:
    """``tell`` gives the faults. ``needs``: what the plan must be for it; ``share``: the part of the run after which it may
    not begin."""

    tell: Callable[[Scene], list[Fault]]
    needs: dict[str, object]
    share: float = 0.75

    def fits(self, plan: Plan) -> bool:
        """Whether a plan is as it must be."""
        return all(getattr(plan, name) == value for name, value in self.needs.items())


def _old_after_a_freeze(s: Scene) -> list[Fault]:
    """Held up for longer than deletions are kept, while others go on and the log is cleaned."""
    place = s.rng.choice(("between", "poll", "restore"))
    ms = s.rng.choice((20_000, 40_000))
    leaves = [Fault("leave", s.at + HELD_EVENTS + 20, LAST)] if s.rng.random() < 0.5 else []
    return [s.frozen(place, ms), s.comes(), *s.cleaned(12, 24, 60, 84, 105, 115), *leaves]


def _old_after_a_kill(s: Scene) -> list[Fault]:
    """Gone for longer than deletions are kept."""
    leaves = [Fault("leave", s.at + 785, LAST)] if s.other == "join" and s.rng.random() < 0.5 else []
    return [s.killed("between", 16_000), s.comes(), *s.cleaned(60, 190, 640, 700, 760, 795), *leaves]


def _interrupted_restore(s: Scene) -> list[Fault]:
    """Gone, and gone again in the middle of the restore: each time for less than deletions are kept."""
    leaves = [Fault("leave", s.at + 390, LAST)] if s.other == "join" and s.rng.random() < 0.5 else []
    gone = [s.killed("between", 8_000), s.killed("restore", 8_800)]
    return [*gone, s.comes(), *s.cleaned(60, 190, 300, 790, 815, 830), *leaves]


def _behind_the_log(s: Scene) -> list[Fault]:
    """Gone while its windows expire, and their changelog is deleted up to there: for less than deletions are kept."""
    early = dataclasses.replace(s, at=s.rng.randint(40, 150))
    leaves = [Fault("leave", early.at + 390, LAST)] if s.other == "join" and s.rng.random() < 0.5 else []
    return [early.killed("between", 8_000), early.comes(), *leaves]


def _other_leader(s: Scene) -> list[Fault]:
    """A changelog that loses its end while a commit is under way."""
    return [Fault("elect", s.at), s.frozen("flush", s.held_ms), Fault("elect", s.at + 20)]


UNCOMMITTED = ("flush", "step:sent", "step:flushed", "consumer_commit_before")


def _tail(s: Scene) -> list[Fault]:
    """What was never committed lies in the log, and whoever comes next has no state."""
    return [s.killed(s.rng.choice(UNCOMMITTED), 40_000), s.comes(), *s.cleaned(30, 80, 105, 115, 200)]


def _late_writes(s: Scene) -> list[Fault]:
    """What was in the client's queue comes after the next owner's."""
    place = s.rng.choice(("flush", "flush", "flush", "step:sent"))
    gone = [Fault("kill", s.at + HELD_EVENTS + s.rng.randint(5, 60), LAST, "between", 1, 16_000)]
    return [s.frozen(place, s.held_ms), s.comes(), *(gone if s.rng.random() < 0.5 else [])]


def _late_writes_at_the_end(s: Scene) -> list[Fault]:
    """The same, when there is nothing more to read."""
    at = int(s.plan.events * s.plan.input_share) - s.rng.randint(10, 110)
    late = dataclasses.replace(s, at=max(at, 1))
    return [late.frozen("flush", s.held_ms), late.comes()]


def _first_commit(s: Scene) -> list[Fault]:
    """Gone in the very first commit, before any position was committed."""
    place = s.rng.choice(UNCOMMITTED[1:3])
    return [Fault("kill", 1, w, place, 1, 40_000) for w in range(4)]


def _lost_answer(s: Scene) -> list[Fault]:
    """A commit of which nobody knows, and another worker before the question is answered."""
    lost = Fault("answer", s.at, s.who, s.rng.choice(("commit_before", "commit_after")), 1, error="unknown")
    if s.rng.random() < 0.5:
        lost = Fault("late_commit", s.at, s.who, "commit_before", 1, s.held_ms // 2)
    asking = s.frozen(s.rng.choice(("init", "committed")), s.held_ms)
    return [lost, asking, s.comes(s.rng.choice((0, 20, 50)))]


def _outrun_between_questions(s: Scene) -> list[Fault]:
    """A commit of which nobody knows is found not to have happened; before the producer is open again another one has it."""
    return [
        s.frozen("commit_before", 11_000, "unknown"),
        s.frozen("init", s.rng.choice((3_500, 6_000))),
        s.comes(HELD_EVENTS + s.rng.randint(30, 80)),
    ]


def _must_give_way(s: Scene) -> list[Fault]:
    """Held up in a request that fails, while another worker is started for the same partitions."""
    place = s.rng.choice(("send", "flush", "send_offsets", "commit_before"))
    errors = [e for e in ERRORS[place] if e != "retriable"]
    return [s.frozen(place, s.held_ms, s.rng.choice(errors)), s.comes(s.rng.randint(5, 60))]


def _failed_revocation(s: Scene) -> list[Fault]:
    """The commit with which tasks are given up fails."""
    faults = []
    for after, kind in ((0, "join"), (60, "leave"), (120, "join")):
        point = s.rng.choice(("send", "flush", "send_offsets", "commit_before"))
        error = s.rng.choice(("retriable", *ERRORS[point]))
        for who in range(s.plan.workers):
            faults.append(Fault("answer", s.at + after, who, f"revoke:{point}", 1, error=error))
        faults.append(Fault("join" if kind == "join" else "leave", s.at + after, LAST))
    return faults


def _zombie(s: Scene) -> list[Fault]:
    """Held up in a commit for longer than the session and less than the transaction's time-out."""
    place = s.rng.choice(("flush", "step:sent", "step:flushed", "send_offsets"))
    return [s.frozen(place, s.rng.choice((3_500, 6_000, 8_000))), s.comes(s.rng.choice((0, 10)))]


AGED = {"guarantee": "exactly_once", "program": "balances", "input_share": 0.95}
STORIES: Sequence[Story] = (
    Story(_old_after_a_freeze, {**AGED, "form": "group"}),
    Story(_old_after_a_kill, AGED, 0.5),
    Story(_interrupted_restore, {**AGED, "restored_share": 0.1}, 0.5),
    Story(_interrupted_restore, {**AGED, "restored_share": 0.1}, 0.5),
    Story(_behind_the_log, {"program": "windows", "records": 300, "input_share": 0.25}),
    Story(_other_leader, {}),
    Story(_tail, {"guarantee": "at_least_once"}),
    Story(_late_writes, {"guarantee": "at_least_once", "queue_max_records": 1_000}),
    Story(_late_writes_at_the_end, {"guarantee": "at_least_once", "queue_max_records": 1_000}),
    Story(_first_commit, {"guarantee": "at_least_once"}),
    Story(_lost_answer, {"guarantee": "exactly_once"}),
    Story(_outrun_between_questions, {"guarantee": "exactly_once", "form": "fixed"}),
    Story(_must_give_way, {"form": "fixed"}),
    Story(_failed_revocation, {"form": "group"}),
    Story(_zombie, {"guarantee": "exactly_once", "form": "group", "named": False}),
)


def scene(story: Story, plan: Plan, rng: random.Random) -> Scene:
    """Where a story begins."""
    at, who = rng.randrange(plan.events // 8, int(plan.events * story.share)), rng.randrange(plan.workers)
    return Scene(plan, rng, at, who, "join" if plan.form == "group" else "twin", rng.choice(TIMES_MS[4:]))


def snapshot_faults(plan: Plan, rng: random.Random) -> list[Fault]:
    """Snapshots are made now and then; where a plan allows it, at a moment from which they may not be used for long."""
    if plan.program == "stateless" or rng.random() < 0.4:
        return []
    faults = [Fault("snapshot", rng.randrange(plan.events), nth=rng.randint(1, 9)) for _ in range(rng.randint(1, 3))]
    if plan.form == "group" and plan.program == "balances" and rng.random() < 0.5:
        at = rng.randrange(plan.events // 8, plan.events // 2)
        faults = [Fault("snapshot", at), Fault("join", at + 800), Fault("leave", at + 960)]
        faults += [Fault("compact", at + after) for after in (60, 120, 700, 760, 795)]
    elif plan.guarantee == "at_least_once" and rng.random() < 0.5:
        at = rng.randrange(plan.events // 8, int(plan.events * 0.75))
        faults += [Fault("kill", at, w, rng.choice(UNCOMMITTED), 1, 16_000) for w in range(plan.workers)]
        faults += [Fault("snapshot", at + 30), Fault("join" if plan.form == "group" else "twin", at + 40)]
    return faults
