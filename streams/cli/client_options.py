"""Options shared by the commands that talk to a cluster: which cluster, and how to connect."""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.state.errors import SettingsError

if TYPE_CHECKING:
    from penstock.streams.worker.settings import WorkerSettings

BOOTSTRAP_ENV = "PENSTOCK_BOOTSTRAP_SERVERS"
SETTINGS_SERVERS = (
    f"default: ${BOOTSTRAP_ENV}, else the file's, else the cluster that `penstock up` started, else 127.0.0.1:9092"
)
"""The help of ``--bootstrap-server`` where there are settings."""


def add_topology(parser: argparse.ArgumentParser) -> None:
    """Add the topology, as ``load_topology`` takes it."""
    parser.add_argument(
        "topology",
        metavar="MODULE:TOPOLOGY",
        help="a module or a .py file, and the name in it of a topology, a builder or a function that returns one (default: "
        "topology, else build)",
    )


def add_settings_file(parser: argparse.ArgumentParser) -> None:
    """Add ``--config`` and ``--application-id``."""
    parser.add_argument(
        "--config",
        metavar="FILE.toml",
        help="any setting of a worker, under [penstock]; weaker than PENSTOCK_… variables, which are weaker than options",
    )
    parser.add_argument(
        "--application-id",
        metavar="ID",
        help="of its group, topics and folder; required, unless $PENSTOCK_APPLICATION_ID or the file says it",
    )


def add_client_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--bootstrap-server``, ``--name`` and ``--client-config``."""
    parser.add_argument(
        "--bootstrap-server",
        dest="bootstrap_servers",
        metavar="HOST:PORT",
        help=f"default: ${BOOTSTRAP_ENV}, else the cluster that `penstock up` started",
    )
    parser.add_argument("--name", metavar="NAME", help="of the cluster that `penstock up --name NAME` started")
    parser.add_argument(
        "--client-config", action="append", default=[], metavar="KEY=VALUE", help="any librdkafka key (repeatable)"
    )


def bootstrap_servers(args: argparse.Namespace) -> str:
    """Return the servers to talk to: from the option, the environment, or the embedded cluster. ``--name`` is an option
    too, and so comes before the environment.

    Raises ``SettingsError`` if none of them names servers.
    """
    if args.bootstrap_servers:
        return str(args.bootstrap_servers)
    from penstock.streams.kafka.embedded import running_bootstrap_servers

    if args.name is not None:
        servers = running_bootstrap_servers(args.name)
        if servers is None:
            raise SettingsError(f"no cluster {args.name!r} runs. Start it with: penstock up --name {args.name}")
        return servers
    servers = os.environ.get(BOOTSTRAP_ENV) or running_bootstrap_servers()
    if servers is None:
        raise SettingsError(
            "no cluster to talk to. Start one with: penstock up, or name one: --bootstrap-server HOST:PORT, or set "
            f"{BOOTSTRAP_ENV}"
        )
    return servers


def answering(servers: str, client: Mapping[str, Any]) -> str:
    """Return the servers. Raises ``EnvironmentFault`` if none of them answers, sooner than a command's requests give up,
    and ``UserError`` if one refuses the connection. Both say what the client's own log lines do, which are left out."""
    from penstock.streams.kafka.admin import KafkaAdmin
    from penstock.streams.kafka.client_config import admin_config

    lines = logging.getLogger("penstock.kafka")
    shown, lines.disabled = lines.disabled, True
    try:
        KafkaAdmin(admin_config(servers, client)).require_answer()
    finally:
        lines.disabled = shown
    return servers


def settings_of(config: str | None, *, unnamed: str | None = None, **given: Any) -> WorkerSettings:
    """A worker's settings where the servers are those of the option, the environment, the file, the cluster that
    ``penstock up`` started, or the default: the first that there is. ``unnamed``: the application's id if
    nothing sets it."""
    from penstock.streams.kafka.embedded import running_bootstrap_servers
    from penstock.streams.worker.load_settings import load_settings

    unset = {"bootstrap_servers": running_bootstrap_servers, "application_id": lambda: unnamed}
    return load_settings(config, unset=unset, **given)


def above_zero(text: str) -> int:
    """The type of an option that counts something."""
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above zero")
    return int(text)


def cluster_of(args: argparse.Namespace) -> tuple[str, dict[str, str]]:
    """The servers to talk to, which answer, and the client settings for them. Raises as ``bootstrap_servers`` and
    ``answering``."""
    client = pairs(args.client_config, "--client-config")
    return answering(bootstrap_servers(args), client), client


def pairs(texts: Sequence[str], option: str) -> dict[str, str]:
    """Return ``KEY=VALUE`` texts as a dictionary; the last of two equal keys wins. Raises ``SettingsError`` without
    ``=``."""
    out: dict[str, str] = {}
    for position, text in enumerate(texts, 1):
        key, equals, value = text.partition("=")
        if not key or not equals:
            # The text itself is not shown: it may be a secret.
            raise SettingsError(f"{option} takes KEY=VALUE; number {position} of them has no key or no '='")
        out[key.strip()] = value
    return out
