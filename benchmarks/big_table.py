"""``python -m benchmarks.big_table``: ``enrich`` with a table ten times the worker's memory limit, which its setting
``memory_max_bytes`` keeps; ``TEXT`` says what is measured.

Minutes for two cores: 5 with a table of 10 GB under 1 GB (the broker and the worker each hold it on disk, 25 GB together),
4 with ``--table-bytes 1e9 --memory 300e6``, 1 with ``--table-bytes 1e8 --memory 250e6 --scale 0.2``.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from benchmarks import data
from benchmarks.bench import Bench
from benchmarks.clicks import Clicks, Enriched, lost, settle
from benchmarks.harness import add_common, open_bench, say
from benchmarks.live import Receiver, now_us, quantiles, send_at_rate
from benchmarks.processes import stop, tree, usage
from benchmarks.report import markdown
from benchmarks.systems import GUARANTEES, SYSTEMS
from benchmarks.workloads import Variant

TEXT = """Profiles of a kilobyte that hardly compress, chosen evenly, so that nearly every look-up misses what memory holds.
The worker's resident bytes are sampled ten times a second from its start, loading included. *p99* is at a steady rate;
*records/s* of a backlog, from 40 % of it to its end. Every click must come back with its own user's profile."""
PADDING = 900
POOL = 1 << 20
BACKLOG, RATE, LIVE_S = 400_000, 1_000.0, 60.0


def pool() -> str:
    """Text in which no part comes twice."""
    letters = np.frombuffer(b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_", np.uint8)
    return np.random.default_rng(data.SEED).choice(letters, POOL + PADDING).tobytes().decode()


def name_of(user: int, text: str) -> str:
    """The name in the user's profile: its own, and a part of ``pool()`` that begins where the user's number says."""
    start = user * 7_919 % POOL
    return f"User Number {user:07d} {text[start : start + PADDING]}"


def profiles(rows: int, base_ms: int) -> Iterator[tuple[bytes, bytes, int]]:
    """The table's records."""
    text = pool()
    for user in range(rows):
        value = f'{{"name":"{name_of(user, text)}","age":{user % 90},"city":"c","tier":"gold","since":"2020-01-01"}}'
        yield data.user_key(user), value.encode(), base_ms - 3_600_000


def row_bytes() -> int:
    """Of a record of the table, key and value."""
    key, value, _ = next(profiles(1, 0))
    return len(key) + len(value)


class Memory(threading.Thread):
    """Samples the resident bytes of a process and all below it."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.peak_bytes = 0
        self._pid, self._halt = pid, threading.Event()

    def run(self) -> None:
        """Until ``close``."""
        while not self._halt.wait(0.1):
            self.peak_bytes = max(self.peak_bytes, usage(tree(self._pid)).resident_bytes)

    def close(self) -> None:
        """End it."""
        self._halt.set()
        self.join()


class Load(NamedTuple):
    """Rows of the table, the memory limit, clicks a second and for how long, and clicks of the backlog."""

    rows: int
    memory_bytes: int
    rate_per_s: float
    live_s: float
    backlog: int


def big_table(bench: Bench, guarantee: str, load: Load) -> dict[str, Any]:
    """One run, as plain values; ``void`` says why it tells nothing."""
    application = bench.new_application(SYSTEMS["penstock"], "big-table")
    names = {suffix: f"{application}-{suffix}" for suffix in ("in", "out", "users")}
    bench.log.create(names["in"])
    bench.log.create(names["out"])
    # No key comes twice, so compacting would only copy the table while it is measured.
    bench.log.create(names["users"], {"cleanup.policy": "compact", "min.compaction.lag.ms": str(1 << 60)})
    say(f"writing a table of {load.rows:,} rows")
    bench.log.write(names["users"], profiles(load.rows, bench.log.base_ms))
    settings = {"PENSTOCK_MEMORY_MAX_BYTES": str(load.memory_bytes)}
    more = {"COMMIT_MS": "100", "TOPIC_TABLE": names["users"], **settings}
    facts = {"guarantee": guarantee, **load._asdict(), "table_bytes": load.rows * row_bytes(), "settings": settings}
    process = bench.start(SYSTEMS["penstock"], "enrich", guarantee, application, names["in"], more)
    memory, text = Memory(process.pid), pool()
    memory.start()
    enriched = Enriched(lambda user: name_of(user, text))
    receiver = Receiver(bench.log.bootstrap, [names["out"]], bench.variant.partitions, enriched.take)
    receiver.start()
    try:
        clicks = Clicks(bench.log.bootstrap, names["in"], load.rows)
        found = _measure(bench, process, clicks, enriched, load)
    finally:
        memory.close()
        stop(process)
        receiver.close()
        bench.clean(application)
    over = memory.peak_bytes > load.memory_bytes
    return {**facts, **found, "peak_bytes": memory.peak_bytes, "under_limit": not over}


def _measure(
    bench: Bench, process: subprocess.Popen[bytes], clicks: Clicks, enriched: Enriched, load: Load
) -> dict[str, Any]:
    began_s = time.monotonic()
    if void := settle(process, clicks, enriched, bench.limit_s):
        return {"void": void}
    loaded_s = time.monotonic() - began_s
    send_at_rate(clicks.send, load.rate_per_s, load.live_s / 6)
    first = clicks.sent
    say(f"  loaded in {loaded_s:.0f} s; {load.rate_per_s:,.0f} clicks/s for {load.live_s:.0f} s")
    send_at_rate(clicks.send, load.rate_per_s, load.live_s)
    clicks.flush()
    _, due, came = enriched.await_all(first, clicks.sent, bench.limit_s)
    waits_ms = (came - due) / 1000
    backlog, before = clicks.sent, usage(tree(process.pid)).cpu_s
    say(f"  a backlog of {load.backlog:,} clicks")
    for start in range(0, load.backlog, 2_000):
        clicks.send(np.full(min(2_000, load.backlog - start), now_us()))
    clicks.flush()
    numbers, _, came = enriched.await_all(first, clicks.sent, bench.limit_s)
    cpu_s = usage(tree(process.pid)).cpu_s - before
    return {
        "void": lost(clicks, first, numbers, enriched),
        "loaded_s": loaded_s,
        "records_per_s": rate(np.sort(came[numbers >= backlog]).tolist()),
        "cpu_s_per_million": cpu_s / load.backlog * 1e6,
        **quantiles(waits_ms),
    }


def rate(came_us: list[int]) -> float:
    """Arrivals per second from 40 % of them on; times ascend. Not a number if all came at once."""
    start = len(came_us) * 2 // 5
    passed_us = came_us[-1] - came_us[start] if came_us else 0
    return (len(came_us) - 1 - start) / passed_us * 1e6 if passed_us else float("nan")


def table(results: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Head and rows."""
    head = ["guarantee", "table MB", "limit MB", "peak RSS MB", "under it", "records/s", "CPU s/M", "clicks/s"]
    rows = []
    for r in results:
        row = [r["guarantee"], *(f"{r[name] / 1e6:,.0f}" for name in ("table_bytes", "memory_bytes", "peak_bytes"))]
        row.append("yes" if r["under_limit"] else "NO")
        if r["void"]:
            rows.append([*row, "-", "-", f"{r['rate_per_s']:,.0f}", "-", "-", f"VOID: {r['void']}"])
            continue
        row += [f"{r['records_per_s']:,.0f}", f"{r['cpu_s_per_million']:.1f}", f"{r['rate_per_s']:,.0f}"]
        rows.append([*row, f"{r['p50_ms']:.0f}", f"{r['p99_ms']:.0f}", "every click with its own profile"])
    return [*head, "p50 ms", "p99 ms", "check"], rows


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.big_table",
        description="enrich with a table ten times the memory limit. 5 minutes and 25 GB of disk by default; "
        "with --table-bytes 1e9 --memory 300e6, 4; with --table-bytes 1e8 --memory 250e6 --scale 0.2, 1.",
    )
    parser.add_argument("--table-bytes", type=float, default=10e9, help="keys and values of the table (%(default).0f)")
    parser.add_argument(
        "--memory", type=float, default=1e9, help="limit of the worker's resident bytes (%(default).0f)"
    )
    parser.add_argument("--rate", type=float, default=RATE, help="clicks a second for the p99 (%(default)s)")
    parser.add_argument("--scale", type=float, default=1.0, help="of the backlog and of the time at the rate")
    parser.add_argument("--guarantees", nargs="+", choices=list(GUARANTEES), default=["ALO"])
    add_common(parser)
    parser.set_defaults(limit=1_800.0)
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Measure and print; 1 if a result is void or memory went over the limit."""
    options = arguments(argv)
    rows = max(1, int(options.table_bytes / row_bytes()))
    scale = options.scale
    load = Load(rows, int(options.memory), options.rate, LIVE_S * scale, int(BACKLOG * scale))
    results = []
    with open_bench(options) as opened:
        bench = opened.bench(Variant(keys=rows))
        for guarantee in options.guarantees:
            results.append(big_table(bench, guarantee, load))
            bench.write("big_table", results[-1])
        head, cells = table(results)
        title = "A table larger than memory"
        bench.write("table", {"title": title, "text": TEXT, "head": head, "rows": cells})
    print(markdown(head, cells))
    return int(any(r["void"] or not r["under_limit"] for r in results))


if __name__ == "__main__":
    sys.exit(main())
