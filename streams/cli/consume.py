"""``penstock consume``: print the records of a topic, with their types."""

from __future__ import annotations

import argparse
from typing import Any

from penstock.streams.cli.record_printing import add_printing_options, print_records


def register(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser("consume", help="print the records of a topic")
    parser.add_argument("topic", help="it must exist")
    add_printing_options(parser, "{value}", "one JSON object per record, which produce --json takes")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print until the requested end; returns 1 if something could not be read."""
    return print_records(args, [args.topic])
