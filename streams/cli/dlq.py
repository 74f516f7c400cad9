"""``penstock dlq``: see dead letters, send them back to where they came from, or drop them."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from penstock.streams.cli.client_options import above_zero, add_client_options, cluster_of
from penstock.streams.cli.counts import counted
from penstock.streams.cli.topic_types import TopicTypes, add_type_options, types_of
from penstock.streams.cli.typed_bytes import as_json, as_text, corrected, moment, raw_shown, shown_or_marked

if TYPE_CHECKING:
    from penstock.streams.kafka.dead_letter_queue import DeadLetter, DeadLetterQueue

_ERROR_CHARACTERS = 60


def register(subparsers: Any) -> None:
    """Add the command and its actions."""
    parser = subparsers.add_parser("dlq", help="list dead letters, send them back, or drop them")
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="the letters that wait, in the order in which they are handled")
    show = actions.add_parser("show", help="everything about the letters that wait")
    retry = actions.add_parser("retry", help="send the next letters back to where they came from, in their order")
    drop = actions.add_parser("drop", help="pass over the next letters")
    edit = actions.add_parser(
        "edit",
        help="send the next letters back with other contents: lines of show --json, changed, on standard input",
    )
    for action, done in ((listing, _list), (show, _show), (retry, _retry), (drop, _drop), (edit, _edit)):
        action.add_argument("topic", metavar="TOPIC", help="the dead letter topic of the policies")
        action.set_defaults(done=done)
        add_client_options(action)
    for action in (show, retry, drop):
        action.add_argument("--limit", type=above_zero, metavar="N", help="letters at most (default: all that wait)")
    for action in (show, edit):
        add_type_options(action)
    for action in (listing, show):
        action.add_argument("--json", action="store_true", help="one JSON object per letter")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Do what was asked."""
    from penstock.streams.kafka.dead_letter_queue import DeadLetterQueue

    args.done(args, DeadLetterQueue(*cluster_of(args), args.topic))
    return 0


def _waiting(queue: DeadLetterQueue) -> list[DeadLetter]:
    from penstock.streams.kafka.dead_letter_queue import letters_of

    return letters_of(queue.waiting())


def _list(args: argparse.Namespace, queue: DeadLetterQueue) -> None:
    from penstock.streams.cli.topics import table

    letters = _waiting(queue)
    if args.json:
        for letter in letters:
            print(as_json(shown(letter, TopicTypes())).decode())
        return
    rows = [
        [
            f"{letter.record.partition}:{letter.record.offset}",
            moment(letter.record.timestamp_ms),
            place_of(letter),
            letter.operator,
            str(letter.retries),
            letter.error if len(letter.error) <= _ERROR_CHARACTERS else letter.error[: _ERROR_CHARACTERS - 1] + "…",
        ]
        for letter in letters
    ]
    if not rows:
        print(f"no letter of {queue.topic} waits: what is there was sent back or dropped")
        return
    print(table(["letter", "time", "from", "operator", "retries", "error"], rows))


def _show(args: argparse.Namespace, queue: DeadLetterQueue) -> None:
    for letter in _waiting(queue)[: args.limit]:
        fields = shown(letter, TopicTypes() if letter.origin is None else types_of(args, letter.origin.topic))
        if args.json:
            print(as_json(fields).decode())
            continue
        print(f"letter {letter.record.partition}:{letter.record.offset} of {queue.topic}")
        for name in ("from", "time", "operator", "declared", "error", "traceback", "key", "value", "headers"):
            if name == "declared" and letter.declared is None:
                continue
            for line in fields[name] if name == "traceback" else [as_text(fields[name])]:
                print(f"  {name:<10}{line}")


def _retry(args: argparse.Namespace, queue: DeadLetterQueue) -> None:
    letters = queue.handle(args.limit, send=True)
    for letter in letters:
        print(f"sent back {letter.record.partition}:{letter.record.offset} to {place_of(letter)}")
    print(f"{counted(len(letters), 'letter')} sent back, with their positions, in one transaction")


def _drop(args: argparse.Namespace, queue: DeadLetterQueue) -> None:
    letters = queue.handle(args.limit, send=False)
    print(f"{counted(len(letters), 'letter')} dropped; the records stay in {queue.topic}")


def _edit(args: argparse.Namespace, queue: DeadLetterQueue) -> None:
    from penstock.streams.kafka.dead_letter_queue import Replacement

    waiting = _waiting(queue)
    replaced: dict[tuple[int, int], Replacement] = {}
    for number, line in enumerate((text for text in sys.stdin.buffer if text.strip()), 1):
        letter = _expected(queue, waiting, number, line)
        replaced[letter.record.partition, letter.record.offset] = _edited(args, letter, number, line)
    letters = queue.handle(len(replaced), send=True, replaced=replaced) if replaced else []
    print(f"{counted(len(letters), 'letter')} sent back with their new contents, in one transaction")


def _expected(queue: DeadLetterQueue, waiting: list[DeadLetter], number: int, line: bytes) -> DeadLetter:
    """The letter that a line is of: the next one. Raises ``UserError`` for any other."""
    import orjson

    from penstock.state.errors import UserError

    try:
        given = orjson.loads(line)
        place = (given["partition"], given["offset"])
    except (orjson.JSONDecodeError, TypeError, KeyError) as exc:
        raise UserError(f"line {number} is not a line of: penstock dlq show {queue.topic} --json") from exc
    if number > len(waiting) or (waiting[number - 1].record.partition, waiting[number - 1].record.offset) != place:
        raise UserError(
            f"line {number} is letter {place[0]}:{place[1]}, which is not the next that waits; letters keep their order: "
            "edit them from the first on, and retry or drop those before"
        )
    return waiting[number - 1]


def _edited(args: argparse.Namespace, letter: DeadLetter, number: int, line: bytes) -> Any:
    import orjson

    from penstock.state.errors import UserError
    from penstock.streams.cli.produce import json_record
    from penstock.streams.kafka.dead_letter_queue import Replacement

    given = orjson.loads(line)
    types = TopicTypes() if letter.origin is None else types_of(args, letter.origin.topic)
    sent: dict[str, bytes | None] = {}
    for name, codec, data in (("key", types.key, letter.record.key), ("value", types.value, letter.record.value)):
        try:
            read = corrected(codec, data, given.get(name))
        except UserError as exc:
            raise UserError(f"line {number}: {name}: {exc}. Nothing was sent back") from exc
        sent[name] = read if read is not None else getattr(json_record(_only(name, given), number, types), name)
    return Replacement(sent["key"], sent["value"])


def _only(name: str, given: dict[str, Any]) -> bytes:
    import orjson

    return orjson.dumps({name: given.get(name)})


def place_of(letter: DeadLetter) -> str:
    """Where the record was read."""
    if letter.origin is None:
        return "a clock or a commit"
    return f"{letter.origin.topic} [{letter.origin.partition}] offset {letter.offset}"


def shown(letter: DeadLetter, types: TopicTypes) -> dict[str, Any]:
    """All of a letter, for JSON."""
    record = letter.record
    return {
        "partition": record.partition,
        "offset": record.offset,
        "from": place_of(letter),
        "time": moment(record.timestamp_ms),
        "timestamp": record.timestamp_ms,
        "operator": letter.operator,
        "declared": letter.declared,
        "error": letter.error,
        "traceback": list(letter.traceback),
        "retries": letter.retries,
        "key": shown_or_marked(types.key, record.key),
        "value": shown_or_marked(types.value, record.value),
        "headers": [[name, None if value is None else raw_shown(value)] for name, value in letter.headers],
    }
