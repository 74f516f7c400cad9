"""``penstock consume``: print the records of a topic, with their types."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from penstock.streams.cli.client_options import add_client_options, bootstrap_servers, client_config
from penstock.streams.cli.record_lines import (
    FIELDS,
    RecordLines,
    add_start_options,
    check_format,
    report_failures,
    start_of,
)
from penstock.streams.cli.topic_types import add_type_options, types_of

if TYPE_CHECKING:
    from penstock.streams.kafka.follow import FoundRecord


def register(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser("consume", help="print the records of a topic")
    parser.add_argument("topic", help="it must exist")
    add_start_options(parser)
    add_type_options(parser)
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument(
        "--format",
        default="{value}",
        metavar="TEXT",
        help=f"of one line, with {', '.join(f'{{{name}}}' for name in FIELDS)}, \\t and \\n (default: {{value}})",
    )
    shown.add_argument("--json", action="store_true", help="one JSON object per record, which produce --json takes")
    add_client_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print until the requested end; returns 1 if something could not be read."""
    from penstock.streams.kafka.follow import follow

    lines = RecordLines(lambda topic: types_of(args, topic), None if args.json else check_format(args.format))
    types_of(args, args.topic)
    start = start_of(args)

    def write(records: list[FoundRecord]) -> None:
        sys.stdout.write("".join(lines.line(record) + "\n" for record in records))
        sys.stdout.flush()

    follow(
        bootstrap_servers(args),
        client_config(args),
        [args.topic],
        write,
        start=start,
        max_messages=args.max_messages,
        timeout_s=args.timeout,
    )
    return report_failures(lines)
