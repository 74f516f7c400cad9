"""A worker's checks of its topology before it makes any topic: against the record in the log, the one in its state
folder, and the changelogs that committed positions count on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.state.errors import IncompatibleError
from penstock.state.machine.atomic_files import environment_fault, replace_file
from penstock.state.machine.state_directory import StateDirectory
from penstock.streams.events.facts import TopologyChanged
from penstock.streams.events.port import EventSink
from penstock.streams.ports.log import LogAdmin, LogConsumer, LogProducer
from penstock.streams.runtime.recorded_topology import (
    changes_of,
    read_record,
    refuse_missing_changelogs,
    write_record,
)
from penstock.streams.runtime.topic_setup import TopicLayout, fingerprint
from penstock.streams.runtime.topology_record import TopologyRecord, decode, encode, record_of, refuse, sentences
from penstock.topologies.graph.topology import Topology

RECORD_FILE: Final = "topology.json"


class KnownTopology:
    """One application's."""

    def __init__(
        self,
        topology: Topology,
        application_id: str,
        directory: StateDirectory,
        events: EventSink,
    ) -> None:
        self._topology = topology
        self._application_id = application_id
        self._directory = directory
        self._events = events
        self._in_log: TopologyRecord | None = None
        self._reported = False

    # The record in the folder is that of its stores, also where another machine's worker has written a newer one to the log.
    def compare(
        self, layout: TopicLayout, cluster_id: str, admin: LogAdmin, open_consumer: Callable[[], LogConsumer]
    ) -> None:
        """Raises ``IncompatibleError``, naming what changed from what to what, where stored state does not fit. Other
        changes are reported once. ``open_consumer``: one of the application's group, which does not join."""
        record = record_of(self._topology, self._application_id, layout)
        try:
            self._directory.check(cluster_id=cluster_id, fingerprint=fingerprint(self._topology, layout))
        except IncompatibleError as exc:
            found = changes_of(self._in_folder(), record, admin)
            if not found or "the state of topology" not in str(exc):
                raise  # it is of another application or cluster
            # what the log refuses too would be refused without the folder
            refuse(
                changes_of(read_record(self._application_id, admin, open_consumer), record, admin), self._application_id
            )
            path, before = self._directory.path, self._in_folder()
            name = self._topology.name
            what = f"topology {name!r} as it was before a change"
            if before is not None and before.topology != name:
                what = f"topology {before.topology!r}, and this is topology {name!r}"
            raise IncompatibleError(
                f"{path} holds the state of {what}. What changed: {sentences(found)}. If that is wanted, remove {path} "
                "and start again: what is restored comes from snapshots and changelogs. Else undo the change, or use "
                "another application id"
            ) from exc
        refuse_missing_changelogs(self._topology, self._application_id, admin, open_consumer)
        self._in_log = read_record(self._application_id, admin, open_consumer)
        found = changes_of(self._in_log, record, admin)
        refuse(found, self._application_id)
        if found and not self._reported:
            self._events.emit(TopologyChanged(self._application_id, sentences(found)))
            self._reported = True

    def keep(
        self,
        layout: TopicLayout,
        admin: LogAdmin,
        open_producer: Callable[[], LogProducer],
        now_ms: int,
        replication_factor: int,
    ) -> None:
        """Keep the record in the log, where it is not there yet."""
        record = record_of(self._topology, self._application_id, layout)
        if record != self._in_log:
            write_record(
                self._application_id,
                record,
                admin,
                open_producer,
                now_ms=now_ms,
                replication_factor=replication_factor,
            )
            self._in_log = record

    def keep_in_folder(self, layout: TopicLayout) -> None:
        """Keep the record in the state folder, which has been claimed."""
        path, data = self._directory.path / RECORD_FILE, encode(record_of(self._topology, self._application_id, layout))
        try:
            if not path.exists() or path.read_bytes() != data:
                replace_file(path, data)
        except OSError as exc:
            raise environment_fault(exc, f"keep the topology in {path}") from exc

    def _in_folder(self) -> TopologyRecord | None:
        try:
            return decode((self._directory.path / RECORD_FILE).read_bytes())
        except OSError:
            return None
