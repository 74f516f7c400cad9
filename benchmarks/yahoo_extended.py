"""``python -m benchmarks.yahoo_extended``: the Yahoo Streaming Benchmark without its sink, as its extension for engines
with state has it: views are counted in the engine's windows and read from there. ``TEXT`` says what is measured.

Minutes for two cores: 6; with ``--records 3000000 --rate 2000 --seconds 20``: 2.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka import Message
from rocksdict import Rdict

from benchmarks import data, oracle
from benchmarks.bench import Bench
from benchmarks.drain import watch
from benchmarks.harness import add_common, open_bench, say
from benchmarks.live import Receiver, quantiles, run_worker, send_at_rate, start_worker
from benchmarks.oracle import Verdict
from benchmarks.processes import stop
from benchmarks.report import markdown
from benchmarks.steady import Steady, steady
from benchmarks.systems import GUARANTEES, SYSTEMS
from benchmarks.yahoo_events import Live, Window
from penstock.state.machine.state_directory import StateDirectory
from penstock.state.rocksdb.rocksdb_backend import RocksDBBackend
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.examples.ysb import Ad, AdEvent
from penstock.topologies.expressions.functions import col, lit, right, value
from penstock.topologies.graph.topology import Topology
from penstock.topologies.windows import tumbling

TEXT = """Views per campaign and ten seconds, kept in a window store and its changelog, with no output topic. *Drain*:
events/s and CPU of a topic that is full already. *Live*: events sent by the clock, with times up to 50 ms off either way,
one in 100,000 up to a minute late; a window is late by the time from its end (or, for late events, from its last one) until
its final count is read, committed, from the changelog. Counts are read from the stopped worker's store and must be those of
the numbers behind the events."""
STORE = "windows"
AFTER_S = 10.0


def build(events: str, ads: str) -> Topology:
    """Views per campaign and window, in the store ``STORE`` alone."""
    builder = StreamsBuilder("ysb-state", key=str, emission="per_commit")
    campaigns = builder.table(ads, value=Ad)
    views = builder.stream(events, value=AdEvent).filter_values(col("event_type") == "view")
    by_campaign = views.join(campaigns, right("campaign_id"), value=str).select_key(value(), key=str)
    grouped = by_campaign.map_values(lit(b""), value=bytes).group_by_key()
    grouped.windowed_by(tumbling(data.WINDOW_MS, grace="1h")).count(name=STORE)
    return builder.build()


def changelog_entry(key: bytes, count: bytes) -> tuple[Window, int]:
    """Campaign, start of the window and count of a record of the changelog: key | start (8) | 0 (4)."""
    return (key[:-12].decode(), int.from_bytes(key[-12:-4], "big")), oracle.big_endian(count)


def stored(state_dir: Path, application: str) -> dict[str, int]:
    """The counts in the stores of a stopped worker, by ``<campaign>@<window start in ms>``."""
    directory, counts = StateDirectory(state_dir, application), dict[str, int]()
    for task in directory.tasks():
        path = directory.database_path(task)
        stores = [name for name in Rdict.list_cf(str(path)) if name != "default"]
        if STORE not in stores:
            continue
        backend = RocksDBBackend(path, stores)
        try:
            for key, count in backend.range(STORE, None, None):
                counts[f"{key[8:].decode()}@{int.from_bytes(key[:8], 'big')}"] = oracle.big_endian(count)
        finally:
            backend.close()
    return counts


def lateness_ms(
    views: dict[Window, int], last_us: dict[Window, int], seen: dict[Window, tuple[int, int]]
) -> list[float]:
    """Of each window whose final count was seen: from its end, or its last event if that was later, to when (µs)."""
    found = []
    for window, (count, came_us) in seen.items():
        if views.get(window) == count:
            found.append((came_us - max((window[1] + data.WINDOW_MS) * 1000, last_us[window])) / 1000)
    return found


def drained(bench: Bench, guarantee: str, records: int) -> dict[str, Any]:
    """Events/s of a full topic, and its counts from the store; as plain values."""
    application, topic = bench.new_application(SYSTEMS["penstock"], "ysb-state"), bench.load("ysb", records)
    process = start_worker(bench, "benchmarks.yahoo_extended", _words(bench, topic), application, guarantee, {})
    try:
        samples, done = watch(bench, process, application, topic, records, guarantee)
    finally:
        stop(process)
    expected = oracle.views_per_window(records, bench.log.base_ms)
    verdict = oracle.compare_counts(expected, stored(bench.state_folder(application), application))
    bench.clean(application)
    part = steady(samples, records)
    if done is None:
        verdict = Verdict(False, f"not done in time, see logs/{application}.log")
    facts = {"mode": "drain", "guarantee": guarantee, "events": records, "check": verdict.reason}
    facts["peak_bytes"] = max((s.resident_bytes for s in samples), default=0)
    if isinstance(part, Steady):
        facts |= {"events_per_s": part.records_per_s, "cpu_s_per_million": part.cpu_s_per_million}
    elif verdict.right:
        verdict = Verdict(False, part)
    return {**facts, "void": "" if verdict.right else verdict.reason}


def live(bench: Bench, guarantee: str, rate_per_s: float, seconds: float) -> dict[str, Any]:
    """Lateness of window results at a rate, and the counts from the store; as plain values."""
    application = bench.new_application(SYSTEMS["penstock"], "ysb-live")
    bench.log.load("ads", data.ADS)
    topic = f"{application}-in"
    bench.log.create(topic)
    sender, seen = Live(bench.log.bootstrap, topic), dict[Window, tuple[int, int]]()
    process = start_worker(bench, "benchmarks.yahoo_extended", _words(bench, topic), application, guarantee, {})
    facts: dict[str, Any] = {"mode": "live", "guarantee": guarantee, "events_per_s": rate_per_s}

    def take(messages: list[Message], came_us: int) -> None:
        for message in messages:
            if (key := message.key()) is not None and (count := message.value()) is not None:
                window, views = changelog_entry(key, count)
                seen[window] = views, came_us

    try:
        sender.warm(data.ADS)
        patience = time.monotonic() + bench.limit_s
        while (progress := bench.log.progress(application, topic)) is None or progress.committed < data.ADS:
            if process.poll() is not None or time.monotonic() > patience:
                return {**facts, "void": f"nothing was committed, see logs/{application}.log"}
            time.sleep(0.2)
        changelog = next(t for t in bench.log.internal_topics(application, "changelog") if STORE in t)
        receiver = Receiver(bench.log.bootstrap, [changelog], bench.variant.partitions, take)
        receiver.start()
        try:
            behind_s = send_at_rate(sender.send, rate_per_s, seconds)
            sender.flush()
            patience = time.monotonic() + AFTER_S
            while {w: c for w, (c, _) in list(seen.items())} != sender.views and time.monotonic() < patience:
                time.sleep(0.2)
        finally:
            receiver.close()
    finally:
        stop(process)
    expected = {f"{campaign}@{start}": views for (campaign, start), views in sender.views.items()}
    verdict = oracle.compare_counts(expected, stored(bench.state_folder(application), application))
    bench.clean(application)
    waits = np.array(lateness_ms(sender.views, sender.last_us, seen))
    facts |= {"events": int(rate_per_s * seconds), "windows": len(waits), "sender_behind_s": behind_s}
    return {**facts, **quantiles(waits), "check": verdict.reason, "void": "" if verdict.right else verdict.reason}


def _words(bench: Bench, topic: str) -> list[str]:
    ads = bench.log.load("ads", data.ADS)
    return ["--worker", topic, ads]


def table(results: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Head and rows."""
    rows = []
    for r in results:
        cells = [f"{r[name]:,.{places}f}" if name in r and not r["void"] else "-"
                 for name, places in (("events", 0), ("events_per_s", 0), ("cpu_s_per_million", 2), ("windows", 0),
                                      ("p50_ms", 0), ("p99_ms", 0), ("max_ms", 0))]  # fmt: skip
        rows.append([r["mode"], r["guarantee"], *cells, f"VOID: {r['void']}" if r["void"] else r["check"]])
    head = ["mode", "guarantee", "events", "events/s", "CPU s/M", "windows", "late p50 ms", "p99 ms", "max ms"]
    return [*head, "counts in the store"], rows


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.yahoo_extended",
        description="The Yahoo benchmark with results read from state. 6 minutes; with --records 3000000 "
        "--rate 2000 --seconds 20, 2.",
    )
    parser.add_argument("--records", type=int, default=8_000_000, help="events that are drained; 0: none (%(default)s)")
    parser.add_argument("--rate", type=float, default=10_000.0, help="events a second (%(default)s)")
    parser.add_argument("--seconds", type=float, default=120.0, help="that they are sent; 0: not (%(default)s)")
    parser.add_argument("--guarantees", nargs="+", choices=list(GUARANTEES), default=["ALO"])
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    add_common(parser)
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Measure and print; 1 if a result is void."""
    options = arguments(argv)
    if options.worker:
        run_worker(build(*options.worker))
        return 0
    results: list[dict[str, Any]] = []
    with open_bench(options) as opened:
        bench = opened.bench()
        for guarantee in options.guarantees:
            if options.records:
                say(f"draining {options.records:,} events, {guarantee}")
                results.append(drained(bench, guarantee, options.records))
                bench.write("yahoo_extended", results[-1])
            if options.seconds:
                say(f"{options.rate:,.0f} events/s for {options.seconds:.0f} s, {guarantee}")
                results.append(live(bench, guarantee, options.rate, options.seconds))
                bench.write("yahoo_extended", results[-1])
        head, rows = table(results)
        title = "The Yahoo benchmark with results read from state"
        bench.write("table", {"title": title, "text": TEXT, "head": head, "rows": rows})
    print(markdown(head, rows))
    return int(any(r["void"] for r in results))


if __name__ == "__main__":
    sys.exit(main())
