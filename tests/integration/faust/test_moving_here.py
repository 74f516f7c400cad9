"""The Faust program of the documents, in a real Faust worker on a real broker, and the topology beside it: the same sums."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.state.log import TopicPartition
from penstock.streams.kafka.admin import KafkaAdmin
from penstock.streams.kafka.client_config import admin_config, consumer_config, producer_config
from penstock.streams.kafka.consumer import KafkaConsumer
from penstock.streams.kafka.producer import KafkaProducer
from penstock.streams.ports.log import TopicSpec
from tests.integration.worker.application import LIMIT_S
from tests.test_site import code_of

PARTITIONS = 2
RUN = """
import sys

sys.argv = ["faust", "worker", "-l", "warn", "--without-web"]
app.main()
"""


def sums_of_the_topology(code: str, orders: list[tuple[str, int]]) -> dict[str, int]:
    """What the page's topology gives."""
    names: dict[str, Any] = {}
    exec(compile(code, "faust.md", "exec", dont_inherit=True), names)
    with ps.TopologyTestDriver(names["builder"].build()) as driver:
        driver.pipe_all("orders", [ps.Record(None, names["Order"](user, cents), 0) for user, cents in orders])
        return {record.key: record.value for record in driver.read("spent")}


class FaustProgram:
    """The page's program, with a name, a broker and a topic of its own."""

    def __init__(self, code: str, bootstrap: str, folder: Path) -> None:
        self.id, self.bootstrap = f"moving-{uuid.uuid4().hex[:8]}", bootstrap
        own, replaced = re.subn(
            r"faust\.App\(.*?\)",
            f'faust.App("{self.id}", broker="kafka://{bootstrap}", topic_partitions={PARTITIONS}, datadir="{folder}/data", '
            "broker_session_timeout=6, broker_heartbeat_interval=2)",
            code,
        )
        assert replaced == 1
        own = own.replace('app.topic("orders"', f'app.topic("{self.id}-orders"')
        assert f"{self.id}-orders" in own
        self.script, self.said = folder / "shop.py", folder / "said"
        self.script.write_text(own + RUN)
        KafkaAdmin(admin_config(bootstrap, {})).create_topics([TopicSpec(f"{self.id}-orders", PARTITIONS, 1)])

    def write(self, orders: list[tuple[str, int]]) -> None:
        producer = KafkaProducer(producer_config(self.bootstrap, {}))
        values: list[bytes | None] = [json.dumps({"user": user, "cents": cents}).encode() for user, cents in orders]
        now_ms = time.time_ns() // 1_000_000
        producer.send(f"{self.id}-orders", [b"%d" % n for n in range(len(values))], values, [now_ms] * len(values))
        producer.flush(120)
        producer.close()

    def sums(self) -> dict[str, int]:
        """The last value of each key in the changelog of its table."""
        topic = f"{self.id}-spent-changelog"
        if not KafkaAdmin(admin_config(self.bootstrap, {})).partition_counts([topic]):
            return {}
        consumer = KafkaConsumer(consumer_config(self.bootstrap, "reader", {}))
        consumer.assign_at({TopicPartition(topic, p): 0 for p in range(PARTITIONS)})
        found: dict[str, int] = {}
        ended: set[TopicPartition] = set()
        while len(ended) < PARTITIONS:
            fetched = consumer.poll(10_000, 0.5)
            for chunk in fetched.chunks:
                pairs = zip(chunk.keys, chunk.values, strict=True)
                found.update((json.loads(key), json.loads(value)) for key, value in pairs if key and value)
            ended |= fetched.ends.keys()
        consumer.close()
        return found

    def run_until(self, wanted: dict[str, int]) -> dict[str, int]:
        """Run the worker until its table holds this, or for as long as no wait should take."""
        with self.said.open("ab") as said:
            process = subprocess.Popen([sys.executable, str(self.script)], stdout=subprocess.DEVNULL, stderr=said)
        deadline, found = time.monotonic() + LIMIT_S, dict[str, int]()
        try:
            while found != wanted:
                if process.poll() is not None or time.monotonic() > deadline:
                    pytest.fail(f"its table holds {found}, not {wanted}; it said: {self.said.read_text()[-2000:]}")
                time.sleep(0.5)
                found = self.sums()
        finally:
            process.kill()
            process.wait()
        return found


def test_the_faust_program_and_the_topology_of_the_page_give_the_same_sums(kafka: str, tmp_path: Path) -> None:
    program, topology = code_of("moving/faust.md", "python")[:2]
    assert "faust.App" in program and "StreamsBuilder" in topology
    draw = random.Random(7)
    orders = [(f"user{draw.randrange(20)}", draw.randrange(-50, 200)) for _ in range(500)]
    expected: Counter[str] = Counter()
    for user, cents in orders:
        if cents > 0:
            expected[user] += cents
    assert sums_of_the_topology(topology, orders) == expected
    faust = FaustProgram(program, kafka, tmp_path)
    faust.write(orders)
    assert faust.run_until(dict(expected)) == expected
