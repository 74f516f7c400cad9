"""``python -m benchmarks.burst``: ``enrich`` under a burst; ``TEXT`` says what is measured.

Minutes for two cores: 6 a system and guarantee, ``--scale 0.05``: 1.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.bench import Bench
from benchmarks.clicks import Clicks, Enriched, lost, settle
from benchmarks.harness import add_common, open_bench, say
from benchmarks.live import Ints, Receiver, quantiles, send_at_rate
from benchmarks.processes import stop, tree, usage
from benchmarks.report import markdown
from benchmarks.systems import GUARANTEES, SYSTEMS, System, UnavailableError
from benchmarks.workloads import Variant

TEXT = """Clicks come at a rate for two minutes, at 23.5 times the rate for one, and at the rate again for two (times the
scale). p99 is of the clicks that were due before, during and after; *drained* is from the end of the burst to the arrival
of its last click, *calm* to the first second after it whose p99 is within twice that of before. Every click must come back,
with its own user's profile; under EOS, once."""
TITLE = "A burst"
TIMES = 23.5
STEADY_S, BURST_S = 120.0, 60.0
DRAIN_LIMIT_S = 300.0


class Phase(NamedTuple):
    """So many clicks a second for so long."""

    name: str
    rate_per_s: float
    seconds: float


def phases(rate_per_s: float, scale: float) -> list[Phase]:
    """Before, during and after; ``scale`` shortens them all."""
    steady, burst = STEADY_S * scale, BURST_S * scale
    return [
        Phase("before", rate_per_s, steady),
        Phase("during", rate_per_s * TIMES, burst),
        Phase("after", rate_per_s, steady),
    ]


def by_second(due: Ints, waits_ms: NDArray[np.float64], began_us: int) -> list[float]:
    """p99 of the clicks due in each second since the beginning; a second without clicks is left out."""
    seconds = (due - began_us) // 1_000_000
    return [float(np.percentile(waits_ms[seconds == s], 99)) for s in np.unique(seconds)]


def figures(marks_us: list[int], due: Ints, came: Ints) -> dict[str, Any]:
    """What the arrivals say. ``marks_us``: when each phase began, and when the last ended. ``drained_s``: from the end of
    the burst to the arrival of its last click; ``calm_s``: to the first second after it whose p99 is within twice that of
    before, ``None`` if there is none."""
    waits_ms = (came - due) / 1000
    found: dict[str, Any] = {}
    for name, (begin, end) in zip(("before", "during", "after"), pairwise(marks_us), strict=True):
        found[name] = quantiles(waits_ms[(due >= begin) & (due < end)])
    burst = (due >= marks_us[1]) & (due < marks_us[2])
    found["drained_s"] = max(0.0, (int(came[burst].max()) - marks_us[2]) / 1e6) if burst.any() else 0.0
    after = due >= marks_us[2]
    calm = [p99 <= 2 * found["before"]["p99_ms"] for p99 in by_second(due[after], waits_ms[after], marks_us[2])]
    found["calm_s"] = calm.index(True) if True in calm else None
    found["p99_ms_by_second"] = [round(p99, 1) for p99 in by_second(due, waits_ms, marks_us[0])]
    return found


def burst(bench: Bench, system: System, guarantee: str, rate_per_s: float, scale: float) -> dict[str, Any]:
    """One run, as plain values; ``void`` says why it tells nothing."""
    facts: dict[str, Any] = {"system": system.name, "guarantee": guarantee, "rate_per_s": rate_per_s, "scale": scale}
    users = bench.variant.keys
    bench.log.load("users", users)
    application = bench.new_application(system, "burst")
    for suffix in ("in", "out"):
        bench.log.create(f"{application}-{suffix}")
    try:
        process = bench.start(system, "enrich", guarantee, application, f"{application}-in", {"COMMIT_MS": "100"})
    except UnavailableError as error:
        bench.clean(application)
        return {**facts, "void": str(error)}
    enriched = Enriched(lambda user: f"User Number {user:07d}")
    receiver = Receiver(bench.log.bootstrap, [f"{application}-out"], bench.variant.partitions, enriched.take)
    receiver.start()
    try:
        clicks = Clicks(bench.log.bootstrap, f"{application}-in", users)
        return {**facts, **_measure(bench, process, clicks, enriched, phases(rate_per_s, scale), guarantee)}
    finally:
        stop(process)
        receiver.close()
        bench.clean(application)


def _measure(
    bench: Bench,
    process: subprocess.Popen[bytes],
    clicks: Clicks,
    enriched: Enriched,
    load: list[Phase],
    guarantee: str,
) -> dict[str, Any]:
    if void := settle(process, clicks, enriched, bench.limit_s):
        return {"void": void}
    send_at_rate(clicks.send, load[0].rate_per_s, 5.0)
    first = clicks.sent
    enriched.await_all(0, first, 10.0)
    came_before = len(enriched)
    marks_us: list[int] = []
    behind_s, cpu_s = 0.0, usage(tree(process.pid)).cpu_s
    for phase in load:
        say(f"  {phase.name}: {phase.rate_per_s:,.0f}/s for {phase.seconds:.0f} s")
        marks_us.append(time.time_ns() // 1000)
        behind_s = max(behind_s, send_at_rate(clicks.send, phase.rate_per_s, phase.seconds))
    # The last click of a phase is due before the next begins, since both follow the clock.
    marks_us.append(time.time_ns() // 1000 + 1)
    clicks.flush()
    numbers, due, came = enriched.await_all(first, clicks.sent, DRAIN_LIMIT_S)
    cost = usage(tree(process.pid))
    void = lost(clicks, first, numbers, enriched)
    repeated = len(enriched) - came_before - len(numbers)
    if guarantee == "EOS" and repeated and not void:
        void = f"{repeated:,} clicks came more than once"
    return {
        "void": void,
        "clicks": clicks.sent - first,
        "repeated": repeated,
        "sender_behind_s": behind_s,
        "cpu_s": cost.cpu_s - cpu_s,
        "resident_bytes": cost.resident_bytes,
        **(figures(marks_us, due, came) if not void else {}),
    }


def about(results: Sequence[Mapping[str, Any]]) -> str:
    """What the section begins with: ``TEXT``, and the scale of these results."""
    scales = dict.fromkeys(f"{r['scale']:g}" for r in results)
    return f"{TEXT} The scale of these is {' and '.join(scales)}."


def table(results: Iterable[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Head and rows."""
    head = ["system", "guarantee", "clicks/s", "burst/s", "p99 before ms", "during", "after", "drained s", "calm s"]
    rows = []
    for r in results:
        rates = [f"{r['rate_per_s']:,.0f}", f"{r['rate_per_s'] * TIMES:,.0f}"]
        cells = ["-"] * 5
        if not r["void"]:
            cells = [f"{r[phase]['p99_ms']:,.0f}" for phase in ("before", "during", "after")]
            cells += [f"{r['drained_s']:.1f}", "never" if r["calm_s"] is None else f"{r['calm_s']}"]
        said = f"VOID: {r['void']}" if r["void"] else f"{r['clicks']:,} clicks, none lost, {r['repeated']:,} repeated"
        rows.append([r["system"], r["guarantee"], *rates, *cells, said])
    return [*head, "check"], rows


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.burst",
        description="enrich under a burst of 23.5 times its rate. 6 minutes a system; with --scale 0.05, 1.",
    )
    parser.add_argument("--systems", nargs="+", choices=list(SYSTEMS), metavar="NAME", default=["penstock"])
    parser.add_argument("--guarantees", nargs="+", choices=list(GUARANTEES), default=["ALO"])
    parser.add_argument("--rate", type=float, default=1_500.0, help="clicks a second but in the burst (%(default)s)")
    parser.add_argument("--scale", type=float, default=1.0, help="of the durations of 120, 60 and 120 s (%(default)s)")
    parser.add_argument("--users", type=int, default=1_000_000, help="rows of the table (%(default)s)")
    add_common(parser)
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Measure and print; 1 if one of Penstock's results is void."""
    options = arguments(argv)
    results = []
    with open_bench(options) as opened:
        bench = opened.bench(Variant(keys=options.users))
        for guarantee in options.guarantees:
            for system in map(SYSTEMS.__getitem__, options.systems):
                if guarantee not in system.guarantees:
                    continue
                say(f"burst: {system.name} {guarantee}")
                results.append(burst(bench, system, guarantee, options.rate, options.scale))
                bench.write("burst", results[-1])
        head, rows = table(results)
        bench.write("table", {"title": TITLE, "text": about(results), "head": head, "rows": rows})
    print(markdown(head, rows))
    return int(any(r["void"] for r in results if r["system"].startswith("penstock")))


if __name__ == "__main__":
    sys.exit(main())
