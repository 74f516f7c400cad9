"""``penstock worker``: run a topology in this process, or in several supervised ones."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from typing import Any

from penstock.streams.cli.client_options import SETTINGS_SERVERS, above_zero, add_settings_file, add_topology

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
    parser.add_argument("--state-dir", metavar="DIR", help="where stores lie (default: .penstock)")
    parser.add_argument(
        "--guarantee",
        choices=["at_most_once", "at_least_once", "exactly_once"],
        help="what a crash may do to records (default: at_least_once)",
    )
    parser.add_argument(
        "--latency",
        choices=["balanced", "low"],
        help="low: no record waits for company, at the price of more and smaller requests (default: balanced)",
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
        help="what each worker process is to take at most (default: no bound)",
    )
    parser.add_argument(
        "--metrics-port",
        type=int,
        metavar="PORT",
        help="serve metrics for Prometheus on 127.0.0.1, at /metrics (default: off)",
    )
    parser.add_argument(
        "--partitions",
        metavar="0,3",
        help="run these partitions, outside the group (default: those that the group gives)",
    )
    parser.add_argument(
        "--processes",
        type=above_zero,
        default=1,
        metavar="N",
        help="start and supervise N worker processes (default: 1)",
    )
    parser.set_defaults(run=run)


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
)


def run(args: argparse.Namespace) -> int:
    """Run until SIGTERM, SIGINT, ``ctx.shutdown()`` or an error."""
    from penstock.state.errors import SettingsError
    from penstock.streams.cli.client_options import settings_of
    from penstock.streams.topology_loading import load_topology

    settings = settings_of(args.config, **{name: getattr(args, name) for name in SETTINGS})
    partitions = _partitions(args.partitions)
    topology = load_topology(args.topology)
    if args.processes > 1:
        if settings.metrics_port:
            raise SettingsError(
                f"metrics_port={settings.metrics_port} serves one process, but there are --processes {args.processes}; start "
                "workers one by one, each with its own port, or leave it out"
            )
        if settings.group_instance_id is not None:
            raise SettingsError(
                f"group_instance_id={settings.group_instance_id!r} identifies one process; with --processes {args.processes} the "
                "workers would fence each other; start workers one by one, each with its own id, or leave it out"
            )
        from penstock.streams.worker.supervisor import supervise

        return supervise(getattr(args, "argv", None) or sys.argv[1:], args.processes, partitions)
    from penstock.streams.worker.restore_progress import RestoreBars
    from penstock.streams.worker.supervisor import on_supervisor_gone
    from penstock.streams.worker.worker import Worker

    with RestoreBars() as bars:
        worker = Worker(topology, settings, partitions=partitions, on_progress=bars.update)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: worker.request_stop())
        on_supervisor_gone(worker.request_stop)
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
