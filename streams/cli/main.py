"""The command ``penstock``. Each sub-command is a module that is imported only when it is asked for, so that ``penstock
up`` never loads Spark. A module has ``register(subparsers)``, which sets ``run``, a function of the parsed arguments
that returns the exit status.

What Penstock raises on purpose is one line on the error stream and exit status 1; anything else is a defect and shows
its traceback.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from penstock import __version__
from penstock.state.errors import PenstockError

COMMANDS = {
    "up": ("cluster", "start a real Kafka on this machine"),
    "down": ("cluster", "stop it"),
    "status": ("cluster", "say what runs"),
    "topics": ("topics", "create, list, describe or delete topics"),
    "produce": ("console", "write lines of standard input to a topic"),
    "consume": ("console", "print the records of a topic"),
    "worker": ("worker", "run a topology against Kafka"),
    "describe": ("describe", "print a topology as text or as a Mermaid chart"),
    "replay": ("replay", "run a topology on Spark over a range of the log"),
    "compact": ("compact", "turn changelogs into snapshots on Spark"),
    "verify": ("verify", "compare what the workers wrote with a replay on Spark"),
    "demo": ("demo", "run the main job end to end and write a report"),
}
"""Command → (module of this package, what it does)."""

INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line; returns the exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    parser = _parser(words[0] if words and words[0] in COMMANDS else None)
    args = parser.parse_args(words)
    args.argv = words
    try:
        status: int = args.run(args)
    except PenstockError as exc:
        print(f"penstock: {exc}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return 0
    return status


def _parser(command: str | None) -> argparse.ArgumentParser:
    """The whole parser, or the one that knows only this command."""
    parser = argparse.ArgumentParser(prog="penstock", description="Log-based stream processing on Kafka, and on Spark.")
    parser.add_argument("--version", action="version", version=f"penstock {__version__}")
    if command is None:
        listing = "\n".join(f"  {name:<10}{what}" for name, (_, what) in COMMANDS.items())
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        parser.epilog = f"commands:\n{listing}\n\npenstock COMMAND --help says more"
        parser.add_argument("command", choices=list(COMMANDS), metavar="COMMAND")
        return parser
    subparsers = parser.add_subparsers(dest="command", required=True)
    module = importlib.import_module(f"penstock.streams.cli.{COMMANDS[command][0]}")
    module.register(subparsers)
    return parser


if __name__ == "__main__":
    sys.exit(main())
