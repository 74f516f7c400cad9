"""``penstock up``, ``down`` and ``status``: a Kafka cluster on this machine."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from penstock.streams.cli.client_options import pairs

EXIT_NOT_RUNNING = 3  # as `systemctl status` has it, so that scripts can tell it from a failure


def register(subparsers: Any) -> None:
    """Add the three commands."""
    up = subparsers.add_parser("up", help="start a Kafka cluster on this machine")
    up.add_argument("--brokers", type=int, default=1, metavar="N", help="how many (default: 1)")
    up.add_argument(
        "--port", type=int, metavar="N", help="port of the first broker; the others follow (default: free ports)"
    )
    up.add_argument("--data", type=Path, metavar="DIR", help="keep the data here (default: a temporary folder)")
    up.add_argument("--heap", default="512m", metavar="SIZE", help="Java heap of each broker (default: 512m)")
    up.add_argument(
        "--config", action="append", default=[], metavar="KEY=VALUE", help="any broker setting (repeatable)"
    )
    up.add_argument("--start-timeout", type=float, default=180.0, metavar="S", help="seconds to wait (default: 180)")
    up.set_defaults(run=run, action=_up)
    down = subparsers.add_parser("down", help="stop it; temporary data are removed")
    down.set_defaults(run=run, action=_down)
    status = subparsers.add_parser(
        "status", help="show whether it runs, and where", epilog=f"Exit code {EXIT_NOT_RUNNING}: it is not running."
    )
    status.set_defaults(run=run, action=_status)
    for parser in (up, down, status):
        parser.add_argument("--name", default="default", help="of the cluster, when there are several")


def run(args: argparse.Namespace) -> int:
    """Do what was asked."""
    code: int = args.action(args)
    return code


def _up(args: argparse.Namespace) -> int:
    from penstock.streams.kafka.embedded import ClusterSettings, start_detached

    settings = ClusterSettings(
        brokers=args.brokers,
        port=args.port,
        data_dir=args.data,
        heap=args.heap,
        configs=pairs(args.config, "--config"),
        start_timeout_s=args.start_timeout,
    )
    begun = time.monotonic()
    record = start_detached(settings, args.name)
    print(f"Kafka is up after {time.monotonic() - begun:.1f} s")
    print(f"bootstrap servers: {record.bootstrap_servers}")
    print(f"data: {record.data_dir}{' (temporary)' if record.temporary else ''}")
    print(f"stop it with: penstock down{_named(args.name)}")
    return 0


def _down(args: argparse.Namespace) -> int:
    from penstock.streams.kafka.embedded import stop_detached

    before = stop_detached(args.name)
    if before.record is None:
        print(f"no cluster {args.name!r} was running")
    elif before.state == "dead":
        print(f"the cluster {args.name!r} had ended by itself; its state file is removed")
    else:
        print(f"the cluster {args.name!r} is stopped")
    if before.record is not None and not before.record.temporary:
        print(f"its data are kept in {before.record.data_dir}")
    return 0


def _status(args: argparse.Namespace) -> int:
    from penstock.streams.kafka.embedded import status_of

    status = status_of(args.name)
    if status.record is None:
        print(f"the cluster {args.name!r} is down. Start it with: penstock up{_named(args.name)}")
        return EXIT_NOT_RUNNING
    print(f"the cluster {args.name!r} is {status.state}")
    print(f"bootstrap servers: {status.record.bootstrap_servers}")
    print(f"data: {status.record.data_dir}{' (temporary)' if status.record.temporary else ''}")
    running = status.record.running
    for broker in status.record.brokers:
        state = f"runs as process {broker.process.pid}" if broker in running else "has ended"
        print(f"broker {broker.node_id} at {broker.bootstrap_server} {state}")
    if status.state == "dead":
        print(f"Clean up with: penstock down{_named(args.name)}")
    return 0 if status.state == "running" else EXIT_NOT_RUNNING


def _named(name: str) -> str:
    return "" if name == "default" else f" --name {name}"
