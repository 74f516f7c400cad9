"""``penstock tasks``: every task of an application, who runs it, and how far it is; on a terminal as a live table."""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import orjson

from penstock.streams.cli.client_options import (
    SETTINGS_SERVERS,
    add_settings_file,
    add_topology,
    answering,
    settings_of,
)
from penstock.streams.cli.counts import counted, unread

if TYPE_CHECKING:
    from penstock.streams.kafka.groups import PartitionLag
    from penstock.topologies.graph.topology import Topology

INTERVAL_S = 2.0


@dataclasses.dataclass(frozen=True)
class TaskLine:
    """One task. ``owner``: the client id of the worker that has its inputs, or ``None``. ``position``: the sum of its
    committed offsets; ``lag``: what is not committed yet, ``None`` where nothing was committed. ``rate``: committed
    records a second since the table before; ``None`` in the first one. ``unread``: the ends of its inputs where nothing
    was committed."""

    task: str
    inputs: tuple[str, ...]
    owner: str | None
    position: int
    lag: int | None
    rate: float | None = None
    unread: int = 0


def register(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "tasks",
        help="show every task of an application: who runs it, how far it is",
        description="Show every task, the worker that runs it, and how many records it has not committed yet. On a terminal "
        "the table is drawn again every two seconds until Ctrl-C; elsewhere it is printed once. Joins no group.",
    )
    add_topology(parser)
    add_settings_file(parser)
    parser.add_argument("--bootstrap-server", dest="bootstrap_servers", metavar="HOST:PORT", help=SETTINGS_SERVERS)
    parser.add_argument("--once", action="store_true", help="print it once, on a terminal too")
    parser.add_argument("--json", action="store_true", help="JSON instead of a table, once")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the table, or keep drawing it."""
    from penstock.streams.kafka.groups import lag_of
    from penstock.streams.topology_loading import load_topology

    topology = load_topology(args.topology)
    settings = settings_of(args.config, application_id=args.application_id, bootstrap_servers=args.bootstrap_servers)
    name = settings.application_id
    answering(settings.bootstrap_servers, settings.common)

    def look() -> list[TaskLine]:
        return task_lines(topology, name, lag_of(settings.bootstrap_servers, settings.common, name))

    if args.json:
        print(orjson.dumps([dataclasses.asdict(line) for line in look()], option=orjson.OPT_INDENT_2).decode())
    elif args.once or not sys.stdout.isatty():
        print(shown(look()))
    else:
        _draw(look)
    return 0


def _draw(look: Any) -> None:
    """Draw the table until Ctrl-C."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    before, at_s = look(), time.monotonic()
    with Live(Text(shown(before)), console=Console(), auto_refresh=False) as live:
        while True:
            time.sleep(INTERVAL_S)
            now, now_s = look(), time.monotonic()
            live.update(Text(shown(with_rates(before, now, now_s - at_s))), refresh=True)
            before, at_s = now, now_s


def task_lines(topology: Topology, application_id: str, partitions: Iterable[PartitionLag]) -> list[TaskLine]:
    """The tasks in their order. A sub-topology has a task for each partition of its inputs that the group knows."""
    by_topic: dict[str, dict[int, PartitionLag]] = {}
    for part in partitions:
        by_topic.setdefault(part.topic, {})[part.partition] = part
    out = []
    for sub in topology.subtopologies:
        topics = sorted({topology.source(n).topic_name(application_id) for n in sub.sources})
        count = max((len(by_topic.get(topic, {})) for topic in topics), default=0)
        for number in range(count):
            found = [by_topic[t][number] for t in topics if number in by_topic.get(t, {})]
            out.append(_line(f"{sub.number}_{number}", tuple(topics), found))
    return out


def _line(task: str, topics: tuple[str, ...], found: Sequence[PartitionLag]) -> TaskLine:
    owners = sorted({part.owner for part in found if part.owner is not None})
    lags = [part.lag for part in found if part.lag is not None]
    position = sum(part.position or 0 for part in found)
    unread = sum(part.end for part in found if part.position is None)
    return TaskLine(task, topics, ", ".join(owners) or None, position, sum(lags) if lags else None, unread=unread)


def with_rates(before: Sequence[TaskLine], now: Sequence[TaskLine], seconds: float) -> list[TaskLine]:
    """The lines with what was committed a second since those before."""
    then: Mapping[str, int] = {line.task: line.position for line in before}
    return [
        dataclasses.replace(line, rate=max(line.position - then.get(line.task, line.position), 0) / max(seconds, 1e-9))
        for line in now
    ]


def shown(lines: Sequence[TaskLine]) -> str:
    """The table, with its sums below."""
    from penstock.streams.cli.topics import table

    if not lines:
        return "the group has no committed positions: no worker of this application has committed yet"
    rows = [
        [
            line.task,
            ", ".join(line.inputs),
            line.owner or "-",
            "-" if line.lag is None else f"{line.lag:,}",
            "-" if line.rate is None else f"{line.rate:,.0f}",
        ]
        for line in lines
    ]
    owned = sum(line.owner is not None for line in lines)
    text = table(["task", "inputs", "worker", "lag", "records/s"], rows)
    lag = sum(line.lag or 0 for line in lines)
    new = unread(sum(line.unread for line in lines))
    return f"{text}\n{counted(len(lines), 'task')}, {owned} with a worker, lag {lag:,}{new}"
