"""``penstock tail``: follow several topics, in the order of their records' timestamps."""

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
    coloured,
    report_failures,
    start_of,
)
from penstock.streams.cli.topic_types import add_type_options, types_of

if TYPE_CHECKING:
    from penstock.streams.kafka.follow import FoundRecord

DEFAULT_FORMAT = "{time} {topic}[{partition}]@{offset} {key} {value}"


def register(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser("tail", help="follow several topics in the order of their records' timestamps")
    parser.add_argument("topics", nargs="+", metavar="TOPIC", help="they must exist")
    add_start_options(parser)
    add_type_options(parser)
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument(
        "--format",
        default=DEFAULT_FORMAT,
        metavar="TEXT",
        help=f"of one line, with {', '.join(f'{{{name}}}' for name in FIELDS)} (default: {DEFAULT_FORMAT})",
    )
    shown.add_argument("--json", action="store_true", help="one JSON object per record")
    add_client_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print until the requested end; returns 1 if something could not be read."""
    from penstock.streams.kafka.follow import follow

    template = None if args.json else check_format(args.format)
    lines = RecordLines(lambda topic: types_of(args, topic), template, colour=coloured())
    topics = list(dict.fromkeys(args.topics))
    for topic in topics:
        types_of(args, topic)
    start = start_of(args)

    def write(records: list[FoundRecord]) -> None:
        sys.stdout.write("".join(lines.line(record) + "\n" for record in records))
        sys.stdout.flush()

    follow(
        bootstrap_servers(args),
        client_config(args),
        topics,
        write,
        start=start,
        in_order=True,
        max_messages=args.max_messages,
        timeout_s=args.timeout,
    )
    return report_failures(lines)
