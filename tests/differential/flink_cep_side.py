"""FlinkCEP, in the harness of Flink's own tests, as the system that Penstock is compared with."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.differential.inputs import Entry, Run
from tests.differential.judge import System
from tests.differential.kinds.patterns import PATTERNS
from tests.differential.known_patterns import DEPARTURES, PENDING
from tests.differential.outcomes import Outcome
from tests.differential.play_patterns import case_data, play

EVENTS_MAX = 16
KEYS = ("k", "m")


def runs_of(kind: str, seeds: range) -> list[Run]:
    """The runs of a kind."""
    return [_random_run(kind, seed) for seed in seeds]


def _random_run(kind: str, seed: int) -> Run:
    rng = Random(f"{kind} {seed}")
    pattern = PATTERNS[kind](rng)
    return Run(kind, seed, [{"pattern": pattern}], _random_input(rng))


def _random_input(rng: Random) -> list[Entry]:
    """Events of two keys, some out of order, a few behind the watermark; the end of time last."""
    step, disorder, marks = rng.choice((0, 1, 2, 3)), rng.choice((0, 0, 4)), rng.choice((0.1, 0.3, 1.0))
    names = rng.choice(("abc", "abcd", "aabbc", "abbbc"))
    keys = KEYS[: rng.choice((1, 1, 2))]
    entries: list[Entry] = []
    now = watermark = 1
    for number in range(rng.randint(3, EVENTS_MAX)):
        now += rng.randint(0, step)
        key = rng.choice(keys)
        event = {"id": number, "key": key, "name": rng.choice(names), "n": rng.randint(0, 9)}
        entries.append({"event": event, "ts": max(now - rng.randint(0, disorder), 1), "key": key})
        if rng.random() < marks:
            watermark = max(watermark, now - rng.randint(0, 3))
            entries.append({"event": "watermark", "ts": watermark})
    return [*entries, {"event": "watermark", "ts": "max"}]


def case_of(run: Run, theirs: Outcome) -> dict[str, Any]:
    """A run as a conformance case that expects what FlinkCEP put out."""
    found: dict[str, list[Any]] = {"matches": [], "timeouts": [], "late": []}
    for sink, row in theirs.flat():
        found[sink].append(row["v"])
    matches = [[event for events in match.values() for event in events] for match in found["matches"]]
    timeouts = [[event for events in match.values() for event in events] for match in found["timeouts"]]
    return {
        **case_data(run),
        "expected": [{"events": events} for events in matches],
        "expected_timeouts": [{"events": events} for events in timeouts],
        "expected_late": found["late"],
        "expected_by_stage": found["matches"],
    }


FLINK_CEP = System(
    name="FlinkCEP",
    project="flink_cep",
    kinds=tuple(PATTERNS),
    runs_of=runs_of,
    question=lambda run: {"pattern": run.nodes[0]["pattern"], "input": run.input},
    play=play,
    case=case_of,
    departures=DEPARTURES,
    pending=PENDING,
    tail=1,
)
