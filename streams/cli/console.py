"""``penstock produce`` and ``penstock consume``."""

from __future__ import annotations

import argparse
import re
import sys
from typing import TYPE_CHECKING, Any

from penstock.state.errors import SettingsError
from penstock.streams.cli.client_options import above_zero, add_client_options, bootstrap_servers, client_config

if TYPE_CHECKING:
    from penstock.streams.kafka.console import ConsoleRecord

FIELDS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
_ESCAPES = {"\\t": "\t", "\\n": "\n", "\\\\": "\\"}


def register(subparsers: Any) -> None:
    """Add the two commands."""
    produce = subparsers.add_parser("produce", help="write lines of standard input to a topic")
    produce.add_argument("topic", help="it must exist")
    produce.add_argument("--key-separator", metavar="TEXT", help="what stands before it is the key (default: no keys)")
    produce.add_argument("--null-marker", metavar="TEXT", help="a key or value that is this text is null")
    produce.set_defaults(action=_produce)
    consume = subparsers.add_parser("consume", help="print the records of a topic")
    consume.add_argument("topic", help="it must exist")
    consume.add_argument("--from-beginning", action="store_true", help="not only records that come from now on")
    consume.add_argument("--max-messages", type=above_zero, metavar="N", help="stop after N records (default: never)")
    consume.add_argument("--timeout", type=float, metavar="S", help="stop when no record came for S seconds")
    consume.add_argument(
        "--format",
        default="{value}",
        metavar="TEXT",
        help=f"of one line, with {', '.join(f'{{{name}}}' for name in FIELDS)}, \\t and \\n (default: {{value}})",
    )
    consume.set_defaults(action=_consume)
    for parser in (produce, consume):
        add_client_options(parser)
        parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Do what was asked."""
    code: int = args.action(args)
    return code


def _produce(args: argparse.Namespace) -> int:
    from penstock.streams.kafka.console import produce_lines

    count = produce_lines(
        bootstrap_servers(args),
        client_config(args),
        args.topic,
        sys.stdin.buffer,
        key_separator=None if args.key_separator is None else unescape(args.key_separator).encode(),
        null_marker=None if args.null_marker is None else args.null_marker.encode(),
    )
    print(f"produced {count} records to {args.topic}", file=sys.stderr)
    return 0


def _consume(args: argparse.Namespace) -> int:
    from penstock.streams.kafka.console import consume_records

    template = check_format(args.format)

    def write(records: list[ConsoleRecord]) -> None:
        sys.stdout.write("".join(render(template, record) + "\n" for record in records))
        sys.stdout.flush()

    consume_records(
        bootstrap_servers(args),
        client_config(args),
        args.topic,
        write,
        from_beginning=args.from_beginning,
        max_messages=args.max_messages,
        timeout_s=args.timeout,
    )
    return 0


def check_format(text: str) -> str:
    """Return the template with its escapes replaced. Raises ``SettingsError`` for a field that records do not have."""
    for name in re.findall(r"\{(\w+)\}", text):
        if name not in FIELDS:
            raise SettingsError(f"--format has no field {{{name}}}; the fields are {', '.join(FIELDS)}")
    return unescape(text)


def unescape(text: str) -> str:
    r"""The text with ``\t``, ``\n`` and ``\\`` replaced by what they mean."""
    return re.sub(r"\\[tn\\]", lambda match: _ESCAPES[match[0]], text)


def render(template: str, record: ConsoleRecord) -> str:
    """One record as text. Null is ``null``; bytes that are no UTF-8 appear as ``\\xff``; headers are
    ``name:value,name:value``."""
    fields = {
        "topic": record.topic,
        "partition": str(record.partition),
        "offset": str(record.offset),
        "timestamp": str(record.timestamp_ms),
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": ",".join(f"{name}:{_text(value)}" for name, value in record.headers),
    }
    return re.sub(r"\{(\w+)\}", lambda match: fields[match[1]], template)


def _text(data: bytes | None) -> str:
    return "null" if data is None else data.decode(errors="backslashreplace")
