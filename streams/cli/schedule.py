"""A command that runs again and again: ``--every 1h``."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

from penstock.state.errors import EnvironmentFault, RetriableError


def add_every(parser: argparse.ArgumentParser) -> None:
    """Add ``--every``."""
    parser.add_argument(
        "--every",
        type=seconds,
        metavar="DURATION",
        help="run repeatedly, with this time from start to start, such as 30m or 1h; stop with Ctrl-C",
    )


def repeated(
    every_s: float | None,
    run: Callable[[], int],
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> int:
    """Run once, or repeatedly. A passing failure (brokers that do not answer, a full disk) ends a single run; when
    repeated, it is logged and the next run follows. If a run takes longer than the interval, the next starts at
    once."""
    if every_s is None:
        return run()
    while True:
        began_s = clock()
        try:
            run()
        except (RetriableError, EnvironmentFault) as exc:
            print(f"penstock: this run failed; the next one starts on schedule: {exc}", file=sys.stderr, flush=True)
        sleep(max(0.0, began_s + every_s - clock()))


def seconds(text: str) -> float:
    """The type of an option that is a duration, such as 30m."""
    from penstock.topologies.windows.durations import duration_ms

    try:
        return duration_ms(text) / 1000
    except Exception as exc:
        raise argparse.ArgumentTypeError(str(exc)) from exc
