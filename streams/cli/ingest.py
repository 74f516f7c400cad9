"""``penstock ingest``: write the records of a source to a topic, from where it stands."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from penstock.state.errors import SettingsError
from penstock.streams.cli.client_options import SETTINGS_SERVERS, settings_of
from penstock.streams.cli.counts import counted

if TYPE_CHECKING:
    from penstock.streams.connectors.ingestion import Ingestion
    from penstock.streams.connectors.ingestion_run import Progress

_SHOWN_EVERY_S: Final = 2.0


def register(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "ingest",
        help="write the records of files or a service to a topic",
        description="Run an ingestion: write what its source has, from where the last run of its name ended, and keep the "
        "position in the same transaction. Ends with 0 at the end of the source, unless the ingestion follows it. A second "
        "run of the same name ends the first.",
    )
    parser.add_argument(
        "ingestion",
        metavar="MODULE:INGESTION",
        help="a module or a .py file, and the name in it of a connectors.Ingestion",
    )
    parser.add_argument(
        "--config", metavar="FILE.toml", help="brokers and clients' keys, under [penstock], as for workers"
    )
    parser.add_argument("--bootstrap-server", dest="bootstrap_servers", metavar="HOST:PORT", help=SETTINGS_SERVERS)
    parser.add_argument(
        "--from-beginning",
        action="store_true",
        help="forget the positions first: all is written again, after what is in the topic",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run it until the source has ended, or a signal comes."""
    from penstock.streams.connectors.ingestion_run import IngestionRun
    from penstock.streams.events.port import NoEvents
    from penstock.streams.kafka.admin import KafkaAdmin
    from penstock.streams.kafka.client_config import admin_config
    from penstock.streams.worker.kafka_log import KafkaLog

    ingestion = loaded(args.ingestion)
    settings = settings_of(args.config, application_id=ingestion.name, bootstrap_servers=args.bootstrap_servers)
    KafkaAdmin(admin_config(settings.bootstrap_servers, settings.common)).require_answer()
    stopping, shown = threading.Event(), ShownProgress(ingestion)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    work = IngestionRun(
        ingestion,
        KafkaLog(settings, NoEvents()),
        now_ms=lambda: time.time_ns() // 1_000_000,
        pause=stopping.wait,
        stop=stopping.is_set,
        report=shown,
    )
    shown.done(work.run(from_beginning=args.from_beginning), stopped=stopping.is_set())
    return 0


def loaded(ref: str) -> Ingestion:
    """The ingestion that a reference names. Raises ``SettingsError`` for anything else."""
    from penstock.streams.connectors.ingestion import Ingestion
    from penstock.streams.topology_loading import load_named

    found = load_named(ref)
    if not isinstance(found, Ingestion):
        raise SettingsError(f"{ref} is a {type(found).__name__}; name a connectors.Ingestion as MODULE:NAME")
    return found


class ShownProgress:
    """Lines on standard error: every two seconds, when a wait begins, and at the end."""

    def __init__(self, ingestion: Ingestion) -> None:
        self._ingestion = ingestion
        self._shown_s = time.monotonic()
        self._waiting = ""

    def __call__(self, progress: Progress) -> None:
        """One line, if it is time for one."""
        if progress.waiting and progress.waiting != self._waiting:
            self._print(f"waiting: {progress.waiting}")
        elif time.monotonic() - self._shown_s >= _SHOWN_EVERY_S:
            self._print(
                f"{counted(progress.records, 'record')}{_skipped(progress)}, in {progress.split or 'its source'}"
            )
        self._waiting = progress.waiting

    def done(self, progress: Progress, *, stopped: bool) -> None:
        """The last line."""
        how = "stopped" if stopped else "the source has ended"
        self._print(
            f"{how}: {counted(progress.records, 'record')} written to {self._ingestion.topic}{_skipped(progress)}"
        )

    def _print(self, text: str) -> None:
        self._shown_s = time.monotonic()
        print(f"{self._ingestion.name}: {text}", file=sys.stderr)


def _skipped(progress: Progress) -> str:
    return f", {progress.skipped:,} skipped, the last one: {progress.last_skipped}" if progress.skipped else ""
