"""What a consumer is asked in the callbacks of its own ``poll`` does not end the process at the next callback."""

from __future__ import annotations

import subprocess
import sys

from penstock.streams.kafka.admin import KafkaAdmin
from penstock.streams.kafka.client_config import admin_config
from penstock.streams.ports.log import TopicSpec

LIMIT_S = 120
MEMBER = """
import sys
import time
from confluent_kafka import Consumer
from penstock.state.errors import RetriableError
from penstock.streams.kafka.log_ends import from_leaders

servers, topic = sys.argv[1:]
statistics = []


def assigned(consumer, partitions):
    tries = []

    def ask(given_s):
        tries.append(given_s)
        if len(tries) == 1:
            raise RetriableError("the leader is away")

    from_leaders(10.0, ask)
    assert len(tries) == 2
    time.sleep(0.2)  # meanwhile statistics come, which the same poll hands over
    statistics.clear()
    consumer.incremental_assign(partitions)
    print("assigned", flush=True)


config = {"bootstrap.servers": servers, "group.id": topic, "partition.assignment.strategy": "cooperative-sticky"}
config |= {"statistics.interval.ms": 10, "stats_cb": statistics.append}
consumer = Consumer(config)
consumer.subscribe([topic], on_assign=assigned)
until = time.monotonic() + 60
while not (consumer.assignment() and statistics):
    assert time.monotonic() < until
    consumer.poll(1.0)
consumer.close()
print("closed", flush=True)
"""


def test_leaders_are_looked_for_while_partitions_are_assigned(bootstrap_servers: str) -> None:
    """A request is repeated in the callback, and the poll that hands over the assignment goes on."""
    topic = "asked-in-callbacks"
    KafkaAdmin(admin_config(bootstrap_servers, {})).create_topics([TopicSpec(topic, 2)])
    command = [sys.executable, "-c", MEMBER, bootstrap_servers, topic]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert (ended.returncode, ended.stdout) == (0, "assigned\nclosed\n"), ended.stderr
