"""The constants of the queries, as in the two published benchmarks: the arguments of the query functions.

    windows.q5(**BEAM["q5"])

Without arguments, a query has those of nexmark/nexmark. A query that is not listed has the same constants in both.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

Arguments = Mapping[str, Mapping[str, Any]]

NEXMARK: Arguments = {
    "q1": {"euros": Decimal("0.908")},
    "q5": {"size": "10s", "slide": "2s"},
    "q13": {"rows": 10_000},
}
"""nexmark/nexmark, for Flink SQL."""
BEAM: Arguments = {
    "q1": {"euros": Decimal("0.89")},
    "q5": {"size": "10s", "slide": "5s"},
    "q13": {"rows": 500},
}
"""Apache Beam's Nexmark in its default configuration. There, query 1 rounds down to whole cents; here it is exact."""
BENCHMARKS: Mapping[str, Arguments] = {"nexmark": NEXMARK, "beam": BEAM}
