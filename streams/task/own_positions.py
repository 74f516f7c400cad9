"""Which committed positions are a task's own: those that it started from, or committed itself.

Its stores hold what these positions stand for. A position that is read back after a failure, and is neither one of
these nor that of a commit in doubt, was committed by another owner. The stores lack that owner's work, so they must
be restored. Both offset and metadata are compared, because two owners can reach the same offset with different state.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.state.errors import TaskMigratedError
from penstock.state.log import TaskId
from penstock.streams.ports.log import OffsetAndMetadata
from penstock.streams.task import commit_metadata
from penstock.streams.task.commit_metadata import CommitMetadata


class OwnPositions:
    """See the module. ``start``: offset and metadata by input topic; version 0 if none was committed."""

    def __init__(self, start: Mapping[str, tuple[int, CommitMetadata]]) -> None:
        self.known: dict[str, OffsetAndMetadata] = {
            topic: OffsetAndMetadata(offset, commit_metadata.encode(noted) if noted.version else "")
            for topic, (offset, noted) in start.items()
        }
        """The last positions that are known to be committed."""
        self.beginnings: dict[str, OffsetAndMetadata] = {}
        """These positions with more metadata, which may be committed: see ``begun_positions``."""
        self.complete = False
        """The last positions need no more metadata."""
        self._asked: dict[str, OffsetAndMetadata] = {}

    def begin(self, topic: str, position: OffsetAndMetadata) -> None:
        """This is about to be committed: the last own position with more metadata, which means the same."""
        self.beginnings[topic] = position

    def begun(self) -> None:
        """The beginnings are committed."""
        self.known |= self.beginnings
        self.beginnings, self.complete = {}, True

    def asked(self, topic: str, position: OffsetAndMetadata) -> None:
        """This position is about to be committed."""
        self._asked[topic] = position

    def committed(self) -> None:
        """The last requested commit took place."""
        self.known |= self._asked
        self._asked = {}

    def are(self, found: Mapping[str, tuple[int, CommitMetadata]]) -> bool:
        """Whether positions that were read back are the last own ones."""
        return all(
            topic in found
            and found[topic] in ((p.offset, commit_metadata.decode(p.metadata)) for p in self._own(topic))
            for topic in self.known
        )

    def _own(self, topic: str) -> list[OffsetAndMetadata]:
        begun = self.beginnings.get(topic)
        return [self.known[topic]] if begun is None else [self.known[topic], begun]


def taken_over(task: TaskId) -> TaskMigratedError:
    """The error for positions that another worker has committed."""
    return TaskMigratedError(
        f"another worker has committed positions of task {task} meanwhile, so the stores here lack its work; discard it "
        "and restore the stores from the log"
    )
