"""``penstock tail``: follow several topics, in the order of their records' timestamps."""

from __future__ import annotations

import argparse
from typing import Any

from penstock.streams.cli.record_lines import coloured
from penstock.streams.cli.record_printing import add_printing_options, print_records

DEFAULT_FORMAT = "{time} {topic}[{partition}]@{offset} {key} {value}"


def register(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser("tail", help="follow several topics in the order of their records' timestamps")
    parser.add_argument("topics", nargs="+", metavar="TOPIC", help="they must exist")
    add_printing_options(parser, DEFAULT_FORMAT, "one JSON object per record")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print until the requested end; returns 1 if something could not be read."""
    return print_records(args, list(dict.fromkeys(args.topics)), in_order=True, colour=coloured())
