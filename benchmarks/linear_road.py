"""``python -m benchmarks.linear_road``: the highest L, the number of expressways, whose answers keep 5 s; ``TEXT`` says what
is measured.

Minutes for two cores: about 90 (``--budget-min``): ten for each L that is tried, and five of the driver for each expressway;
``--minutes 3 --speed 10 --cars 400 --highest 1``: 1.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from confluent_kafka import Message

from benchmarks.bench import Bench
from benchmarks.expressways import FORMER, INPUT, OUTPUTS, Answers, Expressway, last_line, placed_keys, without_emit
from benchmarks.harness import Budget, add_common, open_bench, say
from benchmarks.live import TICK_S, Receiver, new_producer, now_us, produce, quantiles, run_worker, start_worker
from benchmarks.processes import stop, tree, usage
from benchmarks.report import markdown
from benchmarks.systems import GUARANTEES, SYSTEMS
from penstock.topologies.examples.linear_road.model import EXPENDITURE, line
from penstock.topologies.examples.linear_road.topology import build

TEXT = """Every expressway brings the same number of cars, all lines are sent at the pace of their times (times the speed),
and an answer's response time counts from the beginning of the second that its line names until the committed answer is
read. An L holds if every toll, accident and balance is told within 5 s, every expenditure within 10 s, and all answers
are those of Penstock's own test driver. L is doubled until it does not hold, then halved in; *at least*: no higher L was
tried."""
TITLE = "Linear Road"
LIMIT_S, EXPENDITURE_LIMIT_S = 5.0, 10.0
AFTER_S = 30.0
CARS = 45_000
"""In ten minutes, about 1,650 lines a second: those of one expressway of the benchmark's own data, near its end."""


class Arrivals:
    """The answers that came, and when (µs)."""

    def __init__(self) -> None:
        self.answers: list[tuple[str, bytes]] = []
        self.came = array("q")

    def take(self, messages: list[Message], came_us: int) -> None:
        """Keep what a receiver brought."""
        for message in messages:
            self.answers.append((message.topic() or "", message.value() or b""))
            self.came.append(came_us)


def responses_ms(arrivals: Arrivals, began_us: int, speed: float) -> tuple[list[float], list[float]]:
    """Response times of expenditures, and of all other answers."""
    times: tuple[list[float], list[float]] = ([], [])
    for (topic, value), came in zip(arrivals.answers, arrivals.came, strict=False):
        due_us = began_us + int(value.split(b",")[OUTPUTS[topic]]) * 1e6 / speed
        times[topic != "linear-road-expenditures"].append((came - due_us) / 1000)
    return times


def highest(holds: Callable[[int], bool | None], limit: int, first: int = 1) -> tuple[int, bool]:
    """The highest L up to the limit for which ``holds`` is true, 0 if none, and whether the next one is known not to hold:
    it is not when the limit was reached or the time was over, and the highest is then at least that. ``holds`` gives
    ``None`` when there is no time for another; it is asked about ``first`` first."""
    low, high = 0, limit + 1
    while high - low > 1:
        # Doubled while nothing has failed, then halved in.
        tried = min(max(first, 2 * low), limit) if high == limit + 1 else (low + high) // 2
        kept = holds(tried)
        if kept is None:
            return low, False
        low, high = (tried, high) if kept else (low, tried)
    return low, high <= limit


def found(results: Iterable[Mapping[str, Any]]) -> tuple[int, bool]:
    """The highest L that holds in these results, and whether the next one was tried and does not."""
    held = {r["expressways"]: bool(r["holds"]) for r in results}
    best = max((tried for tried, holds in held.items() if holds), default=0)
    return best, held.get(best + 1) is False


def about(results: Sequence[Mapping[str, Any]]) -> str:
    """What the section begins with: the highest L, under which load and with what it was found, and ``TEXT``."""
    best, sure = found(results)
    some = results[-1]
    load = "; minutes and cars are not in the results, README.md has the command"
    if "cars" in some:
        load = f", {some['minutes']} simulated minutes, {some['cars']:,} cars on each expressway"
    with_ = f"{some['processes']} processes, {some['guarantee']}{load}"
    return f"L = {best}{'' if sure else ' at least'}, with {with_}. {TEXT}"


def trial(
    bench: Bench, ways: list[Expressway], guarantee: str, speed: float, processes: int, cars: int
) -> dict[str, Any]:
    """One L at the pace, as plain values. ``cars``: of each expressway."""
    log, end_s = bench.log, len(ways[0].seconds)
    for topic in (INPUT, *OUTPUTS):
        log.create(topic)
    log.create(FORMER, {"cleanup.policy": "compact"})
    # Brokers refuse times of the future, and drop old ones.
    began_ms = (int(time.time()) - end_s - 60) // 60 * 60_000
    log.write(FORMER, ((key, value, began_ms) for way in ways for key, value in way.former))
    application = bench.new_application(SYSTEMS["penstock"], "linear-road")
    orders = ["--worker", str(began_ms)]
    workers = [
        start_worker(bench, "benchmarks.linear_road", orders, application, guarantee, {"COMMIT_MS": 1000})
        for _ in range(processes)
    ]
    arrivals = Arrivals()
    receiver = Receiver(log.bootstrap, list(OUTPUTS), bench.variant.partitions, arrivals.take)
    receiver.start()
    facts: dict[str, Any] = {"expressways": len(ways), "speed": speed, "guarantee": guarantee, "processes": processes}
    facts |= {"minutes": end_s // 60, "cars": cars}
    try:
        measured = _measure(bench, ways, speed, workers, arrivals, began_ms)
    finally:
        for worker in workers:
            stop(worker)
        receiver.close()
        bench.clean(application)
    return {**facts, **measured}


def _measure(
    bench: Bench,
    ways: list[Expressway],
    speed: float,
    workers: list[subprocess.Popen[bytes]],
    arrivals: Arrivals,
    began_ms: int,
) -> dict[str, Any]:
    producer, end_s = new_producer(bench.log.bootstrap), len(ways[0].seconds)
    expected: Answers = sum((way.answers for way in ways), Counter())
    total = sum(way.lines for way in ways)
    keys = list(placed_keys(bench.variant.partitions))
    patience = time.monotonic() + bench.limit_s
    # Questions about the day before the simulation; their answers say that each partition's table is there.
    for vid in keys:
        question = line((EXPENDITURE, 0, int(vid), -1, 0, *[-1] * 4, 0, *[-1] * 4, 0))
        produce(producer, INPUT, vid, question, began_ms)
    producer.flush()
    while len(arrivals.came) < len(keys):
        if time.monotonic() > patience or any(worker.poll() is not None for worker in workers):
            return {"void": "the workers did not begin to answer, see their log", "holds": False}
        time.sleep(0.1)
    time.sleep(1.0)
    asked = len(arrivals.came)
    cpu_s, began_us, behind_us = sum(usage(tree(w.pid)).cpu_s for w in workers), now_us(), 0
    for second in range(end_s):
        due_us = began_us + int(second * 1e6 / speed)
        while (early_us := due_us - now_us()) > 0:
            time.sleep(min(early_us / 1e6, TICK_S))
        behind_us = max(behind_us, -early_us)
        for way in ways:
            for key, value in way.seconds[second]:
                produce(producer, INPUT, key, value, began_ms + second * 1000)
            producer.poll(0)
    for key in keys:
        produce(producer, INPUT, key, last_line(end_s), began_ms + end_s * 1000)
    producer.flush()
    patience = time.monotonic() + AFTER_S
    while len(arrivals.came) - asked < expected.total() and time.monotonic() < patience:
        time.sleep(0.1)
    cpu_s = sum(usage(tree(w.pid)).cpu_s for w in workers) - cpu_s
    del arrivals.answers[:asked], arrivals.came[:asked]
    answers = Counter((topic, without_emit(topic, value)) for topic, value in arrivals.answers)
    expenditures, others = responses_ms(arrivals, began_us, speed)
    kept = max(expenditures, default=0) <= EXPENDITURE_LIMIT_S * 1000 and max(others, default=0) <= LIMIT_S * 1000
    # More answers than the right ones may only be repeated under at-least-once, which nothing here makes happen.
    other, missing = (answers - expected).total(), (expected - answers).total()
    void = f"{other:,} answers are not among the {expected.total():,} right ones" if other else ""
    return {
        "void": void,
        "holds": kept and not void and not missing,
        "missing": missing,
        "lines_per_s": total / end_s * speed,
        "answers": answers.total(),
        "sender_behind_s": behind_us / 1e6,
        "cpu_s_per_million": cpu_s / total * 1e6,
        "expenditures_max_ms": max(expenditures, default=0.0),
        **quantiles(np.array(others)),
    }


def table(results: Iterable[Mapping[str, Any]], end: str) -> tuple[list[str], list[list[str]]]:
    """Head and rows."""
    rows = []
    for r in sorted(results, key=lambda r: r["expressways"]):
        cells = ["-"] * 6
        if "lines_per_s" in r:
            cells = [f"{r['lines_per_s']:,.0f}", f"{r['answers']:,}", f"{r['cpu_s_per_million']:.0f}"]
            cells += [f"{r[name]:,.0f}" for name in ("p50_ms", "p99_ms", "max_ms")]
        late = f"too late, {r['missing']:,} not within {AFTER_S:.0f} s of the end" if r.get("missing") else "too late"
        said = f"VOID: {r['void']}" if r["void"] else "holds" if r["holds"] else late
        rows.append([str(r["expressways"]), f"{r['speed']:g}", *cells, said])
    head = ["L", "speed", "lines/s", "answers", "CPU s/M", "p50 ms", "p99 ms", "max ms", end]
    return head, rows


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.linear_road",
        description="The highest number of expressways whose answers keep 5 s. About 90 minutes; with --minutes 3 "
        "--speed 10 --cars 400 --highest 1, 1.",
    )
    parser.add_argument("--minutes", type=int, default=10, help="that are simulated (%(default)s)")
    parser.add_argument("--speed", type=float, default=1.0, help="simulated seconds a second (%(default)s)")
    parser.add_argument("--cars", type=int, default=CARS, help="of an expressway (%(default)s)")
    parser.add_argument("--highest", type=int, default=64, help="L that is tried at most (%(default)s)")
    parser.add_argument("--first", type=int, default=1, help="L that is tried first (%(default)s)")
    parser.add_argument("--processes", type=int, default=2, help="workers (%(default)s)")
    parser.add_argument("--guarantee", choices=list(GUARANTEES), default="ALO")
    parser.add_argument("--budget-min", type=float, default=90.0, help="minutes after which no L is begun")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    add_common(parser)
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Search and print; 1 if answers differ or no L holds."""
    options = arguments(argv)
    if options.worker is not None:
        run_worker(build(began_ms=options.worker))
        return 0
    results: list[dict[str, Any]] = []
    ways: list[Expressway] = []
    with open_bench(options) as opened:
        bench, budget = opened.bench(), Budget(options.budget_min)

        def holds(expressways: int) -> bool | None:
            if not budget.allows(f"L = {expressways}"):
                return None
            while len(ways) < expressways:
                ways.append(Expressway(len(ways), options.cars, options.minutes))
                say(f"expressway {len(ways)}: {ways[-1].lines:,} lines, {ways[-1].answers.total():,} answers")
            result = trial(bench, ways[:expressways], options.guarantee, options.speed, options.processes, options.cars)
            results.append(result)
            bench.write("linear_road", result)
            say(f"L = {expressways}: {result['void'] or ('holds' if result['holds'] else 'too late')}")
            return bool(result["holds"])

        best, _ = highest(holds, options.highest, options.first)
        if not results:
            return 1
        head, rows = table(results, "verdict")
        bench.write("table", {"title": TITLE, "text": about(results), "head": head, "rows": rows})
    print(f"{about(results)}\n\n{markdown(head, rows)}")
    return int(not best or any(r["void"] for r in results if r["expressways"] <= best))


if __name__ == "__main__":
    sys.exit(main())
