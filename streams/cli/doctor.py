"""``penstock doctor``: look at this machine and the cluster, and say what to do about what is not as it should be."""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import os
import platform
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from penstock.streams.cli.client_options import SETTINGS_SERVERS, add_settings_file, answering, settings_of
from penstock.streams.cli.doctor_cluster import Finding, Verdict, addresses, clock, port, rights

if TYPE_CHECKING:
    from penstock.streams.worker.settings import WorkerSettings

_FREE_LOW, _FREE_LEAST = 5 << 30, 1 << 30
_MINUTES_A_DAY = 1_440
_OFFSETS_KEPT_DAYS = 7


def register(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "doctor",
        help="look at this machine and the cluster, and say what to do",
        description="Look at this machine, the brokers, their addresses and settings and, given a topology, at "
        "the rights of this principal. Ends with 1 where something is wrong. Changes nothing without --clock.",
    )
    parser.add_argument("topology", nargs="?", metavar="MODULE:TOPOLOGY", help="look also at the rights that it needs")
    add_settings_file(parser)
    parser.add_argument("--bootstrap-server", dest="bootstrap_servers", metavar="HOST:PORT", help=SETTINGS_SERVERS)
    parser.add_argument("--state-dir", metavar="DIR", help="where stores are kept (default: .penstock)")
    parser.add_argument(
        "--clock", action="store_true", help="compare the clocks: creates a topic, writes a record to it and deletes it"
    )
    parser.add_argument("--json", action="store_true", help="JSON instead of text")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print what was found; 1 where something is wrong."""
    given = {name: getattr(args, name) for name in ("application_id", "bootstrap_servers", "state_dir")}
    settings = settings_of(args.config, unnamed="doctor", **given)
    found = [*machine(settings), *cluster(settings, args.topology, with_clock=args.clock)]
    if args.json:
        print(orjson.dumps([finding._asdict() for finding in found], option=orjson.OPT_INDENT_2).decode())
    else:
        width = max(len(finding.what) for finding in found)
        for finding in found:
            print(f"{finding.verdict:<6}{finding.what:<{width}}  {finding.seen}")
            if finding.advice:
                print(f"{'':<6}{'':<{width}}  → {finding.advice}")
    return 1 if any(finding.verdict == "wrong" for finding in found) else 0


def machine(settings: WorkerSettings) -> Iterator[Finding]:
    """Look at this machine."""
    import penstock
    from penstock.state.errors import PenstockError
    from penstock.streams.kafka.embedded.java import find_java

    yield Finding("penstock", "good", f"{penstock.__version__} on Python {platform.python_version()}")
    if importlib.util.find_spec("penstock_native") is not None:
        yield Finding("compiled part", "good", "installed")
    else:
        yield Finding(
            "compiled part", "look", "not installed", "everything works, more slowly; install a wheel that has it"
        )
    try:
        java = find_java()
        yield Finding("Java", "good", str(java.path))
    except PenstockError as exc:
        yield Finding("Java", "look", "not found", f"only penstock up and Spark need it: {exc}")
    yield disk(Path(settings.state_dir), shutil.disk_usage)
    yield writable(Path(settings.state_dir))
    yield port(settings.metrics_port, settings.metrics_host)
    yield versions()


def versions() -> Finding:
    """The libraries that do the work."""
    from penstock.streams.kafka.client_config import librdkafka_version

    names = ("rocksdict", "msgspec", "pyspark")
    there = [f"{name} {version}" for name in names if (version := _version(name)) is not None]
    client = f"confluent-kafka {_version('confluent-kafka')}, librdkafka {librdkafka_version()}"
    return Finding("libraries", "good", ", ".join([client, *there]))


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def writable(folder: Path) -> Finding:
    """Whether stores can be kept in a folder."""
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if there.is_dir() and os.access(there, os.W_OK | os.X_OK):
        return Finding("state folder", "good", f"{folder} can be written")
    return Finding(
        "state folder", "wrong", f"{there} cannot be written", "change its owner, or choose another state_dir"
    )


def disk(folder: Path, usage: Callable[[Path], Any]) -> Finding:
    """The disk that a folder is, or will be, on."""
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    free = usage(there).free
    seen = f"{free / (1 << 30):,.1f} GiB free for {folder}"
    if free < _FREE_LEAST:
        return Finding("disk", "wrong", seen, "free space, or move state_dir: a full disk stops the worker")
    if free < _FREE_LOW:
        return Finding("disk", "look", seen, "stores need room for themselves and for merging files")
    return Finding("disk", "good", seen)


def cluster(settings: WorkerSettings, topology: str | None, *, with_clock: bool) -> Iterator[Finding]:
    """Look at the brokers. ``topology``: the one whose rights are looked at, if any."""
    from penstock.state.errors import PenstockError
    from penstock.streams.kafka.admin import KafkaAdmin
    from penstock.streams.kafka.broker_settings import broker_addresses, broker_settings
    from penstock.streams.kafka.client_config import admin_config

    servers = settings.bootstrap_servers
    try:
        admin = KafkaAdmin(admin_config(answering(servers, settings.common), settings.common))
        where = broker_addresses(servers, settings.common)
    except PenstockError as exc:
        yield Finding("brokers", "wrong", f"{servers}: not usable", str(exc))
        return
    yield Finding("brokers", "good", f"{len(where)} at {servers}, cluster {admin.cluster_id()}")
    yield from addresses(where)
    try:
        brokers = broker_settings(servers, settings.common)
    except PenstockError as exc:
        advice = f"ask with a login that may describe the cluster's settings: {exc}"
        yield Finding("broker settings", "look", "not read", advice)
    else:
        for broker, values in sorted(brokers.items()):
            yield from judged(broker, values, len(brokers), settings)
    if topology is not None:
        yield from _rights(topology, settings)
    if with_clock:
        from penstock.streams.kafka.broker_clock import clock_difference

        try:
            yield clock(clock_difference(servers, settings.common))
        except PenstockError as exc:
            yield Finding("clock", "look", "not compared", str(exc))


def _rights(topology: str, settings: WorkerSettings) -> Iterator[Finding]:
    from penstock.streams.cli.acls import rights_of
    from penstock.streams.kafka.authorized_operations import GrantedRights
    from penstock.streams.topology_loading import load_topology

    needed = rights_of(load_topology(topology), settings)
    granted = GrantedRights(settings.bootstrap_servers, settings.common)
    topics = granted.topics(right.name for right in needed if right.kind == "topic")
    yield from rights(needed, topics, granted.groups(right.name for right in needed if right.kind == "group"))


def judged(broker: int, values: Mapping[str, str], brokers: int, settings: WorkerSettings) -> Iterator[Finding]:
    """The settings of a broker that matter, each with what to do."""

    def number(name: str, default: int) -> int:
        text = values.get(name, "")
        return int(text) if text.lstrip("-").isdigit() else default

    def finding(name: str, verdict: Verdict, advice: str) -> Finding:
        return Finding(f"broker {broker}", verdict, f"{name}={values.get(name, 'unknown')}", advice)

    wrong = []
    longest = number("transaction.max.timeout.ms", 900_000)
    if settings.transaction_timeout_ms > longest:
        wrong.append(
            finding("transaction.max.timeout.ms", "wrong", f"keep transaction_timeout_ms at {longest} or less")
        )
    if (
        not number("group.min.session.timeout.ms", 0)
        <= settings.session_timeout_ms
        <= number("group.max.session.timeout.ms", 1 << 31)
    ):
        name = "group.max.session.timeout.ms"
        wrong.append(
            finding(name, "wrong", f"session_timeout_ms={settings.session_timeout_ms} is outside what the broker takes")
        )
    if number("message.max.bytes", 1_048_588) < settings.policies.max_record_bytes:
        wrong.append(
            finding("message.max.bytes", "wrong", "lower policies.max_record_bytes, or raise it on the brokers")
        )
    if number("offsets.retention.minutes", 10_080) < _OFFSETS_KEPT_DAYS * _MINUTES_A_DAY:
        wrong.append(
            finding(
                "offsets.retention.minutes",
                "look",
                "an application that is stopped for longer loses its positions and reads everything again; raise it",
            )
        )
    factor = number("default.replication.factor", 1)
    if brokers >= 3 and settings.replication_factor == -1 and factor < 3:
        wrong.append(
            finding("default.replication.factor", "look", "changelogs would have few copies; set replication_factor=3")
        )
    if brokers >= 3 and number("min.insync.replicas", 1) < 2:
        wrong.append(finding("min.insync.replicas", "look", "a commit may be on one disk only; set it to 2"))
    if values.get("auto.create.topics.enable") == "true":
        wrong.append(
            finding("auto.create.topics.enable", "look", "a misspelt topic of other programs is created; turn it off")
        )
    yield from wrong or [Finding(f"broker {broker}", "good", "the settings that matter")]
