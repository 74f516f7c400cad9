"""``penstock stream``: an application runs in Spark's executors, as a query of Structured Streaming."""

from __future__ import annotations

import argparse
import dataclasses
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from penstock.streams.cli.counts import counted


def register(subparsers: Any) -> None:
    """Add the command."""
    from penstock.streams.cli.job_report import add_report
    from penstock.streams.cli.schedule import seconds
    from penstock.streams.cli.spark_options import add_common

    parser = subparsers.add_parser("stream", help="run a topology in Spark, in micro-batches, instead of workers")
    add_common(parser)
    when = parser.add_mutually_exclusive_group()
    when.add_argument(
        "--available-now", action="store_true", help="process what the inputs hold now, and end; for schedulers"
    )
    when.add_argument(
        "--every",
        type=seconds,
        default=10.0,
        metavar="DURATION",
        help="from trigger to trigger, such as 5s or 1m (default: 10s); stop with Ctrl-C or SIGTERM",
    )
    parser.add_argument(
        "--foreach-batch",
        metavar="MODULE:FUNCTION",
        help="called here after each micro-batch that wrote outputs, with these as DataFrames",
    )
    parser.add_argument(
        "--state-dir",
        metavar="DIR",
        help="where executors keep stores between micro-batches; default: the setting state_dir",
    )
    parser.add_argument(
        "--repository",
        metavar="URL",
        help="where stores are restored from, and where a savepoint goes in the end; default: the setting snapshots",
    )
    add_report(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run it until it is stopped or done, and say what was done."""
    from penstock.streams.cli.job_report import reported
    from penstock.streams.cli.spark_options import inputs_of, require_spark, say, tell_savepoint

    require_spark()
    from penstock.streams.spark.session import spark_session
    from penstock.streams.spark.streaming.query import stream

    given = inputs_of(args)
    settings = given.settings
    if args.state_dir is not None:
        settings = dataclasses.replace(settings, state_dir=args.state_dir)
    function = None if args.foreach_batch is None else _function(args.foreach_batch)
    # Spark has a handler of its own for Ctrl-C, which would end the micro-batch in the middle.
    with reported(args, given, "stream") as page, spark_session(given.session), _stopped_by_signals() as stop:
        done = stream(
            args.topology,
            settings,
            available_now=args.available_now,
            every=f"{args.every * 1000:.0f}ms",
            foreach_batch=function,
            repository=args.repository or given.snapshots,
            stop=stop,
            progress=say,
        )
        worked = f"{counted(done.records, 'record')} processed in {done.micro_batches} micro-batches"
        page.verdict = f"{worked}."
        page.saved(done.savepoint, done.no_savepoint)
    print(f"{worked}, {done.seconds:.1f} s")
    tell_savepoint(done.savepoint, done.no_savepoint)
    print(f"workers of {given.application_id} go on from here")
    return 0


def _function(text: str) -> Callable[[Any], object]:
    """The function that ``MODULE:FUNCTION`` names. Raises ``SettingsError``."""
    from penstock.state.errors import SettingsError
    from penstock.streams.topology_loading import load_named

    found = load_named(text)
    if not callable(found):
        raise SettingsError(f"--foreach-batch {text} is a {type(found).__name__}; give a function")
    function: Callable[[Any], object] = found
    return function


@contextmanager
def _stopped_by_signals() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C or SIGTERM sets; the second one interrupts."""
    stop = threading.Event()

    def stopping(number: int, frame: Any) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, stopping) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
