"""Guard records: they keep the broker's log cleaner away from records that no commit has confirmed yet. Pure.

Under at-least-once a changelog may hold records after the last commit: those of a worker that died while it committed,
or that was frozen. A restore ends before them. But the cleaner knows nothing about commits: if such a
record lies in a segment that it cleans, it removes the older, committed record of the same key, and a restore lacks
the key.

So these topics have ``min.compaction.lag.ms``: the cleaner stops at the first segment with a younger record, and the
next owner's first commit replaces what it finds after the last one (``penstock.streams.runtime.foreign_writes``).
Brokers judge by the records' own time, so old events would not stop the cleaner. If the first record of a commit is
old, a deletion of a key that does not exist is written before it, with the current time.

The cleaner is stopped for ``TAIL_KEPT_MS``. Within that time after a crash, a worker must have committed again.
"""

from __future__ import annotations

from penstock.state.recovery.changelog import GUARD_KEY, TAIL_KEPT_MS, guarded
from penstock.streams.task.commit_work import CommitWork
from penstock.streams.task.output import Output


def guard(work: CommitWork, now_ms: int) -> None:
    """Put a guard ahead of each changelog's records that need one. ``now_ms``: the wall clock."""
    logged = []
    for spec, output in work.changelogs:
        if guarded(spec) and len(output) and int(output.times[0]) < now_ms - TAIL_KEPT_MS // 2:
            logged.append((spec, Output(output.topic, [GUARD_KEY], [None], [now_ms], partition=output.partition)))
        logged.append((spec, output))
    work.changelogs[:] = logged
