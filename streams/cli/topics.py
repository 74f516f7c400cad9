"""``penstock topics create | list | describe | alter | delete``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import orjson

from penstock.state.errors import SettingsError
from penstock.streams.cli.client_options import add_client_options, cluster_of, pairs
from penstock.streams.cli.counts import counted

if TYPE_CHECKING:
    from penstock.streams.kafka.topics import Topics


def register(subparsers: Any) -> None:
    """Add the command and its actions."""
    parser = subparsers.add_parser("topics", help="create, list, describe, alter and delete topics")
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    create = actions.add_parser("create", help="create a topic")
    create.add_argument("topic", help="its name")
    create.add_argument("--partitions", type=int, default=1, metavar="N", help="default: 1")
    create.add_argument("--replication-factor", type=int, default=1, metavar="N", help="default: 1")
    create.add_argument("--retention", metavar="TIME", help="such as 90m, 1d, 2w or forever (default: the broker's)")
    create.add_argument("--config", action="append", default=[], metavar="KEY=VALUE", help="any topic setting")
    create.set_defaults(action=_create)
    listing = actions.add_parser("list", help="list the topics")
    listing.add_argument("--internal", action="store_true", help="Kafka's own too")
    listing.set_defaults(action=_list)
    describe = actions.add_parser("describe", help="partitions, offsets and settings of a topic")
    describe.add_argument("topic", help="its name")
    describe.set_defaults(action=_describe)
    for action in (listing, describe):
        action.add_argument("--json", action="store_true", help="JSON instead of a table")
    alter = actions.add_parser("alter", help="change settings of a topic, or give it more partitions")
    alter.add_argument("topic", help="its name")
    alter.add_argument("--partitions", type=int, metavar="N", help="more than it has; a key may then be in another one")
    alter.add_argument("--retention", metavar="TIME", help="such as 90m, 1d, 2w or forever")
    alter.add_argument("--config", action="append", default=[], metavar="KEY=VALUE", help="any topic setting")
    alter.set_defaults(action=_alter)
    delete = actions.add_parser("delete", help="delete a topic and its records")
    delete.add_argument("topic", help="its name")
    delete.set_defaults(action=_delete)
    for action in (create, listing, describe, alter, delete):
        add_client_options(action)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Do what was asked."""
    from penstock.streams.kafka.topics import Topics

    args.action(args, Topics(*cluster_of(args)))
    return 0


def _create(args: argparse.Namespace, topics: Topics) -> None:
    configs = _configs(args)
    topics.create(args.topic, partitions=args.partitions, replication_factor=args.replication_factor, configs=configs)
    print(f"created topic {args.topic}")


def _configs(args: argparse.Namespace) -> dict[str, str]:
    from penstock.streams.kafka.topics import parse_retention_ms

    configs = pairs(args.config, "--config")
    if args.retention is not None:
        if "retention.ms" in configs:
            raise SettingsError("--retention and --config retention.ms set the same thing; give only one of them")
        configs["retention.ms"] = str(parse_retention_ms(args.retention))
    return configs


def _alter(args: argparse.Namespace, topics: Topics) -> None:
    configs = _configs(args)
    if not configs and args.partitions is None:
        raise SettingsError("nothing to change; give --partitions, --retention or --config KEY=VALUE")
    topics.alter(args.topic, configs=configs, partitions=args.partitions)
    print(f"altered topic {args.topic}")


def _list(args: argparse.Namespace, topics: Topics) -> None:
    found = topics.list(internal=args.internal)
    if args.json:
        print(orjson.dumps([topic._asdict() for topic in found], option=orjson.OPT_INDENT_2).decode())
        return
    rows = [[t.name, str(t.partitions), str(t.replication_factor)] for t in found]
    print(table(["topic", "partitions", "replication factor"], rows))


def _describe(args: argparse.Namespace, topics: Topics) -> None:
    topic = topics.describe(args.topic)
    if args.json:
        shown = {**topic._asdict(), "partitions": [part._asdict() for part in topic.partitions]}
        print(orjson.dumps(shown, option=orjson.OPT_INDENT_2).decode())
        return
    records = sum(p.end_offset - p.start_offset for p in topic.partitions)
    print(f"topic {topic.name}: {counted(len(topic.partitions), 'partition')}, {counted(records, 'offset')} in use")
    for key, value in topic.configs.items():
        print(f"  {key}={value}")
    rows = [
        [str(p.partition), str(p.leader), _ids(p.replicas), _ids(p.in_sync), str(p.start_offset), str(p.end_offset)]
        for p in topic.partitions
    ]
    print(table(["partition", "leader", "replicas", "in sync", "start", "end"], rows))


def _delete(args: argparse.Namespace, topics: Topics) -> None:
    topics.delete(args.topic)
    print(f"deleted topic {args.topic}")


def _ids(nodes: Sequence[int]) -> str:
    return ",".join(str(node) for node in nodes)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns of text under their headings, separated by at least two blanks, so that `awk` can cut them."""
    lines = [list(columns), *[list(row) for row in rows]]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip() for line in lines)
