"""``python -m benchmarks``: run the workloads on Penstock and its peers by turns, print the tables.

Progress goes to standard error, the tables to standard output, every run as a line of JSON to the results file.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.bench import Bench
from benchmarks.ceiling import Ceilings
from benchmarks.drain import drain, summary
from benchmarks.latency import latency
from benchmarks.machine import machine
from benchmarks.restore import restore_pair
from benchmarks.systems import DEFAULT_SYSTEMS, GUARANTEES, PEERS, ROOT, SYSTEMS, System
from benchmarks.topics import Log
from benchmarks.workloads import WORKLOADS, Variant

EXTRA_WORKLOADS = ("restore", "latency")
RESTORE_SIZES = (500_000, 2_000_000)
RESTORING = ("penstock", "kafka-streams")
LATENCY_RATE_PER_S = 5_000


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Penstock beside its peers on one Kafka.")
    parser.add_argument("--workloads", nargs="+", choices=[*WORKLOADS, *EXTRA_WORKLOADS], metavar="NAME",
                        default=[*WORKLOADS, *EXTRA_WORKLOADS], help="of: %(choices)s (default: all)")  # fmt: skip
    parser.add_argument("--systems", nargs="+", choices=list(SYSTEMS), metavar="NAME", default=list(DEFAULT_SYSTEMS),
                        help=f"of: %(choices)s (default: {' '.join(DEFAULT_SYSTEMS)})")  # fmt: skip
    parser.add_argument("--guarantees", nargs="+", choices=list(GUARANTEES), default=list(GUARANTEES))
    parser.add_argument("--repetitions", type=int, default=3, help="runs per row; systems take turns (default: 3)")
    parser.add_argument("--records", type=int, help="records of a run, instead of the workload's own")
    parser.add_argument("--part", type=float, default=1.0, help="of the workload's own records (default: 1)")
    parser.add_argument("--keys", type=int, default=Variant.keys, help="users of clicks (default: %(default)s)")
    parser.add_argument("--partitions", type=int, default=Variant.partitions, help="of every topic (%(default)s)")
    parser.add_argument("--window-ms", type=int, default=Variant.window_ms, help="windows of ysb (%(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="Kafka Streams threads, Penstock processes (default: 1)")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds after which a run is given up")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="for every program's environment")
    parser.add_argument("--peers-dir", type=Path, default=PEERS, help="where the peers' programs are")
    parser.add_argument(
        "--bootstrap", help="a running broker on this machine, instead of one started for the benchmark"
    )
    parser.add_argument("--broker-pid", type=int, help="that broker's process, so that its CPU is counted")
    parser.add_argument("--work", type=Path, default=ROOT / "var" / "benchmarks", help="scratch folder (%(default)s)")
    return parser.parse_args(argv)


@contextlib.contextmanager
def broker(options: argparse.Namespace) -> Iterator[tuple[str, int | None]]:
    """Address and process of the broker."""
    if options.bootstrap:
        yield options.bootstrap, options.broker_pid
        return
    from penstock.streams.kafka.embedded import EmbeddedKafka

    with EmbeddedKafka(heap="768m") as kafka:
        yield kafka.bootstrap_servers, kafka.pid(0)


def say(text: str) -> None:
    """One line of progress."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def drains(bench: Bench, systems: list[System], options: argparse.Namespace) -> list[dict[str, Any]]:
    """Every drain of the plan; within a workload the systems take turns, so that noise falls on all alike."""
    results: list[dict[str, Any]] = []
    ceilings = Ceilings.read(bench.work)
    for workload in (name for name in WORKLOADS if name in options.workloads):
        for guarantee in options.guarantees:
            for repetition in range(options.repetitions):
                # Turns the other way round in every second repetition: what drifts falls on all alike.
                for system in systems[:: -1 if repetition % 2 else 1]:
                    own = WORKLOADS[workload].records.get(system.program)
                    if own is None or guarantee not in system.guarantees:
                        continue
                    say(f"{workload} {guarantee} {system.name} {repetition + 1} of {options.repetitions}")
                    run = drain(bench, system, workload, guarantee, options.records or int(own * options.part))
                    result = {**summary(bench, run), "repetition": repetition}
                    result["ceiling"] = ceilings.of(WORKLOADS[workload], result) if ceilings else None
                    bench.write("drain", result)
                    say(f"  {result['void'] or report.one_line(result)}")
                    results.append(result)
    return results


def extras(bench: Bench, systems: list[System], options: argparse.Namespace) -> Iterator[tuple[str, dict[str, Any]]]:
    """Restores and latencies."""
    for guarantee in options.guarantees:
        for system in (system for system in systems if system.name in RESTORING):
            if "restore" in options.workloads:
                say(f"restore {guarantee} {system.name}")
                yield "restore", restore_pair(bench, system, guarantee, RESTORE_SIZES)
            if "latency" in options.workloads:
                say(f"latency {guarantee} {system.name}")
                yield "latency", latency(bench, system, guarantee, LATENCY_RATE_PER_S)


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark; 1 if any of Penstock's results is void."""
    options = arguments(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # unwinds, so that programs are stopped
    work: Path = options.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    results_path = work / f"results-{time.strftime('%Y-%m-%d-%H%M%S')}.jsonl"
    found: dict[str, list[dict[str, Any]]] = {"drain": [], "restore": [], "latency": []}
    variant = Variant(options.keys, options.partitions, options.window_ms)
    with broker(options) as (bootstrap, pid):
        bench = Bench(
            Log(bootstrap, work, variant), pid, work, options.peers_dir.resolve(), results_path, options.threads,
            options.limit, dict(setting.split("=", 1) for setting in options.set),
        )  # fmt: skip
        bench.write("machine", machine())
        systems = [SYSTEMS[name] for name in options.systems]
        found["drain"] = drains(bench, systems, options)
        for kind, result in extras(bench, systems, options):
            bench.write(kind, result)
            found[kind].append(result)
    tables = {"drain": report.drain_table, "restore": report.restore_table, "latency": report.latency_table}
    for kind, results in found.items():
        if results:
            print(f"{kind.capitalize()}\n\n{tables[kind](results)}\n")
    say(f"every run: {results_path}")
    return int(
        any(result["void"] for results in found.values() for result in results if result["system"] == "penstock")
    )


if __name__ == "__main__":
    sys.exit(main())
