"""Points in the log, as users name them: an end, a commit, a time, a savepoint, or offsets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from penstock.state.errors import SettingsError
from penstock.state.log import TopicPartition
from penstock.streams.batch.cluster import Cluster, ClusterAddress, offsets_at_time
from penstock.streams.batch.savepoint import SavepointRepository

SAVEPOINT = "savepoint:"
Point = str | datetime | Mapping[TopicPartition, int]
"""``end``, ``committed``, ``savepoint:<name>``, a time (a ``datetime`` or a text in ISO 8601), or offsets."""


def offsets_at(
    point: Point,
    partitions: Sequence[TopicPartition],
    cluster: Cluster,
    address: ClusterAddress,
    application_id: str,
    repository: str | None = None,
) -> dict[TopicPartition, int]:
    """The offset of every partition at that point: the first one that is not before it. Partitions that have none, such as
    those without a committed position, are left out. Raises ``SettingsError`` for a text that names no point."""
    if isinstance(point, Mapping):
        return {tp: point[tp] for tp in partitions if tp in point}
    if isinstance(point, datetime):
        stamp = point if point.tzinfo is not None else point.replace(tzinfo=UTC)
        found = offsets_at_time(address, application_id, partitions, round(stamp.timestamp() * 1000))
        later = cluster.ends(tp for tp in partitions if tp not in found)
        return found | {tp: end for tp, (_, end) in later.items()}
    if point == "end":
        return {tp: end for tp, (_, end) in cluster.ends(partitions).items()}
    if point == "committed":
        return {tp: c.offset for tp, c in cluster.committed(partitions).items()}
    if point.startswith(SAVEPOINT):
        if repository is None:
            raise SettingsError(f"{point} needs the repository that holds the savepoint (--repository)")
        saved = SavepointRepository(repository).load(application_id, point.removeprefix(SAVEPOINT) or "latest")
        return {tp: c.offset for tp, c in saved.committed().items() if tp in set(partitions)}
    try:
        at = datetime.fromisoformat(point)
    except ValueError as exc:
        raise SettingsError(
            f"{point!r} is not a point in the log: give end, committed, {SAVEPOINT}NAME, a time in ISO's form, or offsets"
        ) from exc
    return offsets_at(at, partitions, cluster, address, application_id, repository)
