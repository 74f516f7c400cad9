"""Whether the changelogs of a task are still those that its commits were written to, by the epochs of their leaders.

While a partition has one leader, nothing that was acknowledged is lost. A new one may lack the end of it, where the brokers
allow an unclean election; and once others have written there, offsets alone tell nothing. So each commit asks, after its
records were acknowledged, for the leaders' epochs, and notes them with the ends. Where one is not the last commit's, the
log is asked whether it still holds what that commit had written. If it does not, no restore could give the state again:
``IncompatibleError``, before anything more is committed. If it does, this commit is done again all the same: its own records
may have been written to the leader before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from penstock.state.errors import IncompatibleError
from penstock.state.log import TaskId, TopicPartition
from penstock.state.recovery.changelog import changelog_topic
from penstock.state.recovery.position import decode_position
from penstock.state.stores.store import StoreSpec
from penstock.streams.ports.log import LogConsumer
from penstock.streams.task.commit_work import CommitWork
from penstock.streams.task.task import Task

Ask = Callable[[Sequence[TopicPartition]], Mapping[TopicPartition, int]]


class ChangelogEpochs:
    """See the module. ``ask`` gives the epochs of leaders; ``open_reader`` a consumer that only reads."""

    def __init__(self, ask: Ask, open_reader: Callable[[], LogConsumer]) -> None:
        self._ask = ask
        self._open_reader = open_reader
        self._found: dict[tuple[TaskId, str], tuple[int, int]] = {}
        """The epoch of the leader that was seen to have each changelog up to an offset, and the offset."""

    def changed(self, works: Iterable[tuple[Task, CommitWork]]) -> list[TopicPartition]:
        """In a commit, after its records were acknowledged: the changelogs that have had another leader since the last one.
        Raises ``IncompatibleError`` for one that has lost what was committed."""
        return self._look([(task, spec) for task, work in works for spec, _ in work.changelogs])

    def look(self, task: Task) -> None:
        """Between commits. Raises as ``changed`` does."""
        logged = [state.spec for state in task.stores.values() if state.spec.changelog]
        self._look([(task, spec) for spec in logged if spec.source_topic is None])

    def _look(self, logged: Sequence[tuple[Task, StoreSpec]]) -> list[TopicPartition]:
        places = {_changelog_of(task, spec): (task, spec) for task, spec in logged}
        found = self._ask(list(places)) if places else {}
        changed = []
        for tp, epoch in found.items():
            task, spec = places[tp]
            end = task.changelog_end(spec.name) or 0
            known = self._known(task, spec, end, epoch)
            if end and known is not None and known != epoch:
                self._require(tp, end, known)
                changed.append(tp)
            self._found[task.id, spec.name] = epoch, end
            task.epochs[spec.name] = epoch
        return changed

    def _known(self, task: Task, spec: StoreSpec, end: int, epoch: int) -> int | None:
        """The last leader that is known to have had the changelog up to its committed end. ``epoch``: the one of now."""
        known = [task.epochs.get(spec.name, -1)]
        if (found := self._found.get((task.id, spec.name))) is not None and found[1] >= end:
            known.append(found[0])
        if max(known) != epoch and (raw := task.backend.position(spec.name)) is not None:
            position = decode_position(raw)
            known += [position.epoch] if position.changelog_offset >= end else []
        return max(known) if max(known) >= 0 else None

    def _require(self, tp: TopicPartition, end: int, epoch: int) -> None:
        reader = self._open_reader()
        try:
            if not reader.holds(tp, end, epoch):
                raise replaced(tp, end, epoch)
        finally:
            reader.close()


def replaced(tp: TopicPartition, end: int, epoch: int) -> IncompatibleError:
    """The error for a changelog that no longer holds what was committed."""
    return IncompatibleError(
        f"{tp.topic} [{tp.partition}] no longer holds what the last commit wrote up to offset {end} while its leader had "
        f"epoch {epoch}: a broker without these records became the leader (an unclean election), and others may stand there "
        "now. No restore would give the state again. Stop the application, delete its changelog topics and state folder, "
        "and reset the group's positions to the beginning, so that the stores are built again"
    )


def _changelog_of(task: Task, spec: StoreSpec) -> TopicPartition:
    return TopicPartition(changelog_topic(task.application_id, spec), task.id.partition)
