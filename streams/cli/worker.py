"""``penstock worker``: run a topology in this process, or in several supervised ones."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.streams.cli.client_options import SETTINGS_SERVERS, above_zero, add_settings_file, add_topology

if TYPE_CHECKING:
    from penstock.streams.worker.settings import WorkerSettings

_STOPPING = b"\npenstock: stopping: the worker commits and leaves its group, which takes up to ten seconds\n"
STOP_LIMIT_S = 10.0
"""SIGTERM: commit, leave and end within this."""


def register(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "worker",
        help="run a topology against Kafka",
        description="Run a topology against Kafka, until SIGTERM or Ctrl-C. Its topics must exist. What is not given here "
        "comes from PENSTOCK_… variables, then from the file of --config; both take every setting (OPERATING.md).",
    )
    add_topology(parser)
    add_settings_file(parser)
    parser.add_argument("--bootstrap-server", dest="bootstrap_servers", metavar="HOST:PORT", help=SETTINGS_SERVERS)
    parser.add_argument("--state-dir", metavar="DIR", help="folder of the stores (default: .penstock)")
    parser.add_argument(
        "--guarantee",
        choices=["at_most_once", "at_least_once", "exactly_once"],
        help="how often a record takes effect after a crash (default: at_least_once)",
    )
    parser.add_argument(
        "--latency",
        choices=["balanced", "low"],
        help="low: records are sent without waiting for more, at the price of more and smaller requests (default: balanced)",
    )
    parser.add_argument(
        "--commit-interval-ms",
        type=int,
        metavar="MS",
        help="default: 1000, under exactly_once 100: readers wait for it",
    )
    parser.add_argument(
        "--session-timeout-ms",
        type=int,
        metavar="MS",
        help="a worker's tasks move to others after this time without a heartbeat (default: 45000)",
    )
    parser.add_argument(
        "--snapshots", metavar="URL", help="restore from snapshots in this folder or fsspec URL (default: none)"
    )
    parser.add_argument(
        "--memory-max-bytes",
        type=int,
        metavar="N",
        help="memory of each worker process (default: no bound)",
    )
    parser.add_argument(
        "--metrics-port",
        type=int,
        metavar="PORT",
        help="serve /metrics for Prometheus, /health and /ready on 127.0.0.1, of all processes (default: off)",
    )
    parser.add_argument(
        "--tracing",
        choices=["off", "otel"],
        help="otel: OpenTelemetry spans of records whose writer's trace is sampled, and of their commits (default: off)",
    )
    _add_log_options(parser)
    parser.add_argument("--metrics-socket", metavar="PATH", help=argparse.SUPPRESS)  # given by the supervisor
    parser.add_argument("--process-number", type=int, metavar="N", help=argparse.SUPPRESS)  # likewise: its number
    parser.add_argument(
        "--partitions",
        metavar="0,3",
        help="run these partitions, outside the group (default: those that the group assigns)",
    )
    parser.add_argument(
        "--processes",
        type=above_zero,
        default=1,
        metavar="N",
        help="start and supervise N worker processes (default: 1)",
    )
    parser.set_defaults(run=run)


def _add_log_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--log-level", choices=LOG_LEVELS, default="info", help="lowest level to log (default: info)")
    parser.add_argument(
        "--log-format",
        choices=LOG_FORMATS,
        default="human",
        help="lines for people, or one JSON object per line (default: human)",
    )
    parser.add_argument(
        "--log-records",
        action="store_true",
        help="also log the contents of a record that fails (default: only its place)",
    )


LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("human", "json")
SETTINGS = (
    "application_id",
    "bootstrap_servers",
    "state_dir",
    "guarantee",
    "latency",
    "commit_interval_ms",
    "session_timeout_ms",
    "snapshots",
    "memory_max_bytes",
    "metrics_port",
    "tracing",
)


def run(args: argparse.Namespace) -> int:
    """Run until SIGTERM, SIGINT, ``ctx.shutdown()`` or an error."""
    from penstock.state.errors import SettingsError
    from penstock.streams.cli.client_options import settings_of
    from penstock.streams.topology_loading import load_topology

    settings = settings_of(args.config, **{name: getattr(args, name) for name in SETTINGS})
    partitions = _partitions(args.partitions)
    if args.processes > 1:
        load_topology(args.topology)
        if settings.group_instance_id is not None:
            raise SettingsError(
                f"group_instance_id={settings.group_instance_id!r} identifies one process; with "
                f"--processes {args.processes} the workers "
                "would fence each other; start workers one by one, each with its own id, or leave it out"
            )
        return _supervise(args, settings, partitions)
    return _work(args, settings, partitions)


def _supervise(args: argparse.Namespace, settings: WorkerSettings, partitions: Sequence[int] | None) -> int:
    from penstock.streams.events.log_format import set_up
    from penstock.streams.worker.metrics_gateway import MetricsGateway
    from penstock.streams.worker.supervisor import supervise

    set_up(args.log_level, args.log_format)
    gateway = None
    if settings.metrics_port:
        gateway = MetricsGateway((settings.metrics_host, settings.metrics_port), args.processes)
    try:
        return supervise(getattr(args, "argv", None) or sys.argv[1:], args.processes, partitions, gateway)
    finally:
        if gateway is not None:
            gateway.close()


def _work(args: argparse.Namespace, settings: WorkerSettings, partitions: Sequence[int] | None) -> int:
    from penstock.streams.cli.status_line import StatusLine
    from penstock.streams.events.log_format import set_up
    from penstock.streams.topology_loading import load_topology
    from penstock.streams.worker.metrics_endpoint import MetricsEndpoint
    from penstock.streams.worker.restore_progress import RestoreBars
    from penstock.streams.worker.supervisor import on_supervisor_gone
    from penstock.streams.worker.worker import Worker

    set_up(args.log_level, args.log_format, args.process_number)
    endpoint = None
    if args.metrics_socket is not None:
        endpoint = MetricsEndpoint(Path(args.metrics_socket))
    elif settings.metrics_port:
        endpoint = MetricsEndpoint((settings.metrics_host, settings.metrics_port))
    topology = load_topology(args.topology)
    with RestoreBars() as bars:
        worker = Worker(
            topology,
            settings,
            partitions=partitions,
            on_progress=bars.update,
            log_records=args.log_records,
            endpoint=endpoint,
            slot=args.process_number or 0,
        )

        def stop(number: int, _: object) -> None:
            if number == signal.SIGINT and sys.stderr.isatty():
                os.write(sys.stderr.fileno(), _STOPPING)  # a signal may interrupt a buffered write
            worker.request_stop()

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop)
        on_supervisor_gone(worker.request_stop)
        with StatusLine(worker.status, args.process_number):
            worker.run()
    return 0


def _partitions(text: str | None) -> Sequence[int] | None:
    if text is None:
        return None
    from penstock.state.errors import SettingsError

    try:
        return [int(p) for p in text.split(",")]
    except ValueError as exc:
        raise SettingsError(f"--partitions {text}: write numbers with commas between them, such as 0,3") from exc
