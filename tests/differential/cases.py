"""Conformance cases on Kafka Streams itself: whether what a case expects is what it answers.

A case's functions are sent as their Python text, which ``CaseFunctions.java`` knows; a text that it does not know fails.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from tests.conformance.case_format import Case
from tests.conformance.checks import TABLE, stores_of
from tests.conformance.kinds import dataflow
from tests.conformance.scenario import Played
from tests.differential.functions import FUNCTIONS
from tests.differential.inputs import MEMORY, ROCKSDB
from tests.differential.outcomes import Outcome

NAMES = {text: name for name, text in FUNCTIONS.items()}
"""The names of functions that random programs have, too."""


def is_comparable(case: Case) -> bool:
    """Whether Kafka Streams' test driver can play the case: it cannot be restarted."""
    if case.kind != "dataflow" or case.data["source"].get("repo") != "apache/kafka":
        return False
    return all("event" not in entry for entry in case.input)


def question_of(case: Case) -> dict[str, Any]:
    """The case as the other side reads a run."""
    nodes = case.data["topology"]["nodes"]
    return {
        "nodes": _named(nodes),
        "input": case.input,
        # Stores in memory forget windows sooner.
        "stores": ROCKSDB if any("window" in node for node in nodes) else MEMORY,
        "tables": sorted({name for _, name in stores_of(case.expectations())}),
    }


def _named(part: Any) -> Any:
    if isinstance(part, dict):
        return {name: _named(value) for name, value in part.items()}
    if isinstance(part, list):
        return [_named(value) for value in part]
    return NAMES.get(part, part) if isinstance(part, str) else part


def wrong_with(case: Case, answer: Outcome) -> list[str]:
    """What the case expects and Kafka Streams does not answer. How many records it dropped is not asked."""
    expected = [check for check in case.expectations() if "metric" not in check]
    alike = dataclasses.replace(case, data={**case.data, "expected": expected})
    return dataflow.verdict(alike, _played(case, answer))


def _played(case: Case, answer: Outcome) -> Played:
    played = Played()
    for index, step in enumerate(answer.steps):
        for sink, rows in step.items():
            if sink.startswith(TABLE):
                played.stores[index + 1, sink.removeprefix(TABLE)] = rows
            else:
                played.outputs.setdefault(sink, []).extend((index, row) for row in rows)
    if answer.error is not None:
        played.error = (len(answer.steps) + 1, answer.error)
    return played
