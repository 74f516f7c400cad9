"""The common part of ``consume`` and ``tail``: their options, and printing records until the requested end."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.streams.cli.client_options import add_client_options, cluster_of
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


def add_printing_options(parser: argparse.ArgumentParser, default_format: str, json_help: str) -> None:
    """Add where to begin and stop, the types, how to show a record, and which cluster."""
    add_start_options(parser)
    add_type_options(parser)
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument(
        "--format",
        default=default_format,
        metavar="TEXT",
        help=f"of one line, with {', '.join(f'{{{name}}}' for name in FIELDS)}, \\t and \\n (default: {default_format})",
    )
    shown.add_argument("--json", action="store_true", help=json_help)
    add_client_options(parser)


def print_records(
    args: argparse.Namespace, topics: Sequence[str], *, in_order: bool = False, colour: bool = False
) -> int:
    """Print until the requested end, ``in_order`` of the timestamps; returns 1 if something could not be read."""
    from penstock.streams.kafka.follow import follow

    template = None if args.json else check_format(args.format)
    lines = RecordLines(lambda topic: types_of(args, topic), template, colour=colour)
    for topic in topics:
        types_of(args, topic)
    start = start_of(args)

    def write(records: list[FoundRecord]) -> None:
        sys.stdout.write("".join(lines.line(record) + "\n" for record in records))
        sys.stdout.flush()

    servers, client = cluster_of(args)
    follow(
        servers,
        client,
        topics,
        write,
        start=start,
        in_order=in_order,
        max_messages=args.max_messages,
        timeout_s=args.timeout,
    )
    return report_failures(lines)
