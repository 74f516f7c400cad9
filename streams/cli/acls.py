"""``penstock acls``: the least rights of an application or an ingestion: a table, JSON, or a script for Kafka's own tool."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import orjson

from penstock.streams.cli.client_options import SETTINGS_SERVERS, add_settings_file, settings_of

if TYPE_CHECKING:
    from penstock.streams.runtime.least_rights import Right
    from penstock.streams.worker.settings import WorkerSettings
    from penstock.topologies.graph.topology import Topology


def register(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "acls",
        help="print the least rights that an application or an ingestion needs in Kafka, also as a script",
        description="Print what a worker of this application, or this ingestion, needs, and nothing more: as a table, as "
        "JSON, or as a script of kafka-acls.sh. Asks no broker and changes nothing.",
    )
    parser.add_argument(
        "topology",
        metavar="MODULE:NAME",
        help="a topology, as for workers, or a connectors.Ingestion, as for ingest",
    )
    add_settings_file(parser)
    parser.add_argument("--bootstrap-server", dest="bootstrap_servers", metavar="HOST:PORT", help=SETTINGS_SERVERS)
    parser.add_argument(
        "--guarantee", choices=["at_most_once", "at_least_once", "exactly_once"], help="default: setting"
    )
    parser.add_argument("--fixed", action="store_true", help="for workers with --partitions")
    parser.add_argument(
        "--principal", metavar="User:NAME", help="who gets them (default: User:<application id, or name>)"
    )
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--script", action="store_true", help="commands of kafka-acls.sh")
    shown.add_argument("--json", action="store_true", help="JSON instead of a table")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the rights."""
    from penstock.streams.connectors.ingestion import Ingestion
    from penstock.streams.connectors.ingestion_rights import ingestion_rights
    from penstock.streams.topology_loading import load_named, load_topology

    found = load_named(args.topology) if args.topology.partition(":")[2] else args.topology
    given = {name: getattr(args, name) for name in ("application_id", "bootstrap_servers", "guarantee")}
    if isinstance(found, Ingestion):
        settings = settings_of(args.config, **{**given, "application_id": found.name})
        rights = ingestion_rights(found)
    else:
        settings = settings_of(args.config, **given)
        rights = rights_of(load_topology(found), settings, fixed=args.fixed)
    principal = args.principal or f"User:{settings.application_id}"
    if args.json:
        shown = [{"principal": principal, **right._asdict()} for right in rights]
        print(orjson.dumps(shown, option=orjson.OPT_INDENT_2).decode())
    elif args.script:
        print(script(rights, principal, settings.bootstrap_servers))
    else:
        print(table_of(rights))
    return 0


def rights_of(topology: Topology, settings: WorkerSettings, *, fixed: bool = False) -> list[Right]:
    """The rights of a worker with these settings."""
    from penstock.streams.runtime.least_rights import least_rights

    return least_rights(
        topology,
        settings.application_id,
        settings.guarantee,
        dead_letter_topic=settings.policies.dead_letter_topic,
        purges=settings.repartition_purge_interval_ms > 0,
        fixed=fixed,
    )


def table_of(rights: Sequence[Right]) -> str:
    """The rights for people; a name that stands for all that begin with it ends in ``*``."""
    from penstock.streams.cli.topics import table

    rows = [[r.kind, f"{r.name}*" if r.prefixed else r.name, ", ".join(r.operations), r.why] for r in rights]
    return table(["resource", "name", "operations", "for"], rows)


def script(rights: Sequence[Right], principal: str, servers: str) -> str:
    """A shell script that grants the rights; ``KAFKA_ACLS`` names the tool and its login."""
    lines = [
        "#!/bin/sh",
        "# Run it with a login that may alter ACLs: KAFKA_ACLS='kafka-acls.sh --command-config admin.properties' sh acls.sh",
        "set -eu",
        f'acls="${{KAFKA_ACLS:-kafka-acls.sh}} --bootstrap-server {shlex.quote(servers)}"',
    ]
    for right in rights:
        asked = [word for operation in right.operations for word in ("--operation", operation.title().replace("_", ""))]
        pattern = ["--resource-pattern-type", "prefixed"] if right.prefixed else []
        words = ["--add", "--allow-principal", principal, *asked, f"--{right.kind}", right.name, *pattern]
        lines.append(f"$acls {shlex.join(words)}  # {right.why}")
    return "\n".join(lines)
