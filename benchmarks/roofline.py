"""``python -m benchmarks.roofline``: what this machine can do at most, one part at a time: memory, disk, RocksDB, decoding,
and the log with a real broker beside it. The table goes to standard output, the figures to
``var/benchmarks/roofline-<kind of machine>.json``, where the benchmark finds its denominators.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks import ceilings_local, ceilings_log
from benchmarks.ceiling import FILE
from benchmarks.harness import add_broker, broker, kept_path, say, work_folder
from benchmarks.machine import kind, machine
from benchmarks.measured import Ceiling
from benchmarks.report import markdown
from benchmarks.topics import Log

GROUPS = ("memory", "disk", "decode", "rocksdb", "log", "commit")


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.roofline", description="Ceilings of this machine.")
    parser.add_argument("--quick", action="store_true", help="fewer records, a minute or two less")
    parser.add_argument("--groups", nargs="+", choices=GROUPS, default=list(GROUPS), help="of: %(choices)s (all)")
    parser.add_argument(
        "--keep", metavar="NAME", help="add the figures to benchmarks/results/NAME.jsonl, for the report"
    )
    add_broker(parser)
    return parser.parse_args(argv)


def ceilings(options: argparse.Namespace, work: Path) -> Iterator[Ceiling]:
    """Each group in turn."""
    size = 1 if options.quick else 4
    local: dict[str, Callable[[], Iterator[Ceiling]]] = {
        "memory": lambda: ceilings_local.memory(size * 2),
        "disk": lambda: ceilings_local.disk(work, 256 * size),
        "decode": lambda: ceilings_local.decoding(100_000 * size),
        "rocksdb": lambda: ceilings_local.rocksdb(work, 250_000 * size),
    }
    for group, make in local.items():
        if group in options.groups:
            yield from make()
    if not {"log", "commit"}.intersection(options.groups):
        return
    with broker(options) as (bootstrap, _):
        log = Log(bootstrap, work)
        if "log" in options.groups:
            yield from ceilings_log.log_ceilings(log, 500_000 if options.quick else 1_000_000)
        if "commit" in options.groups:
            yield from ceilings_log.transactions(log, 100 * size)


def table(rows: list[Ceiling]) -> str:
    """The figures for the eye."""
    body = [
        [
            row.group,
            row.name,
            f"{row.bytes:.0f}" if row.bytes else "-",
            "-" if row.per_s <= 0 else f"{row.per_s:,.0f} {row.unit}/s",
            "-" if row.per_s <= 0 else f"{row.cpu_us:,.2f}",
            row.note,
        ]
        for row in rows
    ]
    return markdown(["group", "what", "bytes", "ceiling", "CPU µs each", "note"], body)


def main(argv: list[str] | None = None) -> int:
    """Measure, print, keep."""
    options = arguments(argv)
    work = work_folder(options)
    rows: list[Ceiling] = []
    began = time.monotonic()
    for row in ceilings(options, work):
        say(f"{row.group}: {row.name}: {row.per_s:,.0f} {row.unit}/s {row.note}")
        rows.append(row)
    print(table(rows))
    kept: dict[str, Any] = {"kind": "roofline", "machine": machine(), "rows": [row._asdict() for row in rows]}
    if set(options.groups) == set(GROUPS):
        path = work / FILE.format(machine=kind())
        path.write_text(json.dumps(kept, indent=1) + "\n")
        say(f"{time.monotonic() - began:.0f} s; kept in {path}")
    if options.keep:
        with kept_path(options.keep).open("a") as out:
            out.write(json.dumps(kept) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
