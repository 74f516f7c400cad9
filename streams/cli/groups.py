"""``penstock groups``, ``penstock lag`` and ``penstock apps``: who reads, how far, and what they keep in Kafka."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from penstock.streams.cli.client_options import add_client_options, cluster_of
from penstock.streams.cli.counts import unread
from penstock.streams.cli.topics import table

if TYPE_CHECKING:
    from penstock.streams.kafka.groups import GroupSummary, PartitionLag

_FIXED = "-fixed"
"""The end of the group of workers that were given their partitions."""


class ApplicationSummary(NamedTuple):
    """An application as Kafka shows it: its group, and the topics of its own. ``members``: how many consumers it has now."""

    name: str
    members: int
    changelogs: int
    repartitions: int
    journals: int


def register(subparsers: Any) -> None:
    """Add the three commands."""
    groups = subparsers.add_parser("groups", help="list the consumer groups")
    groups.set_defaults(shown=_groups)
    lag = subparsers.add_parser("lag", help="show how far a group has come, and how far it has to go")
    lag.add_argument("group", metavar="GROUP", help="a group; an application's group has its id as name")
    lag.set_defaults(shown=_lag)
    apps = subparsers.add_parser("apps", help="list the applications that have topics of their own")
    apps.set_defaults(shown=_apps)
    for parser in (groups, lag, apps):
        parser.add_argument("--json", action="store_true", help="JSON instead of a table")
        add_client_options(parser)
        parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print what was asked."""
    print(args.shown(args, *cluster_of(args)))
    return 0


def _groups(args: argparse.Namespace, servers: str, client: dict[str, str]) -> str:
    from penstock.streams.kafka.groups import list_groups

    return show_groups(list_groups(servers, client), as_json=args.json)


def _lag(args: argparse.Namespace, servers: str, client: dict[str, str]) -> str:
    from penstock.state.errors import UserError
    from penstock.streams.kafka.groups import lag_of

    found = lag_of(servers, client, args.group)
    if not found:
        raise UserError(f"group {args.group!r} has no committed positions; see the groups there are: penstock groups")
    return show_lag(found, as_json=args.json)


def _apps(args: argparse.Namespace, servers: str, client: dict[str, str]) -> str:
    from penstock.streams.kafka.groups import list_groups
    from penstock.streams.kafka.topics import Topics

    topics = [topic.name for topic in Topics(servers, client).list()]
    return show_applications(applications(list_groups(servers, client), topics), as_json=args.json)


def show_groups(groups: Sequence[GroupSummary], *, as_json: bool) -> str:
    """Groups as a table, or as JSON."""
    if as_json:
        return _json({"group": g.name, "state": g.state, "members": list(g.members)} for g in groups)
    return table(["group", "state", "members"], [[g.name, g.state, str(len(g.members))] for g in groups])


def show_lag(partitions: Sequence[PartitionLag], *, as_json: bool) -> str:
    """Partitions as a table with the sum of all lags behind it, or as JSON. ``-``: nothing is committed, or nobody reads.
    What partitions without a position hold is added apart: the group may begin elsewhere than with their first record."""
    if as_json:
        return _json({**p._asdict(), "lag": p.lag} for p in partitions)
    rows = [
        [p.topic, str(p.partition), _or_dash(p.position), str(p.end), _or_dash(p.lag), p.owner or "-"]
        for p in partitions
    ]
    total = sum(p.lag or 0 for p in partitions)
    shown = table(["topic", "partition", "position", "end", "lag", "owner"], rows)
    return f"{shown}\ntotal lag: {total:,}{unread(sum(p.end for p in partitions if p.position is None))}"


def show_applications(found: Sequence[ApplicationSummary], *, as_json: bool) -> str:
    """Applications as a table, or as JSON."""
    if as_json:
        return _json(application._asdict() for application in found)
    rows = [[str(field) for field in application] for application in found]
    return table(["application", "members", "changelogs", "repartition topics", "journals"], rows)


def applications(groups: Sequence[GroupSummary], topics: Iterable[str]) -> list[ApplicationSummary]:
    """The applications that have a group and topics of their own, by name: one without state has only the record of its
    topology. A topic belongs to the longest name that it begins with: those of ``counts-2`` begin with ``counts-`` too."""
    from penstock.streams.runtime.topology_record import record_topic
    from penstock.topologies.operator_api.internal_names import INTERNAL_SUFFIXES

    members: dict[str, int] = {}
    for group in groups:
        name = group.name.removesuffix(_FIXED)
        members[name] = members.get(name, 0) + len(group.members)
    kinds = {"changelogs": ("-changelog",), "repartitions": INTERNAL_SUFFIXES, "journals": ("-journal",)}
    counted = {name: dict.fromkeys(kinds, 0) for name in members}
    topics = set(topics)
    for topic in topics:
        kind = next((k for k, ends in kinds.items() if topic.endswith(ends)), None)
        owner = max((name for name in members if topic.startswith(f"{name}-")), key=len, default=None)
        if kind is not None and owner is not None:
            counted[owner][kind] += 1
    return [
        ApplicationSummary(name, members[name], **counted[name])
        for name in sorted(members)
        if any(counted[name].values()) or record_topic(name) in topics
    ]


def _json(rows: Iterable[dict[str, Any]]) -> str:
    return orjson.dumps(list(rows), option=orjson.OPT_INDENT_2).decode()


def _or_dash(number: int | None) -> str:
    return "-" if number is None else str(number)
