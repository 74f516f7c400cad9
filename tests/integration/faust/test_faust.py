"""A topology inside a real Faust worker on a real broker: fed by its agents, killed, started again, nothing lost."""

from __future__ import annotations

import random
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.state.errors import SettingsError
from penstock.state.log import TopicPartition
from penstock.streams.kafka.admin import KafkaAdmin
from penstock.streams.kafka.client_config import admin_config, consumer_config, producer_config
from penstock.streams.kafka.consumer import KafkaConsumer
from penstock.streams.kafka.producer import KafkaProducer
from penstock.streams.ports.log import TopicSpec
from penstock.streams.worker.settings import WorkerSettings
from penstock.topologies.examples import word_count

pytestmark = pytest.mark.integration
SCRIPT = Path(__file__).with_name("faust_words.py")
PARTITIONS = 2
LINES = 1_500


def test_exactly_once_is_refused_with_the_reason() -> None:
    from penstock.streams.faust import faust_app

    settings = WorkerSettings(application_id="words", guarantee="exactly_once")
    with pytest.raises(SettingsError, match="membership"):
        faust_app(word_count.build(), settings)


class Words:
    """An application of its own: topics, input, and what the output says."""

    def __init__(self, bootstrap: str, state_dir: Path) -> None:
        self.id = f"faust-{uuid.uuid4().hex[:8]}"
        self.bootstrap = bootstrap
        self.state_dir = state_dir / "state"
        self.said = state_dir / "said"
        KafkaAdmin(admin_config(bootstrap, {})).create_topics(
            [TopicSpec(f"{self.id}-{end}", PARTITIONS, 1) for end in ("in", "out")]
        )

    def write(self, seed: int) -> Counter[str]:
        """Lines of known words; returns how often each came."""
        draw = random.Random(seed)
        lines = [" ".join(f"w{draw.randrange(200)}" for _ in range(5)) for _ in range(LINES)]
        now_ms = time.time_ns() // 1_000_000
        producer = KafkaProducer(producer_config(self.bootstrap, {}))
        keys = [b"%d" % i for i in range(LINES)]
        producer.send(f"{self.id}-in", keys, [line.encode() for line in lines], [now_ms] * LINES)
        producer.flush(120)
        producer.close()
        return Counter(word for line in lines for word in line.split())

    def start(self) -> subprocess.Popen[bytes]:
        """A Faust worker process. What it says goes to a file: a pipe that nobody reads would stop it when it is full."""
        command = [sys.executable, str(SCRIPT), self.id, self.bootstrap, str(self.state_dir)]
        with self.said.open("ab") as said:
            return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said)

    def counts(self) -> dict[str, int]:
        """The last count of every word."""
        consumer = KafkaConsumer(consumer_config(self.bootstrap, "reader", {}))
        consumer.assign_at({TopicPartition(f"{self.id}-out", p): 0 for p in range(PARTITIONS)})
        out: dict[str, int] = {}
        ended: set[TopicPartition] = set()
        while len(ended) < PARTITIONS:
            fetched = consumer.poll(10_000, 0.5)
            for chunk in fetched.chunks:
                out.update((k.decode(), int(v)) for k, v in zip(chunk.keys, chunk.values, strict=True) if k and v)
            ended |= fetched.ends.keys()
        consumer.close()
        return out

    def wait_for(self, total: int, process: subprocess.Popen[bytes]) -> dict[str, int]:
        """The counts once they add up to ``total``."""
        deadline = time.monotonic() + 240
        counts: dict[str, int] = {}
        while time.monotonic() < deadline and process.poll() is None:
            counts = self.counts()
            if sum(counts.values()) >= total:
                return counts
            time.sleep(0.5)
        process.kill()
        said = self.said.read_text()[-2000:]
        pytest.fail(f"{sum(counts.values())} of {total} words were counted; the worker said: {said}")


@pytest.fixture
def words(kafka: str, tmp_path: Path) -> Iterator[Words]:
    yield Words(kafka, tmp_path)


def test_counts_every_word_across_a_kill(words: Words) -> None:
    first = words.write(seed=1)
    process = words.start()
    try:
        assert words.wait_for(first.total(), process) == first
    finally:
        process.kill()
        process.wait()
    both = first + words.write(seed=2)
    process = words.start()
    try:
        counts = words.wait_for(both.total(), process)
        # at-least-once: what was not committed when it was killed is counted again, and nothing is missing
        assert all(counts[word] >= count for word, count in both.items())
        assert counts.keys() == both.keys()
        process.terminate()
        assert process.wait(120) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
