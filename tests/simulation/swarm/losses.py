"""What the log loses for good: topics that are made again, and the last records of a changelog."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from penstock.state.log import TopicPartition
from penstock.state.recovery.changelog import changelog_topic
from penstock.streams.task.commit_metadata import decode
from penstock.streams.testing.memory_log import LogEntry
from tests.simulation.swarm import checks
from tests.simulation.swarm.faults import Fault
from tests.simulation.swarm.history import APP

if TYPE_CHECKING:
    from tests.simulation.swarm.run import Swarm


def make_again(swarm: Swarm, fault: Fault) -> bool:
    """An input, or a changelog, of which something was committed; ``False`` where there is none yet. ``fault.nth`` 2: a new
    input holds more than the one before."""
    group = swarm.log.group(APP)
    known = {tp.topic for tp, c in group.offsets.items() if c.offset and tp.topic in swarm.program.inputs}
    noted = {s for c in group.offsets.values() for s, end in decode(c.metadata).changelogs.items() if end}
    specs = [s for s in swarm.world.topology.stores if s.source_topic is None and s.name in noted]
    topics = sorted(known | {changelog_topic(APP, s) for s in specs})
    if not topics:
        return False
    topic = topics[fault.who % len(topics)]
    ends = [log.end for log in swarm.log.topic(topic).partitions]
    swarm.log.make_again(topic)
    for p, end in enumerate(ends if topic in known and fault.nth == 2 else ()):
        for n in range(end + 5):
            _, key, value, at = swarm.program.write(random.Random(n), n)
            swarm.log.append(TopicPartition(topic, p), LogEntry(key, value, at))
    return True


def truncate(swarm: Swarm, fault: Fault) -> bool:
    """A changelog loses its last records by an unclean election; ``rewrite``: others stand in their place."""
    tasks = [t for node in swarm.nodes for t in node.runtime.tasks.values()]
    ends = checks.committed_ends(tasks)
    if not ends:
        return False
    tp, end = sorted(ends.items())[fault.who % len(ends)]
    log = swarm.log.partition(tp)
    log.truncate(max(end - fault.nth, log.first))
    if log.end == end:
        return False
    swarm.log.lose(tp)
    while fault.kind == "rewrite" and log.end < end + fault.nth:
        log.append(LogEntry(None, None, 0, control=True))  # of transactions that were aborted
    return True


BY_KIND = {"make_again": make_again, "truncate": truncate, "rewrite": truncate}
"""What to call for each kind of loss in the middle of a run."""
