"""``penstock produce``: write lines of standard input to a topic, with types, or records as JSON."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import orjson

from penstock.state.errors import SettingsError, UserError
from penstock.streams.cli.client_options import add_client_options, cluster_of
from penstock.streams.cli.counts import counted
from penstock.streams.cli.record_lines import unescape
from penstock.streams.cli.topic_types import TopicTypes, add_type_options, types_of
from penstock.streams.cli.typed_bytes import RAW, Codec, raw_given

if TYPE_CHECKING:
    from penstock.state.log import Header
    from penstock.streams.kafka.console import NewRecord

_IGNORED = frozenset({"topic", "offset"})
"""Fields that ``consume --json`` writes too, and that a new record gets by itself."""
_TAKEN = ("key", "value", "timestamp", "headers", "partition")
_TIMESTAMP_MAX = (1 << 63) - 1


def register(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser("produce", help="write lines of standard input to a topic")
    parser.add_argument("topic", help="it must exist")
    parser.add_argument("--key-separator", metavar="TEXT", help="separates the key from the value (default: no keys)")
    parser.add_argument("--null-marker", metavar="TEXT", help="a key or value equal to this text is null")
    parser.add_argument(
        "--json",
        action="store_true",
        help=f"each line is one record as a JSON object with any of: {', '.join(_TAKEN)}. Headers are an object or a list "
        "of pairs, a timestamp is in milliseconds; without a type, what is not text is written as JSON",
    )
    add_type_options(parser)
    add_client_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write every line."""
    from penstock.streams.kafka.console import produce_records

    if args.json and (args.key_separator is not None or args.null_marker is not None):
        raise SettingsError("--json has keys and nulls of its own; leave --key-separator and --null-marker out")
    types = types_of(args, args.topic)
    if types.written_by is not None:
        raise SettingsError(
            f"topic {args.topic} belongs to {types.written_by}, whose state would not be what its inputs make; write to an "
            "input topic"
        )
    servers, client = cluster_of(args)
    lines = sys.stdin.buffer
    records = json_records(lines, types) if args.json else text_records(args, lines, types)
    count = produce_records(servers, client, args.topic, records)
    print(f"produced {counted(count, 'record')} to {args.topic}", file=sys.stderr)
    return 0


def text_records(args: argparse.Namespace, lines: Iterable[bytes], types: TopicTypes) -> Iterator[NewRecord]:
    """A record of each line, whose key and value are text of their types."""
    from penstock.streams.kafka.console import NewRecord, split_line

    separator = None if args.key_separator is None else unescape(args.key_separator).encode()
    marker = None if args.null_marker is None else args.null_marker.encode()
    for number, line in enumerate(lines, 1):
        key, value = split_line(line.removesuffix(b"\n"), number, separator, marker)
        yield NewRecord(_typed(types.key, key, number, "key"), _typed(types.value, value, number, "value"))


def _typed(codec: Codec, text: bytes | None, number: int, side: str) -> bytes | None:
    """Bytes of text: JSON of the type, or the text itself where the type takes strings."""
    if text is None or codec is RAW or codec.read is None:
        return text
    try:
        if codec.name == "string":
            return codec.read(text.decode())
        try:
            value = orjson.loads(text)
        except orjson.JSONDecodeError:
            return codec.read(text.decode())
        return codec.read(value)
    except (UserError, ValueError) as exc:
        raise _refused(number, f"{side} {exc}") from exc


def json_records(lines: Iterable[bytes], types: TopicTypes) -> Iterator[NewRecord]:
    """A record of each line of JSON; empty lines are skipped."""
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield json_record(line, number, types)


def json_record(line: bytes, number: int, types: TopicTypes) -> NewRecord:
    """The record of one line. Raises ``UserError`` naming line and field."""
    from penstock.streams.kafka.console import NewRecord

    try:
        given = orjson.loads(line)
    except orjson.JSONDecodeError as exc:
        raise _refused(number, f"is not JSON ({exc})") from exc
    if not isinstance(given, dict):
        raise _refused(number, f"is not a JSON object; write one with {', '.join(_TAKEN)}")
    if unknown := sorted(set(given) - set(_TAKEN) - _IGNORED):
        raise _refused(number, f"has a field {unknown[0]!r}, and a record has {', '.join(_TAKEN)}")
    out: dict[str, bytes | None] = {}
    for side, codec in (("key", types.key), ("value", types.value)):
        value = given.get(side)
        try:
            out[side] = None if value is None else _written(codec, value)
        except (UserError, ValueError) as exc:
            raise _refused(number, f"{side}: {exc}") from exc
    return NewRecord(
        out["key"],
        out["value"],
        _whole(given, "timestamp", number),
        tuple(_headers(given.get("headers"), number)),
        _whole(given, "partition", number),
    )


def _written(codec: Codec, value: Any) -> bytes:
    """The bytes of a key or value. Without a type, what is neither text nor base64 is JSON."""
    if codec.read is None:
        raise ValueError(f"{codec.name} is only read; write to an input topic")
    if codec is RAW and not isinstance(value, str) and not (isinstance(value, dict) and set(value) == {"base64"}):
        return orjson.dumps(value)
    return codec.read(value)


def _whole(given: dict[str, Any], name: str, number: int) -> int | None:
    value = given.get(name)
    if value is None or (type(value) is int and 0 <= value <= _TIMESTAMP_MAX):
        return value
    raise _refused(
        number, f"{name} {value!r} is not a whole number from 0 on; write milliseconds or a partition's number"
    )


def _headers(given: Any, number: int) -> Iterator[Header]:
    pairs = given.items() if isinstance(given, dict) else given or ()
    try:
        for name, value in pairs:
            if not isinstance(name, str):
                raise ValueError(f"{name!r} is not a name")
            yield name, None if value is None else raw_given(value)
    except (TypeError, ValueError) as exc:
        raise _refused(number, f"headers: {exc}; write an object, or a list of [name, value]") from exc


def _refused(number: int, why: str) -> UserError:
    return UserError(f"line {number}: {why}. Nothing of this line or after it was produced")
