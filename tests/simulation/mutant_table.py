"""What the swarm found of the planted faults, as a page."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

SEEN_CHARS = 100
LEFT_OUT = {
    "an old proof counts for new tasks": "A proof is older than the restore of a task that came after it. So the store is "
    "given an age that is too high, and is at worst restored without need.",
    "a cancelled restore still runs": "A task that is not assigned does not take its result. One that is assigned again has "
    "asked for another restore, which replaces it.",
}
"""Lines without which nothing goes wrong, since others see to it; and why."""


@dataclasses.dataclass(frozen=True)
class Found:
    """``home``: where the fault was planted; ``seed``: one that finds it, after so many ``events`` of its run, or
    ``None``: it survives."""

    name: str
    home: str
    seed: int | None
    events: int
    wrong: str


def row(found: Found) -> str:
    """One line of the table."""
    seen = found.wrong.removeprefix("Violation: ").replace("|", "/").replace("`", "'")
    if len(seen) > SEEN_CHARS:
        seen = seen[:SEEN_CHARS].rpartition(" ")[0] + " …"
    result = ["**none**", "", ""] if found.seed is None else [str(found.seed), str(found.events), f"`{seen}`"]
    return f"| {' | '.join([found.name, f'`{found.home}`', *result])} |"


def page(found: Sequence[Found], seeds: int) -> str:
    """The document."""
    survived = sum(f.seed is None for f in found)
    rows = "\n".join(map(row, found))
    left_out = "\n".join(f"- {name}: {why}" for name, why in LEFT_OUT.items())
    return f"""# Planted faults

`make mutants` writes this page. {len(found)} faults were planted one at a time: in the protocol, in restores, and in the
assignment of tasks. The first {seeds} seeds of the swarm (`tests/simulation/swarm/`) looked for each, beginning with the one
that found it before. The table says which seed finds it, after how many events of its run, and what was seen. Found by
no seed: {survived}.

| fault | planted in | seed | events | seen |
| --- | --- | --- | --- | --- |
{rows}

Not planted, because nothing goes wrong without these lines alone:

{left_out}
"""
