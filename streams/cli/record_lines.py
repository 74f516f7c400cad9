"""How ``consume``, ``tail`` and ``dlq`` show a record: as text by a format, or as a line of JSON."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.state.errors import SettingsError
from penstock.streams.cli.topic_types import TopicTypes
from penstock.streams.cli.typed_bytes import Undecodable, as_json, as_text, moment, raw_shown, shown_or_marked

if TYPE_CHECKING:
    from penstock.streams.kafka.follow import FoundRecord, Start

FIELDS = ("topic", "partition", "offset", "timestamp", "time", "key", "value", "headers")
_ESCAPES = {"\\t": "\t", "\\n": "\n", "\\\\": "\\"}
_COLOURS = (36, 33, 35, 32, 34, 31)
"""ANSI numbers of the colours of topics: cyan, yellow, magenta, green, blue, red."""


class RecordLines:
    """Makes lines of records. ``failed`` counts keys and values that their types could not read; ``first_failure`` says
    why the first of them could not."""

    def __init__(self, types: Callable[[str], TopicTypes], template: str | None, *, colour: bool = False) -> None:
        self._types_of = types
        self._template = template
        self._colour = colour
        self._types: dict[str, TopicTypes] = {}
        self.failed = 0
        self.first_failure = ""

    def line(self, record: FoundRecord) -> str:
        """One record, without a line end."""
        types = self._types.get(record.topic)
        if types is None:
            types = self._types[record.topic] = self._types_of(record.topic)
        shown = {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp_ms,
            "key": shown_or_marked(types.key, record.key),
            "value": shown_or_marked(types.value, record.value),
            "headers": [[name, None if value is None else raw_shown(value)] for name, value in record.headers],
        }
        for side in ("key", "value"):
            if isinstance(shown[side], Undecodable):
                self.failed += 1
                place = f"{record.topic} [{record.partition}] offset {record.offset}, {side}"
                self.first_failure = self.first_failure or f"{place}: {shown[side]['error']}"
        if self._template is None:
            return as_json(shown).decode()
        return self._text(shown)

    def _text(self, shown: dict[str, Any]) -> str:
        assert self._template is not None
        fields = {name: as_text(value) for name, value in shown.items()}
        fields["time"] = moment(shown["timestamp"])
        fields["headers"] = ",".join(f"{name}:{_plain(value)}" for name, value in shown["headers"])
        for side in ("key", "value"):
            if isinstance(shown[side], dict) and set(shown[side]) == {"base64"}:
                fields[side] = _plain(shown[side])
        if self._colour:
            number = _COLOURS[list(self._types).index(shown["topic"]) % len(_COLOURS)]
            fields["topic"] = f"\x1b[{number}m{fields['topic']}\x1b[0m"
        return re.sub(r"\{(\w+)\}", lambda match: fields[match[1]], self._template)


def _plain(value: Any) -> str:
    """Bytes without a type, as Python escapes what is not text."""
    import base64

    if isinstance(value, dict):
        return base64.b64decode(value["base64"]).decode(errors="backslashreplace")
    return as_text(value)


def check_format(text: str) -> str:
    """Return the template with its escapes replaced. Raises ``SettingsError`` for a field that records do not have."""
    for name in re.findall(r"\{(\w+)\}", text):
        if name not in FIELDS:
            raise SettingsError(f"--format has no field {{{name}}}; the fields are {', '.join(FIELDS)}")
    return unescape(text)


def unescape(text: str) -> str:
    r"""The text with ``\t``, ``\n`` and ``\\`` replaced by what they mean."""
    return re.sub(r"\\[tn\\]", lambda match: _ESCAPES[match[0]], text)


def coloured() -> bool:
    """Whether standard output takes colours, and nobody has asked for none (https://no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def add_start_options(parser: argparse.ArgumentParser) -> None:
    """Add where to begin, and when to stop."""
    from penstock.streams.cli.client_options import above_zero

    where = parser.add_mutually_exclusive_group()
    where.add_argument("--from-beginning", action="store_true", help="start with the first record, not with new ones")
    where.add_argument("--last", type=above_zero, metavar="N", help="begin with the last N records of each partition")
    where.add_argument(
        "--since", metavar="TIME", help="begin with the first record of a time such as 2026-11-22T10:00 (UTC)"
    )
    parser.add_argument("--max-messages", type=above_zero, metavar="N", help="stop after N records (default: never)")
    parser.add_argument("--timeout", type=float, metavar="S", help="stop if no record arrives for S seconds")


def start_of(args: argparse.Namespace) -> Start:
    """Where ``add_start_options`` says to begin."""
    from penstock.streams.cli.times import time_ms
    from penstock.streams.kafka.follow import BEGINNING, END, Start

    if args.from_beginning:
        return BEGINNING
    if args.last is not None:
        return Start("last", args.last)
    return END if args.since is None else Start("since", time_ms(args.since, "--since"))


def report_failures(lines: RecordLines) -> int:
    """Say what could not be read, if anything; the exit status."""
    if not lines.failed:
        return 0
    print(f"penstock: {lines.failed} keys or values could not be read; {lines.first_failure}", file=sys.stderr)
    return 1
