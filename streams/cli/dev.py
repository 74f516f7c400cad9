"""``penstock dev``: Kafka, topics, a worker that starts again when its code changes, and its outputs, in one terminal."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from penstock.streams.cli.client_options import BOOTSTRAP_ENV, above_zero, add_settings_file, add_topology

LOOK_S = 0.3
STOP_S = 15.0
WATCHED_MAX = 5_000
_SUFFIXES = frozenset({".py", ".toml"})
_PASSED_OVER = frozenset({"__pycache__", "node_modules", "site-packages", "var", "build", "dist"})


def register(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "dev",
        help="run a topology while you write it: Kafka, topics, outputs as they come, restarts on changes",
        description="Start Kafka unless one is named or runs already, create the topics that the topology reads and writes, "
        "run a worker, print what it writes, and start it again when a .py or .toml file below this folder changes. Ctrl-C "
        "stops all of it. Kafka and stores that it started itself are temporary.",
    )
    add_topology(parser)
    add_settings_file(parser)
    parser.add_argument(
        "--bootstrap-server",
        dest="bootstrap_servers",
        metavar="HOST:PORT",
        help=f"default: ${BOOTSTRAP_ENV}, else the cluster that `penstock up` started, else one of its own",
    )
    parser.add_argument("--state-dir", metavar="DIR", help="folder of the stores (default: a temporary one)")
    parser.add_argument(
        "--partitions", type=above_zero, default=2, metavar="N", help="of topics that it makes (default: 2)"
    )
    parser.add_argument(
        "--log-level", default="warning", metavar="LEVEL", help="of the worker's log (default: warning)"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run until Ctrl-C or SIGTERM."""
    before = {number: signal.signal(number, _interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with contextlib.ExitStack() as stack:
            servers = args.bootstrap_servers or _running() or stack.enter_context(_kafka())
            temporary = None
            if args.state_dir is None:
                temporary = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-dev-"))) / "state"
            _say(f"Kafka answers at {servers}; in another terminal: export {BOOTSTRAP_ENV}={servers}")
            _loop(_command(args, servers, args.state_dir or str(temporary)), temporary)
    except KeyboardInterrupt:
        _say("everything is stopped")
        return 0
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return 0


def _interrupt(*_: object) -> None:
    """As Ctrl-C does, also where SIGINT is ignored, as in a script's background job. A second one changes nothing."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _running() -> str | None:
    from penstock.streams.kafka.embedded import running_bootstrap_servers

    return os.environ.get(BOOTSTRAP_ENV) or running_bootstrap_servers()


@contextlib.contextmanager
def _kafka() -> Iterator[str]:
    from penstock.streams.kafka.embedded import EmbeddedKafka

    _say("starting Kafka")
    with EmbeddedKafka() as cluster:
        try:
            yield cluster.bootstrap_servers
        finally:
            _say("stopping Kafka")


def _command(args: argparse.Namespace, servers: str, state: str) -> list[str]:
    """The process that makes topics and runs the worker."""
    given = {
        "--config": args.config,
        "--application-id": _application_id(args),
        "--bootstrap-server": servers,
        "--state-dir": state,
        "--partitions": str(args.partitions),
        "--log-level": args.log_level,
    }
    options = [word for option, value in given.items() if value is not None for word in (option, value)]
    return [sys.executable, "-m", "penstock.streams.cli.dev_worker", args.topology, *options]


def _application_id(args: argparse.Namespace) -> str:
    """That of the option, the environment or the file, else ``dev``."""
    of_file: object = None
    if args.config is not None:
        with contextlib.suppress(OSError, tomllib.TOMLDecodeError), open(args.config, "rb") as file:
            of_file = (
                tomllib.load(file).get("penstock", {}).get("application_id")
            )  # what is wrong with it, the worker says
    return str(args.application_id or os.environ.get("PENSTOCK_APPLICATION_ID") or of_file or "dev")


def _loop(command: list[str], temporary: Path | None) -> None:
    """Start the process; again whenever a watched file changes. A ``temporary`` state folder is removed before: a changed
    topology would be refused on it, and its stores are restored from Kafka."""
    folder = Path.cwd()
    while True:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
        seen = watched(folder)
        with _process(command) as process:
            said = False
            while (now := watched(folder)) == seen:
                time.sleep(LOOK_S)
                if not said and process.poll() is not None:
                    said = True
                    _say(f"the worker ended with status {process.returncode}; it starts again when a file changes")
        _say(f"{', '.join(changed(seen, now))} changed; starting the worker again")


@contextlib.contextmanager
def _process(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A process, in a session of its own, that is asked to stop in the end, and notices if this one is gone."""
    from penstock.streams.worker.supervisor import LIFELINE

    theirs, ours = os.pipe()
    try:
        environment = {**os.environ, LIFELINE: str(theirs)}
        process = subprocess.Popen(command, start_new_session=True, pass_fds=[theirs], env=environment)
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    finally:
        os.close(theirs)
        os.close(ours)


def watched(folder: Path) -> dict[str, int]:
    """The time of the last change of each file that the topology may depend on, by its path below ``folder``. Hidden folders
    and virtual environments are passed over; so is what comes after ``WATCHED_MAX`` files."""
    out: dict[str, int] = {}
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(
            f for f in folders if not f.startswith(".") and f not in _PASSED_OVER and not _venv(place, f)
        )
        for name in sorted(files):
            path = Path(place, name)
            if path.suffix in _SUFFIXES and len(out) < WATCHED_MAX:
                with contextlib.suppress(OSError):  # removed meanwhile
                    out[str(path.relative_to(folder))] = path.stat().st_mtime_ns
    return out


def _venv(place: str, name: str) -> bool:
    return Path(place, name, "pyvenv.cfg").exists()


def changed(before: Mapping[str, int], now: Mapping[str, int]) -> list[str]:
    """The files that are new, gone or written since."""
    return sorted(name for name in {*before, *now} if before.get(name) != now.get(name))


def _say(text: str) -> None:
    print(f"penstock dev: {text}", file=sys.stderr, flush=True)
