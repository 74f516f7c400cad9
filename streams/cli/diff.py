"""``penstock diff``: what a topology would change in the state that its application has stored."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

import orjson

from penstock.streams.cli.client_options import (
    SETTINGS_SERVERS,
    add_settings_file,
    add_topology,
    answering,
    settings_of,
)

if TYPE_CHECKING:
    from penstock.streams.runtime.topology_record import TopologyChange


def register(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "diff",
        help="compare a topology with the one whose state is stored",
        description="Say what differs from the topology that last ran as this application, and what will happen to each "
        "store. Ends with 1 where a store begins empty or the start would be refused, so that a pipeline can stop there. "
        "Changes nothing.",
    )
    add_topology(parser)
    add_settings_file(parser)
    parser.add_argument("--bootstrap-server", dest="bootstrap_servers", metavar="HOST:PORT", help=SETTINGS_SERVERS)
    parser.add_argument("--json", action="store_true", help="JSON instead of a table")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the changes; 1 where state is lost or the start refused."""
    from penstock.streams.kafka.admin import KafkaAdmin
    from penstock.streams.kafka.client_config import admin_config, consumer_config
    from penstock.streams.kafka.consumer import KafkaConsumer
    from penstock.streams.runtime.recorded_topology import changes_of, read_record, refuse_missing_changelogs
    from penstock.streams.runtime.topic_setup import existing_layout
    from penstock.streams.runtime.topology_record import LOSING, record_of
    from penstock.streams.topology_loading import load_topology

    topology = load_topology(args.topology)
    settings = settings_of(args.config, application_id=args.application_id, bootstrap_servers=args.bootstrap_servers)
    name = settings.application_id
    servers = answering(settings.bootstrap_servers, settings.common)
    admin = KafkaAdmin(admin_config(servers, settings.common))

    def open_consumer() -> KafkaConsumer:
        keys = {**settings.common, **settings.consumer}
        return KafkaConsumer(consumer_config(settings.bootstrap_servers, name, keys), native="off")

    refuse_missing_changelogs(topology, name, admin, open_consumer)
    before = read_record(name, admin, open_consumer)
    layout, _ = existing_layout(topology, name, admin)
    found = changes_of(before, record_of(topology, name, layout), admin)
    if args.json:
        print(orjson.dumps([change._asdict() for change in found], option=orjson.OPT_INDENT_2).decode())
    elif before is None:
        print(f"application {name} has no record of a topology: it has not run, or a former release ran it")
    else:
        print(shown(found) if found else f"nothing that application {name} has stored is affected")
    return 1 if any(change.outcome in LOSING for change in found) else 0


def shown(found: list[TopologyChange]) -> str:
    """The changes as a table."""
    from penstock.streams.cli.topics import table

    rows = [[c.what, c.was, c.becomes, f"{c.outcome}: {c.advice}"] for c in found]
    return table(["what", "was", "becomes", "what happens"], rows)
