"""Named places at which tests strike: where a process is killed, frozen or made to fail.

``failpoint(name)`` does nothing but look whether something is armed. It stands at steps of a commit, a restore, a start,
never at records. ``penstock.streams.worker.failpoint_actions`` arms them, if the environment asks. Pure: no clock, file or
signal.
"""

from __future__ import annotations

from collections.abc import Callable

FAILPOINTS: dict[str, str] = {
    "commit.begun": "a transaction is open, nothing is sent",
    "commit.prepared": "operators have emitted what they held; the commit's work is collected",
    "commit.sent": "outputs, changelogs and journal are with the client",
    "commit.flushed": "all of it is acknowledged",
    "commit.offsets_added": "input positions are in the transaction",
    "commit.end_answered": "the broker has answered the transaction's commit",
    "commit.committed": "the log has the commit, the stores do not",
    "commit.stores_written": "every store has its changes and its position",
    "abort.asked": "a transaction is about to be aborted",
    "abort.answered": "the broker has answered the abort",
    "producer.opening": "a producer is about to fence the older one of its id",
    "producer.opened": "the older one is fenced, its transaction ended",
    "fence.answered": "a dead worker was fenced by the next owner of its tasks",
    "identity.kept": "the state folder has its identity",
    "assign.begun": "the group gave partitions, nothing of them is taken",
    "assign.positions_read": "the committed positions of a task are read",
    "assign.taken": "partitions are read, their tasks wait for their stores",
    "revoke.begun": "the group takes partitions, nothing is committed yet",
    "revoke.closing": "the last commit is done, the tasks are about to be closed",
    "revoke.closed": "the tasks are closed",
    "lost.begun": "the group has taken the partitions already",
    "stop.released": "a worker that ends has taken its name back from its positions",
    "restore.locked": "the task's folder is locked",
    "restore.opened": "the task's database is open",
    "restore.decided": "it is known from where a store is restored",
    "restore.chunk_written": "a part of the changelog is in the store",
    "restore.ended": "a store is at the end of its changelog",
    "restore.quarantined": "damaged state is quarantined, nothing new exists yet",
    "ingest.fetched": "a snapshot's files are here and verified",
    "ingest.done": "the database has taken a snapshot's files in",
    "flush.begun": "a flush of the stores is about to begin",
    "flush.written": "the database has all entries, not yet on the disk",
    "flush.done": "they are on the disk",
    "write.file_made": "a large commit is a table file, which the database does not know yet",
    "publish.uploaded": "a snapshot's files are in the repository",
    "publish.checked": "the files are complete, the manifest is about to be written",
    "publish.done": "the manifest is written",
    "prune.manifests_removed": "old manifests are gone, their files are not",
    "prune.done": "their files are gone too",
}
"""The failpoints, and the work that is done where each of them stands."""

_armed: Callable[[str], None] | None = None


def failpoint(name: str) -> None:
    """A place of ``FAILPOINTS`` is passed."""
    if _armed is not None:
        _armed(name)


def arm(strike: Callable[[str], None] | None) -> None:
    """Have ``strike`` called with the name of each place that is passed; ``None``: nothing is."""
    global _armed
    _armed = strike
