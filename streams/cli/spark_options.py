"""The common options of ``replay``, ``compact`` and ``verify``."""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import math
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock.state.errors import EnvironmentFault
from penstock.streams.cli.client_options import SETTINGS_SERVERS, add_settings_file, add_topology

if TYPE_CHECKING:
    from penstock.streams.batch.values_as_text import Tolerance
    from penstock.streams.spark.connection import Connection
    from penstock.streams.spark.session import SparkSettings
    from penstock.streams.task.task_options import TaskOptions
    from penstock.streams.worker.settings import WorkerSettings


@dataclasses.dataclass(frozen=True)
class Given:
    """The command line and the settings, as the library wants them."""

    application_id: str
    connection: Connection
    session: SparkSettings
    options: TaskOptions
    exactly_once: bool
    snapshots: str | None
    settings: WorkerSettings


def add_common(parser: argparse.ArgumentParser) -> None:
    """The topology, the application, and Spark."""
    add_topology(parser)
    add_settings_file(parser)
    parser.add_argument("--bootstrap-server", dest="bootstrap_servers", metavar="HOST:PORT", help=SETTINGS_SERVERS)
    parser.add_argument(
        "--guarantee",
        choices=["at_most_once", "at_least_once", "exactly_once"],
        help="that of the application's workers (default: at_least_once)",
    )
    parser.add_argument(
        "--master", metavar="URL", help="Spark master; default: Spark's own configuration, else local[*]"
    )
    parser.add_argument(
        "--connector",
        metavar="COORDINATE",
        help="Maven coordinate of Spark's Kafka connector (default: that of 4.0.0)",
    )
    parser.add_argument("--spark-conf", action="append", default=[], metavar="NAME=VALUE", help="any Spark setting")
    parser.add_argument(
        "--kafka-option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the connector, such as kafka.sasl.mechanism=…",
    )


def add_begin(parser: argparse.ArgumentParser) -> None:
    """Where in the log a replay begins."""
    parser.add_argument(
        "--from",
        dest="from_",
        default="start",
        metavar="start|savepoint:NAME",
        help="where the application began to read, or a savepoint of the repository (savepoint:latest)",
    )
    parser.add_argument("--repository", metavar="URL", help="the repository that holds the savepoint")


def add_tolerance(parser: argparse.ArgumentParser) -> None:
    """How far floating-point numbers may be apart."""
    parser.add_argument(
        "--relative-tolerance",
        type=float,
        default=0.0,
        metavar="X",
        help="floating-point numbers count as the same within this part of the larger one, such as 1e-9 (default: 0)",
    )
    parser.add_argument(
        "--absolute-tolerance", type=float, default=0.0, metavar="X", help="or within this distance (default: 0)"
    )


def tolerance_of(args: argparse.Namespace) -> Tolerance:
    """The tolerance given by the options of ``add_tolerance``. Raises ``SettingsError``."""
    from penstock.state.errors import SettingsError
    from penstock.streams.batch.values_as_text import Tolerance

    given = args.relative_tolerance, args.absolute_tolerance
    if not all(math.isfinite(x) and x >= 0 for x in given):
        raise SettingsError(f"tolerances are not negative, and were given as {given[0]} and {given[1]}")
    return Tolerance(*given)


def begin_of(args: argparse.Namespace, given: Given) -> dict[str, Any]:
    """The arguments that ``replay`` and ``verify`` of the library share."""
    return {
        "application_id": given.application_id,
        "connection": given.connection,
        "from_": args.from_,
        "repository": args.repository or given.snapshots,
        "options": given.options,
        "exactly_once": given.exactly_once,
        "progress": say,
        "session": given.session,
    }


def require_spark() -> None:
    """Raises ``EnvironmentFault`` when the extra is not installed."""
    missing = [m for m in ("pyspark", "pyarrow", "pandas") if importlib.util.find_spec(m) is None]
    if missing:
        raise EnvironmentFault(f"{', '.join(missing)} cannot be imported; run: pip install 'penstock[spark]'")


def inputs_of(args: argparse.Namespace) -> Given:
    """The worker's settings, with what the command line says over them."""
    from penstock.streams.cli.client_options import pairs, settings_of
    from penstock.streams.spark.connection import Connection
    from penstock.streams.spark.session import KAFKA_CONNECTOR, SparkSettings
    from penstock.streams.task.task_options import STATE_CACHE_BYTES, TaskOptions
    from penstock.streams.topology_loading import load_topology

    # First of all, because it is quick, and because it puts this folder on the path that executors get.
    load_topology(args.topology)
    settings = settings_of(
        args.config,
        application_id=args.application_id,
        bootstrap_servers=args.bootstrap_servers,
        guarantee=args.guarantee,
    )
    return Given(
        application_id=settings.application_id,
        connection=Connection(
            settings.bootstrap_servers, dict(settings.common), pairs(args.kafka_option, "--kafka-option")
        ),
        session=SparkSettings(
            master=args.master,
            connector=args.connector or KAFKA_CONNECTOR,
            conf=pairs(args.spark_conf, "--spark-conf"),
        ),
        options=TaskOptions(
            policies=settings.policies,
            batch_max_records=settings.batch_max_records,
            state_cache_max_bytes=settings.state_cache_max_bytes or STATE_CACHE_BYTES,
        ),
        exactly_once=settings.guarantee == "exactly_once",
        snapshots=settings.snapshots,
        settings=settings,
    )


def show(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table on the terminal."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def tell_savepoint(savepoint: str | None, no_savepoint: str | None) -> None:
    """Print the name of the savepoint that a job has made, or why there is none."""
    print(f"savepoint {savepoint}" if savepoint else f"no savepoint: {no_savepoint}")


def say(line: str) -> None:
    """Tell how far a job is, where what it prints in the end is not disturbed."""
    print(line, file=sys.stderr, flush=True)
