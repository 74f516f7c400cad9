"""The parts of a topology on which its stored state depends, as a record kept with the application, and what a change does.

The record is in the log, in a topic of the application's own, and in the state folder. A worker compares it with its
topology before it makes any topic; ``penstock diff`` does the same without a worker. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final, Literal, NamedTuple

import msgspec

from penstock.state.errors import IncompatibleError
from penstock.state.recovery.changelog import changelog_topic
from penstock.streams.runtime.topic_setup import TopicLayout
from penstock.topologies.graph.topology import Topology

VERSION: Final = 1
StoreOutcome = Literal["kept", "restored", "begins empty", "left behind", "from the beginning", "refused"]
LOSING: Final[frozenset[StoreOutcome]] = frozenset({"begins empty", "refused"})
"""Outcomes at which a check before a deployment should stop."""


class StoreEntry(msgspec.Struct, frozen=True):
    """One store: what its bytes depend on, where its changes are, and how many partitions it has."""

    name: str
    kind: str
    key: str
    value: str
    window_size_ms: int | None
    retention_ms: int | None
    changelog: str | None
    subtopology: int
    partitions: int

    @property
    def form(self) -> str:
        """The properties on which its stored bytes depend, in words."""
        size = "" if self.window_size_ms is None else f", windows of {self.window_size_ms} ms"
        return f"{self.kind} of {self.key} to {self.value}{size}"


class SourceEntry(msgspec.Struct, frozen=True):
    """One topic that is read. ``form``: that of the records of an internal one."""

    topic: str
    key: str
    value: str
    internal: bool
    form: str


class TopologyRecord(msgspec.Struct, frozen=True):
    """All of it."""

    version: int
    topology: str
    stores: tuple[StoreEntry, ...]
    sources: tuple[SourceEntry, ...]


class TopologyChange(NamedTuple):
    """One thing that is not as it was. ``was`` or ``becomes`` is ``-`` where there is none."""

    what: str
    was: str
    becomes: str
    outcome: StoreOutcome
    advice: str


class _RecordVersion(msgspec.Struct):
    version: int


def record_topic(application_id: str) -> str:
    """The compacted topic of one partition that holds the record."""
    return f"{application_id}-topology"


def record_of(topology: Topology, application_id: str, layout: TopicLayout) -> TopologyRecord:
    """The record of a topology whose topics have this layout."""
    stores = [
        StoreEntry(
            s.name,
            s.kind,
            s.key_serde.name,
            s.value_serde.name,
            s.window_size_ms,
            s.retention_ms,
            changelog_topic(application_id, s) if s.changelog or s.source_topic is not None else None,
            sub.number,
            tasks,
        )
        for sub, tasks in zip(topology.subtopologies, layout.tasks, strict=True)
        for s in sub.stores
    ]
    sources = [
        SourceEntry(s.topic_name(application_id), s.key_serde.name, s.value_serde.name, s.internal, s.form)
        for sub in topology.subtopologies
        for s in map(topology.source, sub.sources)
    ]
    return TopologyRecord(
        VERSION,
        topology.name,
        tuple(sorted(stores, key=lambda s: s.name)),
        tuple(sorted(sources, key=lambda s: s.topic)),
    )


def encode(record: TopologyRecord) -> bytes:
    """The record as JSON."""
    return msgspec.json.encode(record)


def decode(data: bytes) -> TopologyRecord | None:
    """Read what ``encode`` wrote; ``None`` for anything else, such as the record of a later release."""
    try:
        if msgspec.json.decode(data, type=_RecordVersion).version != VERSION:
            return None
        return msgspec.json.decode(data, type=TopologyRecord)
    except (msgspec.MsgspecError, ValueError):
        return None


def changes(before: TopologyRecord, after: TopologyRecord, topics: Collection[str]) -> list[TopologyChange]:
    """The changes, stores first. ``topics``: those that exist, of the changelogs that ``after`` names."""
    return [*_store_changes(before, after, topics), *_source_changes(before, after)]


def refuse(found: Collection[TopologyChange], application_id: str) -> None:
    """Raises ``IncompatibleError`` naming what is refused, if anything is."""
    wrong = [change for change in found if change.outcome == "refused"]
    if wrong:
        raise IncompatibleError(
            f"the topology does not fit what application {application_id} has stored: {sentences(wrong)}. See all changes "
            f"with: penstock diff MODULE:TOPOLOGY --application-id {application_id}"
        )


def sentences(found: Collection[TopologyChange]) -> str:
    """The changes as one text."""
    return "; ".join(f"{_difference(c)}: {c.outcome}, {c.advice}" for c in found)


def _difference(change: TopologyChange) -> str:
    if change.was == "-":
        return f"{change.what} is new ({change.becomes})"
    if change.becomes == "-":
        return f"{change.what} is gone (was {change.was})"
    return f"{change.what} was {change.was} and is now {change.becomes}"


def _store_changes(before: TopologyRecord, after: TopologyRecord, topics: Collection[str]) -> Iterator[TopologyChange]:
    old, new = {s.name: s for s in before.stores}, {s.name: s for s in after.stores}
    gone = [s for name, s in old.items() if name not in new]
    for name in sorted(old.keys() & new.keys()):
        yield from _changed(old[name], new[name])
    for store in (s for name, s in sorted(new.items()) if name not in old):
        twin = next((s for s in gone if s.form == store.form and s.partitions == store.partitions), None)
        if store.changelog is not None and store.changelog in topics:
            yield TopologyChange(
                f"store {store.name}", "-", store.form, "restored", f"from {store.changelog}, which exists"
            )
        elif twin is not None:
            gone.remove(twin)
            yield TopologyChange(
                f"store {twin.name}",
                f"called {twin.name}",
                f"called {store.name}",
                "begins empty",
                f"because stores are found by their names: keep name={twin.name!r}, or let it begin empty",
            )
        else:
            yield TopologyChange(f"store {store.name}", "-", store.form, "begins empty", "as a new one")
    for store in gone:
        where = f"its changelog {store.changelog} stays until you delete it" if store.changelog else "its files go"
        yield TopologyChange(f"store {store.name}", store.form, "-", "left behind", where)


def _changed(was: StoreEntry, now: StoreEntry) -> Iterator[TopologyChange]:
    what = f"store {was.name}"
    if was.form != now.form:
        yield TopologyChange(
            what,
            was.form,
            now.form,
            "refused",
            "because its changelog holds the old bytes: give the store another name, or start over with penstock reset",
        )
    if was.partitions != now.partitions:
        yield TopologyChange(
            what,
            f"of {was.partitions} partitions",
            f"of {now.partitions}",
            "refused",
            "because keys would be looked for in other partitions: see penstock rescale, or start over with penstock reset",
        )
    if was.changelog != now.changelog:
        yield TopologyChange(
            what,
            f"logged to {was.changelog or 'no topic'}",
            f"logged to {now.changelog or 'no topic'}",
            "begins empty" if now.changelog is None else "restored",
            "from what the new topic holds" if now.changelog else "because nothing logs it",
        )
    elif was.subtopology != now.subtopology:
        yield TopologyChange(
            what,
            f"in sub-topology {was.subtopology}",
            f"in sub-topology {now.subtopology}",
            "restored",
            "from its changelog",
        )
    if was.retention_ms != now.retention_ms:
        yield TopologyChange(
            what, f"kept for {was.retention_ms} ms", f"kept for {now.retention_ms} ms", "kept", "what expires changes"
        )


def _source_changes(before: TopologyRecord, after: TopologyRecord) -> Iterator[TopologyChange]:
    old, new = {s.topic: s for s in before.sources}, {s.topic: s for s in after.sources}
    for topic in sorted(old.keys() | new.keys()):
        was, now = old.get(topic), new.get(topic)
        if was is None:
            yield TopologyChange(
                f"input {topic}", "-", "read", "from the beginning", "or from where its group has committed"
            )
        elif now is None:
            advice = "what is unread there is refused at the start" if was.internal else "its positions stay"
            yield TopologyChange(f"input {topic}", "read", "-", "left behind", advice)
        elif was.internal and was.form != now.form:
            advice = "once its unread records are read; until then a start is refused"
            yield TopologyChange(f"input {topic}", f"of form {was.form}", f"of form {now.form}", "kept", advice)
        elif (was.key, was.value) != (now.key, now.value):
            yield TopologyChange(
                f"input {topic}",
                f"{was.key} to {was.value}",
                f"{now.key} to {now.value}",
                "kept",
                "its position; records must be readable so",
            )
