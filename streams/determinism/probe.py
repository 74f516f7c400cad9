"""One run of a check, as a process: ``python -m penstock.streams.determinism.probe TOPOLOGY RECORDS PLAN PARTITIONS``.
Prints its trace as the last line of its output."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from penstock.state.errors import PenstockError
from penstock.streams.determinism.check import read_records
from penstock.streams.determinism.trace import RunPlan, run
from penstock.streams.topology_loading import load_topology


def main(topology: str, records: str, plan: str, partitions: str) -> None:
    """Run it."""
    trace = run(
        load_topology(topology),
        read_records(Path(records)),
        msgspec.json.decode(plan, type=RunPlan),
        int(partitions),
    )
    sys.stdout.write("\n" + msgspec.json.encode(trace).decode() + "\n")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except PenstockError as exc:
        sys.exit(str(exc))
