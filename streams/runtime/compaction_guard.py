"""Records that keep the broker's log cleaner away from what a commit has not confirmed yet. Pure.

Under at-least-once a changelog may hold records behind the last commit: of a commit that its worker did not live to see, or
of a worker that was frozen. A restore ends before them. But the cleaner knows nothing of commits: once such a record lies in
a segment that it cleans, it removes the older record of the same key, which was committed, and a restore lacks the key.

So these topics have ``min.compaction.lag.ms``: the cleaner stops at the first segment with a record that is younger, and the
next owner's first commit answers what it finds behind the last one (``penstock.streams.runtime.foreign_writes``). Brokers
judge by the records' own time, and old events would hold off nothing. So where the first record of a commit is old, a
deletion of a key that nobody has goes ahead of it, with the time on the clock.

The cleaner is held off for ``TAIL_KEPT_MS``. Within that time after a crash, a worker must have committed again.
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
