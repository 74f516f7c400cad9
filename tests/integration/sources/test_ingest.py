"""``penstock ingest`` against a real broker: files go into a topic once, though the command is killed and frozen."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from pathlib import Path

import pytest

from penstock.streams.cli.main import main
from penstock.streams.kafka.follow import BEGINNING, FoundRecord, follow
from penstock.streams.kafka.topics import Topics
from tests.integration.worker.application import until

CITIES = ("Oslo", "Rome", "Kyiv", "Lima")
INGESTION = """
import dataclasses
import os
import time

from penstock import connectors


@dataclasses.dataclass
class Order:
    city: str
    n: int


class Slow(connectors.CsvSource):
    def open(self, split, position):
        time.sleep(0.7)  # so that what strikes behind the first commit comes before the last one
        return super().open(split, position)


orders = connectors.Ingestion(
    os.environ["NAME"],
    Slow(os.environ["FOLDER"] + "/*.csv", key="city"),
    os.environ["NAME"] + "-orders",
    value=Order,
    batch_records=20,
)
"""


class Feed:
    """Files of numbered orders, an ingestion of them, and its topic."""

    def __init__(self, kafka: str, folder: Path) -> None:
        self.kafka, self.folder, self.count = kafka, folder, 0
        self.name = f"feed-{uuid.uuid4().hex[:8]}"
        self.topic = f"{self.name}-orders"
        Topics(kafka, {}).create(self.topic, partitions=3, replication_factor=1, configs={})
        (folder / "feed.py").write_text(INGESTION)

    def add(self, rows: int) -> None:
        """Another file."""
        lines = [f"{CITIES[n % len(CITIES)]},{n}" for n in range(self.count, self.count + rows)]
        (self.folder / f"{self.count:06}.csv").write_text("\n".join(["city,n", *lines]))
        self.count += rows

    def start(self) -> subprocess.Popen[str]:
        """The command, as a process."""
        words = ["ingest", f"{self.folder / 'feed.py'}:orders", "--bootstrap-server", self.kafka]
        command = [sys.executable, "-m", "penstock.streams.cli.main", *words]
        env = {"NAME": self.name, "FOLDER": str(self.folder), "PATH": "/usr/bin:/bin"}
        return subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)

    def records(self) -> list[FoundRecord]:
        """The committed records."""
        found: list[FoundRecord] = []
        follow(self.kafka, {}, [self.topic], found.extend, start=BEGINNING, in_order=False, to_the_end=True)
        return found

    def assert_exact(self) -> None:
        """Each order is there once, and those of a city in their order."""
        rows = [json.loads(record.value or b"") for record in self.records()]
        assert Counter(row["n"] for row in rows) == Counter(range(self.count))
        for city in CITIES:
            numbers = [row["n"] for row in rows if row["city"] == city]
            assert numbers == sorted(numbers)


@pytest.fixture
def feed(kafka: str, tmp_path: Path) -> Feed:
    return Feed(kafka, tmp_path)


def test_files_are_written_once_though_the_command_is_killed(feed: Feed) -> None:
    draw = random.Random(20)
    for _ in range(4):
        for _ in range(4):
            feed.add(55)
        before = len(feed.records())
        process = feed.start()
        try:
            until("a commit", lambda start=before: len(feed.records()) > start)
            time.sleep(draw.uniform(0, 0.5))
        finally:
            process.send_signal(signal.SIGKILL)
            process.communicate()
    assert len(feed.records()) < feed.count, "the kills struck nothing: all was written before"
    last = feed.start()
    _, said = last.communicate(timeout=200)
    assert last.returncode == 0, said
    assert "the source has ended" in said
    feed.assert_exact()


def test_a_frozen_one_that_wakes_changes_nothing(feed: Feed) -> None:
    for _ in range(5):
        feed.add(55)
    frozen = feed.start()
    try:
        until("a commit", lambda: bool(feed.records()))
        frozen.send_signal(signal.SIGSTOP)
        second = feed.start()
        _, said = second.communicate(timeout=200)
        assert second.returncode == 0, said
        feed.assert_exact()
        feed.add(5)
        frozen.send_signal(signal.SIGCONT)
        _, said = frozen.communicate(timeout=200)
        assert frozen.returncode == 1, said
        assert "penstock:" in said
    finally:
        frozen.kill()
        frozen.wait()
    assert len(feed.records()) == feed.count - 5


def test_what_the_user_is_to_correct_ends_with_2(
    feed: Feed, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NAME", feed.name)
    monkeypatch.setenv("FOLDER", str(feed.folder))
    words = [f"{feed.folder / 'feed.py'}:orders", "--bootstrap-server", feed.kafka]
    (feed.folder / "a.csv").write_text("city,n\nRome,0\nRome,many\n")
    assert main(["ingest", *words]) == 2
    assert "a.csv, line 3: its value: Expected `int`, got `str` - at `$.n`" in capsys.readouterr().err
    assert feed.records() == []
    (feed.folder / "a.csv").write_text("city,n\nRome,0\n")
    assert main(["ingest", *words]) == 0
    assert f"the source has ended: 1 record written to {feed.topic}" in capsys.readouterr().err
    assert main(["ingest", *words, "--from-beginning"]) == 0
    assert [record.key for record in feed.records()] == [b"Rome", b"Rome"]
    assert main(["ingest", words[0].replace(":orders", ":Order"), *words[1:]]) == 2
    assert "name a connectors.Ingestion as MODULE:NAME" in capsys.readouterr().err
