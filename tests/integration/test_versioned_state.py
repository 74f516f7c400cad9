"""A store whose values changed their type: a newer program goes on with what an older one left, in folder and log."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import msgspec
import pytest

import penstock as ps
from penstock.state.serdes.serde import Serde
from penstock.streams.kafka.console import NewRecord, produce_records
from penstock.streams.kafka.follow import BEGINNING, FoundRecord, follow
from penstock.streams.kafka.topics import Topics
from penstock.streams.worker.load_settings import load_settings
from penstock.streams.worker.worker import Worker
from tests.integration.worker.application import until


class Total(msgspec.Struct, frozen=True):
    cents: int


class Sum(msgspec.Struct, frozen=True):
    euros: float
    orders: int


def in_euros(old: Total) -> Sum:
    return Sum(old.cents / 100, 0)


OLD: Serde[Any] = ps.serde_of(Total)
NEW: Serde[Any] = ps.versioned(Sum, [(Total, in_euros)])


class Shop:
    """An application that adds orders up, as either program does."""

    def __init__(self, kafka: str, folder: Path) -> None:
        self.kafka, self.folder, self.name = kafka, folder, f"versions-{uuid.uuid4().hex[:8]}"
        for topic in (self.name, f"{self.name}-out"):
            Topics(kafka, {}).create(topic, partitions=1, replication_factor=1, configs={})

    def topology(self, serde: Serde[Any]) -> ps.Topology:
        start, add = (
            (lambda: Total(0), lambda _, cents, total: Total(total.cents + cents))
            if serde is OLD
            else (lambda: Sum(0.0, 0), lambda _, cents, total: Sum(total.euros + cents / 100, total.orders + 1))
        )
        builder = ps.StreamsBuilder("shop", key=str, value=int)
        totals: Any = builder.stream(self.name).group_by_key().aggregate(start, add, name="totals", value=serde)
        totals.to_stream().map_values(repr, value=str).to(f"{self.name}-out")
        return builder.build()

    def run(self, serde: Serde[Any], state: str, **orders: int) -> list[str]:
        """Run a worker over these orders; their results."""
        numbers = [NewRecord(key.encode(), cents.to_bytes(8)) for key, cents in orders.items()]
        produce_records(self.kafka, {}, self.name, numbers)
        settings = load_settings(
            env={}, application_id=self.name, bootstrap_servers=self.kafka, state_dir=str(self.folder / state)
        )
        before = len(self.results())
        worker = Worker(self.topology(serde), settings).start()
        try:
            until("the results of all orders", lambda: len(self.results()) == before + len(orders))
        finally:
            worker.stop()
        return self.results()[before:]

    def results(self) -> list[str]:
        """The committed ones."""
        found: list[FoundRecord] = []
        topic = f"{self.name}-out"
        follow(self.kafka, {}, [topic], found.extend, start=BEGINNING, in_order=True, to_the_end=True)
        return [(record.value or b"").decode() for record in found]


@pytest.mark.parametrize("state", ["kept", "another machine's"])
def test_a_newer_program_goes_on_with_older_values(kafka: str, tmp_path: Path, state: str) -> None:
    shop = Shop(kafka, tmp_path)
    assert shop.run(OLD, "kept", ann=250, bob=100) == ["Total(cents=250)", "Total(cents=100)"]
    assert shop.run(NEW, state, ann=50) == ["Sum(euros=3.0, orders=1)"]
    assert shop.run(NEW, "a third machine's", ann=50, bob=1) == [
        "Sum(euros=3.5, orders=2)",
        "Sum(euros=1.01, orders=1)",
    ]
