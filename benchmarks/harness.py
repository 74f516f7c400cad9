"""What every benchmark's command line has in common: its broker, where it works, where results are kept."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.machine import machine
from benchmarks.systems import PEERS, ROOT
from benchmarks.topics import DEFAULTS, Log
from benchmarks.workloads import Variant

RESULTS = Path(__file__).parent / "results"


def add_common(parser: argparse.ArgumentParser) -> None:
    """Arguments that ``open_bench`` reads."""
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="for every program's environment")
    parser.add_argument("--threads", type=int, default=1, help="Kafka Streams threads, Penstock processes (default: 1)")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds after which a run is given up")
    parser.add_argument("--peers-dir", type=Path, default=PEERS, help="where the peers' programs are")
    parser.add_argument(
        "--keep", metavar="NAME", help="add the results to benchmarks/results/NAME.jsonl, for the report"
    )
    add_broker(parser)


def add_broker(parser: argparse.ArgumentParser) -> None:
    """Arguments that ``broker`` reads, and the scratch folder."""
    parser.add_argument("--bootstrap", help="a running broker on this machine, instead of one started for this")
    parser.add_argument("--broker-pid", type=int, help="that broker's process, so that its CPU is counted")
    parser.add_argument("--work", type=Path, default=ROOT / "var" / "benchmarks", help="scratch folder (%(default)s)")


@contextlib.contextmanager
def broker(options: argparse.Namespace) -> Iterator[tuple[str, int | None]]:
    """Address and process of the broker. SIGTERM unwinds from here on, so that all that was started is stopped."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if options.bootstrap:
        yield options.bootstrap, options.broker_pid
        return
    from penstock.streams.kafka.embedded import EmbeddedKafka

    with EmbeddedKafka(heap="768m") as kafka:
        yield kafka.bootstrap_servers, kafka.pid(0)


def work_folder(options: argparse.Namespace) -> Path:
    """The scratch folder, made if it is missing."""
    work: Path = options.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    return work


def kept_path(name: str) -> Path:
    """A results file for the report."""
    RESULTS.mkdir(exist_ok=True)
    return RESULTS / f"{name}.jsonl"


class Opened:
    """A broker that runs, and benchmarks on it, one per variant. Its first result names the machine."""

    def __init__(self, options: argparse.Namespace, bootstrap: str, pid: int | None) -> None:
        self._options, self._bootstrap, self._pid = options, bootstrap, pid
        self.work = work_folder(options)
        self.results = self.work / f"results-{time.strftime('%Y-%m-%d-%H%M%S')}.jsonl"
        self.bench().write("machine", machine())

    def bench(self, variant: Variant = DEFAULTS) -> Bench:
        """A benchmark whose topics are made for the variant."""
        options = self._options
        return Bench(
            Log(self._bootstrap, self.work, variant),
            self._pid,
            self.work,
            options.peers_dir.resolve(),
            self.results,
            options.threads,
            options.limit,
            dict(setting.split("=", 1) for setting in options.set),
            kept_path(options.keep) if options.keep else None,
        )


@contextlib.contextmanager
def open_bench(options: argparse.Namespace) -> Iterator[Opened]:
    """Benchmarks on one broker, by the arguments of ``add_common``."""
    with broker(options) as (bootstrap, pid):
        opened = Opened(options, bootstrap, pid)
        yield opened
        say(f"every run: {opened.results}")


def say(text: str) -> None:
    """One line of progress."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


class Budget:
    """Minutes that a command may take: ``allows`` is false when what comes next, if it lasts as long as the longest so
    far, would pass them."""

    def __init__(self, minutes: float) -> None:
        self._ends_s = time.monotonic() + minutes * 60
        self._longest_s = 0.0
        self._began_s = time.monotonic()

    def allows(self, what: str) -> bool:
        """Ask before each step; says what is left out."""
        now = time.monotonic()
        self._longest_s = max(self._longest_s, now - self._began_s)
        self._began_s = now
        if now + self._longest_s <= self._ends_s:
            return True
        say(f"no time left for {what}: give it a larger --budget-min")
        return False
