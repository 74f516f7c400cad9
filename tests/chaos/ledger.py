"""The ledger: one row for each guarantee of each ``make chaos``, and the sums of all rows above them."""

from __future__ import annotations

import datetime
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.chaos.random_run import RunResult

LEDGER = Path(__file__).with_name("LEDGER.md")
NUMBERS = (
    "runs",
    "kills",
    "freezes",
    "proxy faults",
    "broker kills",
    "results",
    "lost",
    "doubled",
    "torn",
    "regressions",
    "stale",
    "not converged",
    "needless full restores",
)
COLUMNS = ("date", "commit", "guarantee", "seeds", *NUMBERS)
BEGIN, END = "<!-- rows -->", "<!-- end of rows -->"
SUMS_BEGIN, SUMS_END = "<!-- sums -->", "<!-- end of sums -->"


def row_of(results: Sequence[RunResult]) -> dict[str, str]:
    """The row of some runs of one guarantee."""
    faults: Counter[str] = sum((r.faults for r in results), Counter())
    verdicts = [r.verdict for r in results]
    numbers = {
        "runs": len(results),
        "kills": faults["kill"],
        "freezes": faults["freeze"],
        "proxy faults": faults["proxy"],
        "broker kills": faults["broker"],
        "not converged": sum(r.converged_s is None for r in results),
        "needless full restores": sum(len(r.needless) for r in results),
    }
    for name in ("results", "lost", "doubled", "torn", "regressions", "stale"):
        numbers[name] = sum(getattr(v, name) for v in verdicts)
    seeds = sorted(r.seed for r in results)
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M"),
        "commit": commit(),
        "guarantee": results[0].guarantee,
        "seeds": f"{seeds[0]}–{seeds[-1]}" if len(seeds) > 1 else str(seeds[0]),
        **{name: str(numbers[name]) for name in NUMBERS},
    }


def rows_in(text: str) -> list[dict[str, str]]:
    """The rows of a ledger."""
    table = text[text.index(BEGIN) + len(BEGIN) : text.index(END)].strip().splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    assert tuple(cells[0]) == COLUMNS, f"the ledger has other columns: {cells[0]}"
    return [dict(zip(COLUMNS, row, strict=True)) for row in cells[2:]]


def with_row(text: str, row: dict[str, str]) -> str:
    """The ledger with one more row and new sums."""
    return written(text, [*rows_in(text), row])


def written(text: str, rows: Sequence[dict[str, str]]) -> str:
    """The ledger with these rows and their sums."""
    sums = []
    for guarantee in sorted({row["guarantee"] for row in rows}, reverse=True):
        mine = [row for row in rows if row["guarantee"] == guarantee]
        sums.append({"guarantee": guarantee} | {name: str(sum(int(r[name]) for r in mine)) for name in NUMBERS})
    text = _between(text, BEGIN, END, table(COLUMNS, rows))
    return _between(text, SUMS_BEGIN, SUMS_END, table(("guarantee", *NUMBERS), sums))


def table(columns: Sequence[str], rows: Sequence[dict[str, str]]) -> str:
    """A table of Markdown."""
    lines = [columns, ["---"] * len(columns), *([row[name] for name in columns] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _between(text: str, begin: str, end: str, what: str) -> str:
    head, _, rest = text.partition(begin)
    return f"{head}{begin}\n{what}\n{end}{rest.partition(end)[2]}"


def commit() -> str:
    """The commit of the tree, with a plus if the engine was changed since."""
    root = Path(__file__).parents[2]
    said = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=root, capture_output=True, text=True, check=True)
    changed = subprocess.run(["git", "diff", "--quiet", "HEAD", "--", "streams", "state", "topologies"], cwd=root)
    return said.stdout.strip() + ("+" if changed.returncode else "")
