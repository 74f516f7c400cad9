"""A shop, compared with Flink SQL: ``python -m benchmarks.shop``. Its parts (sessions, a ranking,
joins with a stream and a table, a pattern, a lookup), each as an application of its own, and all in one.

Flink runs first, and Penstock's answers are held against what it wrote, row by row in any order: all results are final. The
input of a part are the streams that it reads; the tables are read before and are not counted. ``test_shop.py`` holds the
topologies against an oracle of their own.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from benchmarks import flink_sql, shop_data, shop_flink
from benchmarks.bench import Bench
from benchmarks.drain import QUIET_S
from benchmarks.goals import SHOP
from benchmarks.harness import add_common, open_bench, say
from benchmarks.live import run_worker, start_worker
from benchmarks.nexmark import SYSTEMS, Result, answers, run_to_end, table
from benchmarks.report import markdown
from benchmarks.systems import FLINK, PENSTOCK, System
from benchmarks.workloads import Variant
from penstock.topologies.examples import shop

CLICKS = 10_000_000
WHOLE = "all"
TABLES_S = 6.0
"""A join with a table answers when that has been read, which may be later than the stream has."""
READS: Mapping[str, tuple[str, ...]] = {
    "sessions": ("clicks",),
    "top": ("clicks",),
    "sales": ("orders", "payments"),
    "alerts": ("payments",),
    "revenue": ("orders",),
    WHOLE: ("clicks", "orders", "payments"),
}
TEXT = """Applications such as the documents show: sessions of users, the products that are looked at most in each minute,
orders with their payments and their user's country, a pattern over the payments of a card, and revenue by a lookup of
products, each alone and all in one application (`topologies/examples/shop.py`). *Events* are the records of the streams that
are read: clicks, a tenth as many orders, and 1.33 payments an order; a million users and ten thousand products are read
before. One partition, at-least-once, from Kafka to Kafka. Flink is 2.2 SQL with its state on the heap, as for Nexmark. All
results are final. Flink's are *taken as right*, and the others' are held against them row by row. *whole*: the run was too
short for a steady part, so start-up is in the figure."""


def parts_of(name: str) -> tuple[str, ...]:
    """The parts of an application."""
    return tuple(shop.PARTS) if name == WHOLE else (name,)


def load(bench: Bench, clicks: int) -> dict[str, int]:
    """Write the topics. Returns how many records each holds."""
    base_ms = bench.log.base_ms
    compacted = {"cleanup.policy": "compact"}
    for name, rows in (("users", shop_data.users(base_ms)), ("products", shop_data.products(base_ms))):
        bench.log.create(f"shop-{name}", compacted)
        bench.log.write(f"shop-{name}", rows)
    for name, made in (("clicks", shop_data.clicks), ("orders", shop_data.orders), ("payments", shop_data.payments)):
        bench.log.create(f"shop-{name}")
        bench.log.write(f"shop-{name}", made(clicks, base_ms))
    return {name: bench.log.count(f"shop-{name}") for name in READS[WHOLE]}


def start(bench: Bench, system: System, name: str, application: str) -> subprocess.Popen[bytes]:
    """Start the system's program. Raises ``UnavailableError``."""
    if system.program == PENSTOCK.program:
        return start_worker(bench, "benchmarks.shop", ["--worker", name], application, "ALO", system.environment)
    statements = shop_flink.script(parts_of(name), bench.log.bootstrap, application)
    return flink_sql.start(bench, system, application, statements, shop_flink.IDLE)


def run(bench: Bench, system: System, name: str, records: Mapping[str, int], right: dict[str, Any]) -> Result:
    """Run an application to the end of its input. ``right``: by part, the answer that the others are held against; the
    first run fills it."""
    for part in parts_of(name):
        bench.log.create(f"shop-{part}")
    application = bench.new_application(system, f"shop-{name}")
    count = sum(records[stream] for stream in READS[name])
    none = Result(system.name, name, count, 0, 0.0, 0.0, 0, None, "", bench.log.variant.partitions, bench.threads)
    topics = [f"shop-{stream}" for stream in READS[name]]
    made = run_to_end(
        bench, none, lambda: start(bench, system, name, application), application, topics, QUIET_S + TABLES_S
    )
    if made.verdict:
        return made
    written, said = 0, []
    for part in parts_of(name):
        query, found = shop_flink.PARTS[part], list(bench.log.read(f"shop-{part}"))
        of = flink_sql.of_flinks if system.program == FLINK.program else flink_sql.of_ours
        answer = of(query, found)
        said.append(flink_sql.verdict(query, right[part], answer) if part in right else "taken as right")
        right.setdefault(part, answer)
        written += len(found)
    bench.clean(application)
    wrong = [verdict for verdict in said if not answers(verdict)]
    return made._replace(written=written, verdict=(wrong or said)[0])


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shop", description="A shop, compared with Flink.")
    parser.add_argument("--parts", nargs="+", choices=list(READS), default=list(READS), metavar="PART")
    parser.add_argument("--clicks", type=int, default=CLICKS, help="of which orders and payments follow (%(default)s)")
    parser.add_argument("--systems", nargs="+", choices=list(SYSTEMS), default=[FLINK.name, PENSTOCK.name])
    parser.add_argument("--worker", choices=list(READS), help=argparse.SUPPRESS)
    add_common(parser)
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Run the parts; 1 if an answer differs."""
    options = arguments(argv)
    if options.worker:
        run_worker(shop.of_parts(*parts_of(options.worker)))
        return 0
    results: list[Result] = []
    with open_bench(options) as opened:
        bench = opened.bench(Variant(partitions=1))
        records = load(bench, options.clicks)
        for name in options.parts:
            right: dict[str, Any] = {}
            for system in options.systems:
                results.append(run(bench, SYSTEMS[system], name, records, right))
                say(f"{name} {system}: {results[-1].verdict}")
        head, rows = table(results)
        head[0] = "part"
        bench.write("table", {"title": SHOP, "text": TEXT, "head": head, "rows": rows})
    print(markdown(head, rows))
    return int(not all(answers(r.verdict) for r in results))


if __name__ == "__main__":
    sys.exit(main())
