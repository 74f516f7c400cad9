"""Restore: how long after the loss of its state folder does an application commit new records again?

``keyed-count`` runs over n clicks and is stopped; its state folder is removed; a few more clicks are added to every
partition; it starts again under the same application id. The time from the process's start until the new clicks are
committed is seen from outside, so it is the same question to every system. Two sizes are taken, and the difference is
the rate of restoring. The counts must then hold the old clicks and the new ones. The CPU counts until the process has
ended: an engine may write what it restored to the disk before it goes on, or when it stops.
"""

from __future__ import annotations

import shutil
import time
from typing import Any, NamedTuple

from benchmarks import data, oracle
from benchmarks.bench import Bench
from benchmarks.drain import stored_counts, watch
from benchmarks.oracle import Verdict
from benchmarks.processes import stop
from benchmarks.systems import System, UnavailableError

# Enough users that every partition gets some.
NEW_CLICKS = 64
RESTORE_SIZES = (500_000, 2_000_000)
# Without this a Kafka Streams member stays in the group until its session ends, 45 s, and the restarted one gets no
# partitions before; no setting of the client does it.
LEAVE_GROUP = {"LEAVE_GROUP": "true"}


class Restored(NamedTuple):
    """One restore; ``seconds`` and ``cpu_s`` are not meant when the verdict is wrong."""

    verdict: Verdict
    changelog_records: int = 0
    seconds: float = 0.0
    cpu_s: float = 0.0


def restore(bench: Bench, system: System, guarantee: str, records: int) -> Restored:
    """One run, its loss and its restore."""
    application = bench.new_application(system, "keyed-count")
    topic, log = f"{application}-in", bench.log
    log.create(f"{application}-out")
    log.load("clicks", records, topic)
    try:
        if (why := drained(bench, system, guarantee, application, records)[0]) is not None:
            return Restored(Verdict(False, f"before the loss: {why}"))
        changelog = sum(log.count(name) for name in log.internal_topics(application, "changelog"))
        shutil.rmtree(bench.state_folder(application), ignore_errors=True)
        log.append(topic, map(data.user_key, range(NEW_CLICKS)), log.base_ms + records // data.RECORDS_PER_MS)
        why, seconds, cpu_s = drained(bench, system, guarantee, application, records + NEW_CLICKS)
        if why is not None:
            return Restored(Verdict(False, f"after the loss: {why}"), changelog)
        expected = oracle.clicks_per_user(records, bench.variant.keys)
        for user in map(data.user_key, range(NEW_CLICKS)):
            expected[user.decode()] = expected.get(user.decode(), 0) + 1
        verdict = oracle.compare_counts(expected, stored_counts(bench, system, application))
        return Restored(verdict, changelog, seconds, cpu_s)
    except UnavailableError as error:
        return Restored(Verdict(False, str(error)))
    finally:
        bench.clean(application)


def drained(
    bench: Bench, system: System, guarantee: str, application: str, records: int
) -> tuple[str | None, float, float]:
    """Start the system, and stop it when all is committed: why it was not done, or ``None``; seconds until it was;
    CPU-seconds of the whole process."""
    began = time.monotonic()
    topic = f"{application}-in"
    process = bench.start(system, "keyed-count", guarantee, application, topic, {"COMMIT_MS": "200", **LEAVE_GROUP})
    try:
        _, done = watch(bench, process, application, topic, records, guarantee)
    finally:
        cpu_s = stop(process)
    if done is None:
        return f"not done after {time.monotonic() - began:.0f} s, see logs/{application}.log", 0.0, 0.0
    return None, done.at_s - began, cpu_s


def restore_pair(bench: Bench, system: System, guarantee: str, sizes: tuple[int, int]) -> dict[str, Any]:
    """Two restores of unequal size, as plain values."""
    small, large = (restore(bench, system, guarantee, records) for records in sizes)
    void = "; ".join(one.verdict.reason for one in (small, large) if not one.verdict.right)
    if not void and large.seconds <= small.seconds:
        void = "the larger restore was not the longer one: noise"
    facts: dict[str, Any] = {
        "system": system.name,
        "guarantee": guarantee,
        "changelog_records": [small.changelog_records, large.changelog_records],
        "seconds": [small.seconds, large.seconds],
        "left_group": True,
        "void": void,
    }
    if not void:
        more = large.changelog_records - small.changelog_records
        facts["records_per_s"] = more / (large.seconds - small.seconds)
        facts["cpu_s_per_million"] = (large.cpu_s - small.cpu_s) / more * 1e6
    return facts
