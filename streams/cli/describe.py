"""``penstock describe``: a topology as text or as a Mermaid chart, or how its operators run."""

from __future__ import annotations

import argparse
from typing import Any

from penstock.streams.cli.client_options import add_topology


def register(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "describe", help="print a topology as text, as a Mermaid chart, or (--plan) how it runs"
    )
    add_topology(parser)
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--mermaid", action="store_true", help="a Mermaid flowchart instead of text")
    shown.add_argument(
        "--plan", action="store_true", help="which operators run on columns, which on rows and why, and what is decoded"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print it."""
    from penstock.streams.topology_loading import load_topology

    topology = load_topology(args.topology)
    print(topology.mermaid() if args.mermaid else topology.describe(plan=args.plan))
    return 0
