"""``penstock COMMAND …``. Only the module of the command that was given is imported, so ``penstock up`` loads no Spark.

A command's module has ``register(subparsers)``, which adds its parser with ``set_defaults(run=…)``, and
``run(args) -> int``, whose answer is the exit code. ``args.argv`` is the whole command line after ``penstock``.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import importlib
import os
import re
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

from penstock.state.errors import PenstockError, UserError
from penstock.streams.worker import exit_codes


class Command(NamedTuple):
    """One line of the table: ``module`` registers the command ``name``, and perhaps others. ``waits``: it may take seconds
    before it prints, and shows no progress of its own."""

    name: str
    module: str
    help: str
    waits: bool = False


_CLI = "penstock.streams.cli"
COMMANDS = (
    Command("new", f"{_CLI}.new", "create a project: topology, test, settings, Dockerfile and CI"),
    Command("dev", f"{_CLI}.dev", "run a topology while you write it: Kafka, topics, outputs, restarts on changes"),
    Command("up", f"{_CLI}.cluster", "start a Kafka cluster on this machine", waits=True),
    Command("down", f"{_CLI}.cluster", "stop it", waits=True),
    Command("status", f"{_CLI}.cluster", "show whether it runs, and where"),
    Command("topics", f"{_CLI}.topics", "create, list, describe, alter and delete topics", waits=True),
    Command("doctor", f"{_CLI}.doctor", "look at this machine and the cluster, and say what to do", waits=True),
    Command("apps", f"{_CLI}.groups", "list the applications that have topics of their own", waits=True),
    Command("groups", f"{_CLI}.groups", "list the consumer groups", waits=True),
    Command("tasks", f"{_CLI}.tasks", "show every task of an application: who runs it, how far it is"),
    Command("lag", f"{_CLI}.groups", "show how far a group has come, and how far it has to go", waits=True),
    Command(
        "acls",
        f"{_CLI}.acls",
        "print the least rights that an application needs in Kafka, also as a script",
        waits=True,
    ),
    Command("reset", f"{_CLI}.reset", "have an application begin again, with empty stores", waits=True),
    Command("produce", f"{_CLI}.produce", "write lines of standard input to a topic"),
    Command("ingest", f"{_CLI}.ingest", "write the records of files or a service to a topic"),
    Command("consume", f"{_CLI}.consume", "print the records of a topic"),
    Command("tail", f"{_CLI}.tail", "follow several topics in the order of their records' timestamps"),
    Command("dlq", f"{_CLI}.dlq", "list dead letters, send them back, or drop them", waits=True),
    Command("diff", f"{_CLI}.diff", "compare a topology with the one whose state is stored", waits=True),
    Command("state", f"{_CLI}.state", "list an application's stores, and read their entries", waits=True),
    Command(
        "describe",
        f"{_CLI}.describe",
        "print a topology as text, as a Mermaid chart, or (--plan) how it runs",
        waits=True,
    ),
    Command("worker", f"{_CLI}.worker", "run a topology against Kafka"),
    Command("replay", f"{_CLI}.replay", "run a topology as a Spark batch over [from, to) of the log"),
    Command("compact", f"{_CLI}.compact", "create snapshots of an application's stores from their changelogs"),
    Command("verify", f"{_CLI}.verify", "compare what workers wrote with what Spark computes"),
    Command("compare", f"{_CLI}.compare", "say what a changed topology would change, over a range of the log"),
    Command("catchup", f"{_CLI}.catch_up", "work off an application's backlog in Spark, and hand it back"),
    Command("stream", f"{_CLI}.stream", "run a topology in Spark, in micro-batches, instead of workers"),
    Command("bootstrap", f"{_CLI}.bootstrap", "build a new application's stores from history, in Spark"),
    Command("rescale", f"{_CLI}.rescale", "give an application another number of partitions, with its state"),
    Command("lake", f"{_CLI}.lake", "write a topic or a store to an Apache Iceberg table"),
    Command("savepoints", f"{_CLI}.kept", "list, pin and unpin the savepoints that compact has made", waits=True),
    Command("replays", f"{_CLI}.kept", "list, pin and unpin the replays in a folder", waits=True),
    Command(
        "check-determinism",
        f"{_CLI}.check_determinism",
        "run a topology several ways over the same records and compare",
    ),
    Command("completion", f"{_CLI}.completion", "print a script that completes the commands in bash, zsh or fish"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; its exit code. What Penstock raises on purpose becomes one line on standard error, and 2
    where the user is to correct something, else 1."""
    given = list(sys.argv[1:] if argv is None else argv)
    return run_parsed(build_parser(given), given)


def run_parsed(parser: argparse.ArgumentParser, argv: Sequence[str]) -> int:
    """Parse ``argv`` and call ``run(args)``; its exit code. Prints a ``PenstockError`` as one line and returns 1."""
    try:
        args = parser.parse_args(argv)
        args.argv = list(argv)
        with waiting_line(_chosen(argv)):
            code: int = args.run(args)
        sys.stdout.flush()  # here, where a reader that has gone can still be dealt with
        return code
    except PenstockError as exc:
        print(f"penstock: {exc}", file=sys.stderr)
        return exit_codes.USER_ERROR if isinstance(exc, UserError) else exit_codes.FAILED
    except KeyboardInterrupt:
        return exit_codes.INTERRUPTED
    except BrokenPipeError:
        # Python flushes standard output once more when it ends, which would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exit_codes.BROKEN_PIPE


def build_parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    """A parser that knows every command's name, and all of the one that ``argv`` begins with."""
    parser = WholeWordsParser(
        prog="penstock", description="Log-based stream processing on Kafka, with Spark as its second engine."
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    chosen = _chosen(argv)
    module = None if chosen is None else chosen.module
    for command in COMMANDS:
        if command.module != module:
            subparsers.add_parser(command.name, help=command.help)
    if module is not None:
        importlib.import_module(module).register(subparsers)
    return parser


def _chosen(argv: Sequence[str]) -> Command | None:
    """The command that a command line begins with."""
    name = next((text for text in argv if not text.startswith("-")), None)
    return next((command for command in COMMANDS if command.name == name), None)


def waiting_line(command: Command | None) -> contextlib.AbstractContextManager[None]:
    """Shows on a terminal that a command still works, where it may take seconds and shows nothing of its own."""
    if command is None or not command.waits or not sys.stderr.isatty():
        return contextlib.nullcontext()
    from penstock.streams.cli.waiting import WaitingLine

    return WaitingLine(f"penstock {command.name}")


class WholeWordsParser(argparse.ArgumentParser):
    """A parser that takes options by their whole names only, and so do the parsers of its commands: an abbreviation would
    mean something else once there is another option, and ``supervisor`` looks for options by name."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False, **kwargs})
        self.register("action", "parsers", _Described)

    def error(self, message: str) -> NoReturn:
        """As argparse's, with the option or command that was probably meant."""
        unknown = re.search(r"unrecognized arguments:.*?(--[\w-]+)", message) or re.search(
            r"invalid choice: '([^']+)'", message
        )
        near = [] if unknown is None else difflib.get_close_matches(unknown[1] or unknown[2], sorted(_words(self)), n=1)
        super().error(f"{message}; did you mean {near[0]}?" if near else message)


class _Described(argparse._SubParsersAction):  # type: ignore[type-arg]  # takes a parameter for mypy alone
    """Commands that say what they do in their own help, too, not only in the list of commands."""

    def add_parser(self, name: str, **options: Any) -> Any:
        """See ``argparse``."""
        text = options.get("help")
        described = {} if not text else {"description": f"{text[0].upper()}{text[1:]}."}
        return super().add_parser(name, **{**described, **options})


def _words(parser: argparse.ArgumentParser) -> set[str]:
    """The options of a parser and of those below it, and their names."""
    found: set[str] = set()
    for action in parser._actions:
        if action.help != argparse.SUPPRESS:
            found.update(action.option_strings)
        if isinstance(action, argparse._SubParsersAction):
            found.update(action.choices)
            for inner in action.choices.values():
                found |= _words(inner)
    return found


class _Version(argparse.Action):
    """Reads the version only on request."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any, **__: Any) -> None:
        print(f"penstock {importlib.import_module('penstock').__version__}")
        parser.exit()


if __name__ == "__main__":
    sys.exit(main())
