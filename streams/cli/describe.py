"""``penstock describe``: a topology as text or as a Mermaid chart."""

from __future__ import annotations

import argparse
from typing import Any


def register(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser("describe", help="print a topology as text, or as a Mermaid chart")
    parser.add_argument("topology", metavar="MODULE:TOPOLOGY")
    parser.add_argument("--mermaid", action="store_true", help="a Mermaid flowchart instead of text")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print it."""
    from penstock.streams.loading import load_topology

    topology = load_topology(args.topology)
    print(topology.mermaid() if args.mermaid else topology.describe())
    return 0
