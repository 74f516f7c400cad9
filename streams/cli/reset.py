"""``penstock reset``: an application begins again with empty stores, at a place of its inputs that the user chooses."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from penstock.streams.cli.client_options import (
    SETTINGS_SERVERS,
    add_settings_file,
    add_topology,
    answering,
    settings_of,
)
from penstock.streams.cli.counts import counted

if TYPE_CHECKING:
    from penstock.state.log import TopicPartition
    from penstock.state.machine.state_directory import StateDirectory
    from penstock.streams.kafka.groups import GroupSummary
    from penstock.streams.kafka.topics import Topics
    from penstock.streams.worker.settings import WorkerSettings
    from penstock.topologies.graph.topology import Topology

_LOCK_WAIT_S = 0.1


@dataclasses.dataclass(frozen=True)
class ResetPlan:
    """The things that a reset deletes: groups with their positions, topics of the application's own, the folder of this
    machine, and the folder in the snapshot repository. ``positions``: where inputs go on then; the others begin with
    the first record that is there. ``left_over``: topics that look like the application's, and that this topology does
    not know."""

    groups: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    snapshots: tuple[str, ...] = ()
    positions: Mapping[TopicPartition, int] = dataclasses.field(default_factory=dict)
    left_over: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether there is nothing to delete and nothing to set."""
        return not (self.groups or self.topics or self.folders or self.snapshots or self.positions)

    def lines(self) -> list[str]:
        """One line for each thing that goes, or is set."""
        return [
            *(f"delete group      {name}" for name in self.groups),
            *(f"delete topic      {name}" for name in self.topics),
            *(f"delete folder     {path}" for path in self.folders),
            *(f"delete snapshots  {place}" for place in self.snapshots),
            *(
                f"begin at          {tp.topic} [{tp.partition}] offset {at}"
                for tp, at in sorted(self.positions.items())
            ),
        ]

    def as_json(self, *, done: bool) -> str:
        """The plan as one JSON object."""
        shown = {
            "done": done,
            "groups": self.groups,
            "topics": self.topics,
            "folders": self.folders,
            "snapshots": self.snapshots,
            "positions": [
                {"topic": tp.topic, "partition": tp.partition, "offset": at}
                for tp, at in sorted(self.positions.items())
            ],
            "left_over": self.left_over,
        }
        return orjson.dumps(shown, option=orjson.OPT_INDENT_2).decode()


def register(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "reset",
        help="have an application begin again, with empty stores",
        description="Delete an application's group, its own topics, its state folder on this machine and its snapshots, so "
        "that it reads its inputs again. Without --yes, only say what would be done. What it wrote to your topics stays.",
    )
    add_topology(parser)
    add_settings_file(parser)
    parser.add_argument("--bootstrap-server", dest="bootstrap_servers", metavar="HOST:PORT", help=SETTINGS_SERVERS)
    parser.add_argument("--state-dir", metavar="DIR", help="where stores are kept (default: .penstock)")
    parser.add_argument("--snapshots", metavar="URL", help="the repository of its snapshots (default: the setting)")
    parser.add_argument(
        "--to",
        default="beginning",
        metavar="beginning|end|TIME",
        help="where it reads on: the first record that is there, what comes from now on, or the first record of a time such "
        "as 2026-11-22T10:00 (UTC unless it says another zone) (default: beginning)",
    )
    parser.add_argument(
        "--to-offset",
        action="append",
        default=[],
        metavar="TOPIC:PARTITION=OFFSET",
        help="where it reads on in one partition (repeatable), stronger than --to",
    )
    parser.add_argument("--yes", action="store_true", help="do it")
    parser.add_argument("--json", action="store_true", help="print the plan as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Say what would be done, and do it where ``--yes`` is given."""
    from penstock.state.machine.state_directory import StateDirectory
    from penstock.streams.kafka.groups import list_groups
    from penstock.streams.kafka.topics import Topics
    from penstock.streams.topology_loading import load_topology

    topology = load_topology(args.topology)
    given = {name: getattr(args, name) for name in ("application_id", "bootstrap_servers", "state_dir", "snapshots")}
    settings = settings_of(args.config, **given)
    name, servers, client = settings.application_id, settings.bootstrap_servers, dict(settings.common)
    answering(servers, client)
    topics, directory = Topics(servers, client), StateDirectory(settings.state_dir, name)
    groups = list_groups(servers, client)
    refuse_members(name, groups)
    there = {topic.name: topic.partitions for topic in topics.list()}
    plan = dataclasses.replace(
        plan_of(topology, name, [g.name for g in groups], there, directory.path),
        snapshots=_snapshots(settings),
        positions=_positions(args, topology, there, topics, settings),
    )
    if plan.empty:
        print(plan.as_json(done=False) if args.json else _nothing(name, plan))
        return 0
    if not args.json:
        print("\n".join(plan.lines()))
    if args.yes:
        _refuse_held(directory)
        _fence_fixed(plan, topology, there, settings)
        _carry_out(plan, topics, settings)
    print(plan.as_json(done=args.yes) if args.json else _closing(args.yes, plan))
    return 0


def _nothing(name: str, plan: ResetPlan) -> str:
    said = f"application {name} has no group, no topics of its own, no snapshots and no state folder here; nothing to reset"
    return "\n".join([said, *_left_over_lines(plan)])


def _closing(done: bool, plan: ResetPlan) -> str:
    said = (
        "done; remove the state folder on every other machine before a worker starts there"
        if done
        else "nothing was changed; to do all of this, add --yes. State folders on other machines are yours to remove"
    )
    return "\n".join([said, *_left_over_lines(plan)])


def _left_over_lines(plan: ResetPlan) -> list[str]:
    return [
        f"not touched, because this topology does not use it: {topic}; if an earlier one made it, run: "
        f"penstock topics delete {topic}"
        for topic in plan.left_over
    ]


def plan_of(
    topology: Topology, application_id: str, groups: Collection[str], topics: Iterable[str], folder: Path
) -> ResetPlan:
    """Find an application's groups, topics and folder among those given. Topics are those that the topology names, so
    that none of an application with a longer id is among them."""
    from penstock.streams.runtime.own_topics import FIXED_SUFFIX, groups_of, left_over, own_topics

    there = set(topics)
    own = [t for t in own_topics(topology, application_id) if t in there]
    found = tuple(g for g in groups_of(application_id) if g in groups)
    others = [g.removesuffix(FIXED_SUFFIX) for g in groups]
    left = left_over(topology, application_id, there, others)
    return ResetPlan(found, tuple(own), (str(folder),) if folder.is_dir() else (), left_over=tuple(left))


def refuse_members(application_id: str, groups: Sequence[GroupSummary]) -> None:
    """Raises ``UserError`` while workers of the application are members."""
    from penstock.state.errors import UserError
    from penstock.streams.runtime.own_topics import groups_of

    for group in groups:
        if group.name in groups_of(application_id) and group.members:
            raise UserError(
                f"group {group.name} has {counted(len(group.members), 'member')} ({', '.join(group.members)}); stop its "
                "workers first, and wait for the session timeout after one that was killed"
            )


def given_offsets(texts: Sequence[str], inputs: Mapping[str, int]) -> dict[TopicPartition, int]:
    """The offsets of ``--to-offset``. ``inputs``: partition counts. Raises ``SettingsError`` for a text of another form,
    and for a partition that is not read."""
    from penstock.state.errors import SettingsError
    from penstock.state.log import TopicPartition

    out: dict[TopicPartition, int] = {}
    for text in texts:
        place, _, offset = text.rpartition("=")
        topic, _, partition = place.rpartition(":")
        if not (topic and partition.isdecimal() and offset.isdecimal()):
            raise SettingsError(f"--to-offset {text}: write TOPIC:PARTITION=OFFSET, such as orders:0=1200")
        if int(partition) >= inputs.get(topic, 0):
            listed = ", ".join(f"{name} ({counted(count, 'partition')})" for name, count in inputs.items())
            raise SettingsError(
                f"--to-offset {text}: the topology reads no such partition; its inputs are {listed or 'none'}"
            )
        out[TopicPartition(topic, int(partition))] = int(offset)
    return out


def _positions(
    args: argparse.Namespace, topology: Topology, there: Mapping[str, int], topics: Topics, settings: WorkerSettings
) -> dict[TopicPartition, int]:
    """Where inputs are to go on, without those that begin with their first record. Raises ``SettingsError`` for an offset
    that a partition does not have."""
    from penstock.state.errors import SettingsError
    from penstock.state.log import TopicPartition
    from penstock.streams.cli.times import time_ms
    from penstock.streams.kafka.by_time import offsets_since
    from penstock.streams.kafka.client_config import consumer_config
    from penstock.streams.runtime.own_topics import input_topics

    inputs = {topic: there[topic] for topic in input_topics(topology) if topic in there}
    given = given_offsets(args.to_offset, inputs)
    at_ms = None if args.to in ("beginning", "end") else time_ms(args.to, "--to", "beginning, end, or ")
    if args.to == "beginning" and not given:
        return {}
    wanted = list(inputs) if args.to != "beginning" else sorted({tp.topic for tp in given})
    described = {topic: topics.describe(topic).partitions for topic in wanted}
    bounds = {TopicPartition(t, p.partition): (p.start_offset, p.end_offset) for t, ps in described.items() for p in ps}
    for tp, at in given.items():
        first, end = bounds[tp]
        if not first <= at <= end:
            raise SettingsError(
                f"--to-offset {tp.topic}:{tp.partition}={at}: the partition holds {first} to {end}; choose one of them"
            )
    chosen: dict[TopicPartition, int] = {}
    if args.to != "beginning":
        chosen = {tp: end for tp, (_, end) in bounds.items()}
    if at_ms is not None:
        config = consumer_config(settings.bootstrap_servers, f"{settings.application_id}-reset", settings.common)
        chosen |= offsets_since(config, list(bounds), at_ms)
    return chosen | given


def _snapshots(settings: WorkerSettings) -> tuple[str, ...]:
    """Where the application's snapshots are, if it has any. Raises ``UserError`` where a savepoint is pinned."""
    from penstock.state.errors import UserError
    from penstock.state.machine.state_directory import safe_name
    from penstock.state.snapshots.storage import open_storage

    if settings.snapshots is None:
        return ()
    folder = safe_name(settings.application_id)
    storage = open_storage(settings.snapshots)
    pinned = [n.removesuffix(".pin") for n in storage.names(f"{folder}/savepoints") if n.endswith(".pin")]
    if pinned:
        raise UserError(
            f"savepoint {pinned[0]} of {settings.application_id} in {settings.snapshots} is pinned, and would be deleted; "
            f"run: penstock savepoints --repository {settings.snapshots} --unpin {pinned[0]}"
        )
    return (f"{str(settings.snapshots).rstrip('/')}/{folder}",) if storage.names(folder) else ()


def _refuse_held(directory: StateDirectory) -> None:
    """Raises ``RetriableError`` while a process has one of the tasks: a frozen one is not a member any more."""
    for task in directory.tasks():
        directory.lock(task, timeout_s=_LOCK_WAIT_S).release()


def _fence_fixed(plan: ResetPlan, topology: Topology, there: Mapping[str, int], settings: WorkerSettings) -> None:
    """Refuse what a worker with fixed partitions, or a job, sends when it wakes. It is not a member, and would commit
    positions to the application that begins again."""
    from penstock.streams.batch.handover.worker_exclusion import end_transactions
    from penstock.streams.runtime.own_topics import input_topics
    from penstock.streams.worker.fixed_worker_lock import presence_group

    if presence_group(settings.application_id) in plan.groups:
        read = {*input_topics(topology), *plan.topics}
        end_transactions(settings, range(max((there.get(topic, 0) for topic in read), default=0)))


def _carry_out(plan: ResetPlan, topics: Topics, settings: WorkerSettings) -> None:
    """Topics first: of a reset that was interrupted then, a worker finds positions without changelogs, and refuses."""
    from penstock.state.machine.state_directory import safe_name
    from penstock.state.snapshots.storage import open_storage
    from penstock.streams.kafka.admin import KafkaAdmin
    from penstock.streams.kafka.client_config import admin_config
    from penstock.streams.kafka.groups import delete_groups
    from penstock.streams.ports.log import OffsetAndMetadata

    servers, client = settings.bootstrap_servers, dict(settings.common)
    for topic in plan.topics:
        topics.delete(topic)
    delete_groups(servers, client, plan.groups)
    _remove([Path(folder) for folder in plan.folders])
    if plan.snapshots and settings.snapshots is not None:
        open_storage(settings.snapshots).delete_folder(safe_name(settings.application_id))
    admin = KafkaAdmin(admin_config(servers, client))
    admin.set_offsets(settings.application_id, {tp: OffsetAndMetadata(at, "") for tp, at in plan.positions.items()})


def _remove(folders: Sequence[Path]) -> None:
    import shutil

    from penstock.state.machine.atomic_files import environment_fault

    for folder in folders:
        try:
            shutil.rmtree(folder)
        except OSError as exc:
            raise environment_fault(exc, f"remove {folder}") from exc
