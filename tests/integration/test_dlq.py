"""``penstock dlq`` against a real broker: letters of a real worker, sent back in their order and once."""

from __future__ import annotations

import io
import re
import sys
import uuid
from pathlib import Path

import orjson
import pytest

from penstock.streams.cli.main import main
from penstock.streams.kafka.console import NewRecord, produce_records
from penstock.streams.kafka.dead_letter_queue import DeadLetterQueue, letter_of
from penstock.streams.kafka.follow import BEGINNING, FoundRecord, follow
from penstock.streams.kafka.topics import Topics
from penstock.streams.task.error_policies import Policies
from penstock.streams.topology_loading import load_topology
from penstock.streams.worker.load_settings import load_settings
from penstock.streams.worker.worker import Worker
from tests.integration.worker.application import until

TOPOLOGY = """
import penstock as ps

builder = ps.StreamsBuilder(key=str, value=str)
builder.stream("{name}-in").map_values(lambda text: int(text)).to("{name}-out", value=int)
topology = builder.build()
"""


class Shop:
    """An application whose input may hold what its function cannot read."""

    def __init__(self, kafka: str, folder: Path) -> None:
        self.name, self.kafka = f"dlq-{uuid.uuid4().hex[:8]}", kafka
        self.dead = f"{self.name}-dead"
        for topic in ("in", "out", "dead"):
            Topics(kafka, {}).create(f"{self.name}-{topic}", partitions=2, replication_factor=1, configs={})
        module = folder / "shop.py"
        module.write_text(TOPOLOGY.format(name=self.name))
        self.topology = load_topology(str(module))
        self.settings = load_settings(
            env={},
            application_id=self.name,
            bootstrap_servers=kafka,
            state_dir=str(folder / "state"),
            policies=Policies(processing="dead_letter", dead_letter_topic=self.dead),
        )

    def read(self, topic: str) -> list[FoundRecord]:
        found: list[FoundRecord] = []
        follow(self.kafka, {}, [f"{self.name}-{topic}"], found.extend, start=BEGINNING, to_the_end=True)
        return found

    def run_until(self, what: str, *, dead: int, out: int) -> None:
        """A worker until there are this many letters and outputs."""
        worker = Worker(self.topology, self.settings).start()
        try:
            until(what, lambda: len(self.read("dead")) >= dead and len(self.read("out")) >= out)
        finally:
            worker.stop()

    def dlq(self, action: str, *words: str, status: int = 0) -> None:
        assert main(["dlq", action, self.dead, *words, "--bootstrap-server", self.kafka]) == status


def test_letters_go_back_in_order_and_once(
    kafka: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(kafka, tmp_path)
    values = [b"one", b"2", b"three", b"four"]
    produce_records(
        kafka, {}, f"{shop.name}-in", [NewRecord(b"k", v, 1_000 + n, (("h", b"x"),), 1) for n, v in enumerate(values)]
    )
    shop.run_until("three letters", dead=3, out=1)
    capsys.readouterr()
    shop.dlq("list", "--json")
    listed = [orjson.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["value"], row["from"]) for row in listed] == [
        ("one", f"{shop.name}-in [1] offset 0"),
        ("three", f"{shop.name}-in [1] offset 2"),
        ("four", f"{shop.name}-in [1] offset 3"),
    ]
    assert "ValueError" in listed[0]["error"]
    shop.dlq("show", "--limit", "1")
    letter = capsys.readouterr().out
    assert re.search(r"^  declared +/.*/shop\.py:\d+$", letter, re.MULTILINE), letter
    assert re.search(r"^  traceback +/.*/shop\.py:\d+ in <lambda>$", letter, re.MULTILINE), letter

    shop.dlq("retry", "--limit", "1")
    assert f"sent back {listed[0]['partition']}:{listed[0]['offset']}" in capsys.readouterr().out
    edited = orjson.dumps({**listed[1], "value": "3"})
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(orjson.dumps(listed[2]) + b"\n")))
    shop.dlq("edit", status=2)
    assert "is not the next that waits" in capsys.readouterr().err
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(edited + b"\n")))
    shop.dlq("edit")
    shop.dlq("drop")
    assert "1 letter dropped" in capsys.readouterr().out
    shop.dlq("retry")
    assert "0 letters sent back" in capsys.readouterr().out
    shop.dlq("list")
    assert capsys.readouterr().out == f"no letter of {shop.dead} waits: what is there was sent back or dropped\n"

    # A transaction is answered before its records can be read everywhere.
    until("both are sent back", lambda: len(shop.read("in")) >= len(values) + 2)
    sent = shop.read("in")[len(values) :]
    assert [(r.partition, r.key, r.value, r.timestamp_ms, r.headers) for r in sent] == [
        (1, b"k", b"one", 1_000, (("h", b"x"), ("penstock.retry", b"1"))),
        (1, b"k", b"3", 1_002, (("h", b"x"), ("penstock.retry", b"1"))),
    ]
    shop.run_until("the first letter again", dead=4, out=2)
    (again,) = DeadLetterQueue(kafka, {}, shop.dead).waiting()
    letter = letter_of(again)
    assert letter is not None
    assert (again.value, letter.retries, letter.offset) == (b"one", 1, len(values))
    assert [int.from_bytes(r.value or b"", "big") for r in shop.read("out")] == [2, 3]


def test_what_is_not_a_letter_is_refused_and_nothing_is_done(
    kafka: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shop = Shop(kafka, tmp_path)
    produce_records(kafka, {}, shop.dead, [NewRecord(b"k", b"v")])
    shop.dlq("retry", status=2)
    assert "is not a dead letter: it has no header penstock.error" in capsys.readouterr().err
    assert len(DeadLetterQueue(kafka, {}, shop.dead).waiting()) == 1
    Topics(kafka, {}).delete(shop.dead)
    error = (("penstock.error", b"late"), ("penstock.operator", b"o"))
    Topics(kafka, {}).create(shop.dead, partitions=1, replication_factor=1, configs={})
    produce_records(kafka, {}, shop.dead, [NewRecord(None, None, 5, error)])
    shop.dlq("retry", status=2)
    assert "came from no input record, but from a clock or a commit" in capsys.readouterr().err
