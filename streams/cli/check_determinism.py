"""``penstock check-determinism``: whether a topology gives the same answer however it is run."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from penstock.streams.cli.client_options import add_topology
from penstock.streams.cli.counts import counted


def register(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "check-determinism",
        help="run a topology several ways over the same records and compare",
        description="Run a topology over the same records with other hash seeds, batch sizes and restarts, watch what its "
        "operators touch, and name those whose answer depends on more than the records: clocks, randomness, files, "
        "sockets, the order of sets, state outside of stores.",
    )
    add_topology(parser)
    parser.add_argument(
        "records",
        metavar="RECORDS",
        help='JSON lines in the order of processing: {"topic": …, "key": …, "value": …, "timestamp_ms": …}',
    )
    parser.add_argument("--partitions", type=int, default=1, metavar="N", help="partitions of every topic (default: 1)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Check; 1 when something was found."""
    from penstock.streams.determinism.check import check, read_records
    from penstock.streams.topology_loading import load_topology

    topology = load_topology(args.topology)
    path = Path(args.records)
    count = len(read_records(path))
    findings, traces = check(args.topology, topology, path, count, args.partitions)
    for finding in dict.fromkeys(findings):
        print(f"{finding.operator}: {finding.problem}")
    if findings:
        return 1
    print(
        f"deterministic: {counted(len(topology.operators), 'operator')} gave the same in {len(traces)} runs of "
        f"{counted(count, 'record')} (other hash seeds, batch sizes and restarts), and touched nothing outside"
    )
    return 0
