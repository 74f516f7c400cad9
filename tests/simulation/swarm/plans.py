"""What a seed stands for: a program, its workers, and the list of faults. Nothing is drawn later that a fault could
move, so that a list of faults can be shortened and run again."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping
from typing import Any

from tests.simulation.swarm.faults import ERRORS, EVENTS, PLACES, TIMES_MS, Fault, Form, Kind, Plan
from tests.simulation.swarm.stories import STORIES, scene, snapshot_faults

PROGRAMS = ("counts", "counts", "balances", "joined", "regions", "windows", "ticking", "stateless")


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
        rng.choice((0.25, 0.6, 0.95)),
        rng.choice((0.1, 0.5, 0.5, 0.9)),
        rng.random() < 0.8,
        (),
        events,
    )
    stories = rng.sample(STORIES, rng.choice((0, 1, 1, 1, 2)))
    if stories:
        plan = _with(plan, stories[0].needs)
    faults = _faults_of(plan, rng, rng.randint(0, 8) if stories else rng.randint(2, 24))
    for story in stories:
        if story.fits(plan):
            faults += story.tell(scene(story, plan, rng))
    faults += snapshot_faults(plan, random.Random(f"snapshots {seed}"))
    plan, twins = _static(plan, random.Random(f"static {seed}"))
    faults += twins
    plan, grown = _incremental(plan, random.Random(f"incremental {seed}"))
    faults += grown
    plan, held = _asked(plan, random.Random(f"asked {seed}"))
    faults += held
    faults += _made_again(plan, random.Random(f"made again {seed}"))
    plan = dataclasses.replace(plan, drift=random.Random(f"drift {seed}").choice((0, 0, 0, 0.0005, 0.02)))
    return plan.without_most(tuple(sorted(faults, key=lambda f: f.at)))


def _with(plan: Plan, needs: Mapping[str, Any]) -> Plan:
    """As a story needs it."""
    plan = dataclasses.replace(plan, **needs)
    if plan.form == "fixed":
        return dataclasses.replace(plan, workers=min(plan.workers, plan.partitions), epochs_grow=False)
    return plan


def _static(plan: Plan, rng: random.Random) -> tuple[Plan, list[Fault]]:
    """Some groups have static members, and some of these have twins."""
    if plan.form == "fixed" or plan.epochs_grow or rng.random() < 0.7:
        return plan, []
    times = [rng.randrange(plan.events) for _ in range(rng.choice((0, 1, 1, 2)))]
    return dataclasses.replace(plan, static=True), [Fault("static_twin", at, rng.randrange(4)) for at in times]


def _incremental(plan: Plan, rng: random.Random) -> tuple[Plan, list[Fault]]:
    """Many groups follow the broker's own protocol. Their epochs grow at times although nothing else changes."""
    if plan.form == "fixed" or rng.random() < 0.52:
        return plan, []
    grown = [Fault("epoch", rng.randrange(plan.events)) for _ in range(rng.choice((0, 2, 6)))]
    return dataclasses.replace(plan, incremental=True, strict_epochs=rng.random() < 0.5), grown


def _asked(plan: Plan, rng: random.Random) -> tuple[Plan, list[Fault]]:
    """Some applications without state ask the world outside, and some of their workers are held up there."""
    if plan.program != "stateless" or rng.random() < 0.4:
        return plan, []
    kinds: list[Kind] = ["kill", "freeze", "freeze"]
    faults = [
        Fault(
            rng.choice(kinds),
            rng.randrange(plan.events // 2),
            rng.randrange(plan.workers),
            rng.choice(("ask", "answered")),
            rng.randint(1, 4),
            rng.choice(TIMES_MS),
        )
        for _ in range(rng.randint(0, 3))
    ]
    return dataclasses.replace(plan, program="asked"), faults


def _made_again(plan: Plan, rng: random.Random) -> list[Fault]:
    """In a few runs a topic is made again in the middle, or a changelog loses its last records. Nobody may survive that: the
    run ends with it."""
    if plan.program in ("stateless", "asked") or rng.random() < 0.93:
        return []
    at, who, ms = rng.randrange(plan.events // 3, plan.events - 50), rng.randrange(8), rng.choice(TIMES_MS[2:5])
    made = Fault("make_again", at + rng.choice((0, 3, 30)), who, nth=rng.randint(1, 2))
    if rng.random() < 0.4:
        return [*(Fault("kill", at, w, "between", 1, ms) for w in range(5)), dataclasses.replace(made, at=at + 40)]
    kind: Kind = rng.choice(("make_again", "make_again", "truncate", "rewrite"))
    made = dataclasses.replace(made, kind=kind, nth=made.nth if kind == "make_again" else rng.randint(1, 6))
    place = rng.choice(("between", "poll", "flush", "commit_before", "step:sent"))
    return [Fault("freeze", at, w, place, 1, ms) for w in range(rng.randint(0, plan.workers))] + [made]


def _faults_of(plan: Plan, rng: random.Random, count: int) -> list[Fault]:
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
    faults = [_fault(rng.choices(enabled, weights)[0], plan, places, rng) for _ in range(count)]
    if plan.form == "fixed" and rng.random() < 0.3:
        faults.append(Fault("switch", rng.randint(plan.events // 4, plan.events * 3 // 4), ms=rng.choice(TIMES_MS[3:])))
    if plan.program != "stateless" and rng.random() < 0.2:
        last: Kind = rng.choice(("truncate", "rewrite", "make_again"))
        faults.append(Fault(last, plan.events, who=rng.randrange(8), nth=rng.randint(1, 6)))
    return faults


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
