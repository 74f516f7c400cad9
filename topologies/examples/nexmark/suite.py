"""All queries of Nexmark by name, for callers that run them one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.topologies.examples.nexmark import aggregates, joins, records, windows
from penstock.topologies.graph.topology import Topology

QUERIES: Mapping[str, Callable[..., Topology]] = {
    "q0": records.q0,
    "q1": records.q1,
    "q2": records.q2,
    "q3": joins.q3,
    "q4": aggregates.q4,
    "q5": windows.q5,
    "q6": aggregates.q6,
    "q7": windows.q7,
    "q8": joins.q8,
    "q9": joins.q9,
    "q10": records.q10,
    "q11": windows.q11,
    "q12": windows.q12,
    "q13": joins.q13,
    "q14": records.q14,
    "q15": aggregates.q15,
    "q16": aggregates.q16,
    "q17": aggregates.q17,
    "q18": aggregates.q18,
    "q19": aggregates.q19,
    "q20": joins.q20,
    "q21": records.q21,
    "q22": records.q22,
}
UPDATED = frozenset({"q4", "q6", "q9", "q15", "q16", "q17", "q18", "q19"})
"""Queries whose results are kept up to date; their functions take the ``emission``."""
