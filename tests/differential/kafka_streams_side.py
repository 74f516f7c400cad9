"""Kafka Streams as the system that Penstock is compared with."""

from __future__ import annotations

from typing import Any

from tests.conformance.compare import plain
from tests.differential.functions import in_words
from tests.differential.inputs import Run, random_run
from tests.differential.judge import System
from tests.differential.kinds import aggregates, composed, joins, more_tables, processors, stateless, tables
from tests.differential.kinds.kind import KINDS
from tests.differential.known import DEPARTURES, PENDING
from tests.differential.outcomes import Outcome
from tests.differential.penstock_side import play

FAMILIES = (stateless, aggregates, joins, tables, more_tables, processors, composed)
"""The modules that add kinds when they are imported."""


def runs_of(kind: str, seeds: range) -> list[Run]:
    """The runs of a kind."""
    return [random_run(KINDS[kind], seed) for seed in seeds]


def _question(run: Run) -> dict[str, Any]:
    return {"nodes": run.nodes, "input": run.input, "stores": run.stores}


def case_of(run: Run, theirs: Outcome) -> dict[str, Any]:
    """A run as a conformance case that expects what Kafka Streams put out. The format has no processors and no emission
    per commit: cases with them are read by this folder alone."""
    checks = [
        {"after": index + 1, "sink": sink, "match": "sequence", "records": plain(rows)}
        for index, step in enumerate(theirs.steps)
        for sink, rows in {**{n["name"]: [] for n in run.nodes if n["op"] == "sink"}, **step}.items()
    ]
    return {
        "id": f"differential.{run.kind}.{run.seed}",
        "group": "differential",
        "kind": "dataflow",
        "portability": "portable",
        "mode": "per_record",
        "topology": {"nodes": in_words(run.nodes)},
        "input": run.input,
        "expected": checks,
    }


KAFKA_STREAMS = System(
    name="Kafka Streams",
    project="kafka_streams",
    kinds=tuple(KINDS),
    runs_of=runs_of,
    question=_question,
    play=lambda run: play(run.nodes, run.input),
    case=case_of,
    departures=DEPARTURES,
    pending=PENDING,
)
