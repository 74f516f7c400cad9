"""Tables whose changes come as JSON of declared types: random records, and all that a run over them leaves behind."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from penstock.state.log import Record, TaskId
from penstock.state.rocksdb.rocksdb_backend import RocksDBBackend
from penstock.state.stores.memory_backend import MemoryBackend
from penstock.state.stores.store import StateBackend
from penstock.streams.task.error_policies import Policies
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.graph.topology import Topology

LETTERS = "letters"
POLICIES = Policies(deserialization="dead_letter", processing="dead_letter", dead_letter_topic=LETTERS)


class Order(msgspec.Struct, frozen=True):
    to: int | None
    name: str
    ok: bool = True


class Priced(msgspec.Struct, frozen=True):
    """With numbers that have several notations, so that rows are not known to be texts."""

    to: int | None
    name: str
    price: float = 1.5


class Changing(msgspec.Struct):
    """May be changed in place."""

    to: int | None
    name: str


class Item(msgspec.Struct, frozen=True):
    n: int
    name: str | None = None


def random_order(rng: random.Random, tp: Any) -> bytes | None:
    """As its serde writes it, otherwise written, null, or wrong."""
    row: dict[str, Any] = {"to": rng.choice((0, 1, 2, 3, 4, None)), "name": rng.choice("xyö")}
    return random_row(rng, tp, row)


def random_item(rng: random.Random) -> bytes | None:
    return random_row(rng, Item, {"n": rng.randrange(6), "name": rng.choice(("a", "b", None, "ö"))})


def random_row(rng: random.Random, tp: Any, row: dict[str, Any]) -> bytes | None:
    way = rng.random()
    if way < 0.2:
        return None
    if way < 0.23:
        return rng.choice((b"{", b'{"n":1.5,"to":"x"}', b"\xff"))
    if rng.random() < 0.3:
        row = dict(reversed(row.items()))
    if rng.random() < 0.7:
        return msgspec.json.encode(msgspec.convert(row, tp))
    return msgspec.json.format(msgspec.json.encode(row), indent=rng.choice((0, 1)))


class Step(NamedTuple):
    """What arrives at once, and whether the tasks then start again, are restored, or restored from other texts."""

    records: dict[str, list[Record]]
    then: str


def random_steps(
    rng: random.Random, tp: Any, most: int, *, asks: bool = False, item_keys: int | None = None
) -> list[Step]:
    """Changes of ``orders`` and ``items``. ``asks``: and records of a third topic, with the keys of orders. ``item_keys``:
    how many keys items have; ``None``: those of orders."""
    now, steps, keys = 0, [], rng.choice((2, 5, 40))
    for _ in range(rng.randint(1, 5)):
        records: dict[str, list[Record]] = {"orders": [], "items": []}
        if asks:
            records["asks"] = []
        for _ in range(rng.randint(0, most)):
            now += rng.choice((0, 0, 1, 2))
            ts = max(0, now - rng.choice((0, 0, 3, 20)))
            headers = (("h", b"1"),) if rng.random() < 0.05 else ()
            key = None if rng.random() < 0.02 else rng.randrange(keys).to_bytes(8, "big")
            if rng.random() < 0.6:
                records["orders"].append(Record(key, random_order(rng, tp), ts, headers))
            else:
                named = None if key is None else rng.randrange(item_keys or keys).to_bytes(8, "big")
                records["items"].append(Record(named, random_item(rng), ts, headers))
            if asks:
                records["asks"].append(Record(key, random_item(rng), ts))
        steps.append(Step(records, rng.choice(("", "", "restart", "restore", "spaced"))))
    return steps


def spaced(driver: TopologyTestDriver) -> None:
    """Have tables restored from texts that another writer has laid out."""
    for (topic, _), records in driver._logged.items():
        if topic.endswith(("-rows-changelog", "-others-changelog")):
            records[:] = [r._replace(value=laid_out(r.value)) for r in records]


def laid_out(text: bytes | None) -> bytes | None:
    """A row with spaces; other values as they are."""
    return msgspec.json.format(text, indent=1) if text is not None and text.startswith(b"{") else text


class Watched(TopologyTestDriver):
    """Notes what is written to topics between tasks."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.carried: dict[tuple[str, int], list[Any]] = {}
        super().__init__(*args, **options)

    def _add(self, topic: str, partition: int, rows: Sequence[Record], labels: Sequence[int]) -> None:
        self.carried.setdefault((topic, partition), []).extend(zip(rows, labels, strict=True))
        super()._add(topic, partition, rows, labels)


def answers(
    topology: Topology,
    steps: Sequence[Step],
    batch: int,
    *,
    columns: bool,
    partitions: int = 1,
    arrival_order: bool = False,
    path: Path | None = None,
) -> Any:
    """All that a run leaves behind. ``path``: where its stores are; ``None``: in memory."""
    options = TaskOptions(policies=POLICIES, batch_max_records=batch, columns="auto" if columns else "off")
    if path is not None:
        options = dataclasses.replace(options, state_cache_max_bytes=1)

    def opened(task: TaskId, stores: Any) -> StateBackend:
        return MemoryBackend(stores) if path is None else RocksDBBackend(path / str(task), stores)

    driver = Watched(
        topology,
        options=options,
        columns=columns,
        partitions=partitions,
        arrival_order=arrival_order,
        open_backend=opened,
    )
    with driver:
        for step in steps:
            driver.pipe_raw(step.records)
            driver.commit()
            if step.then == "spaced" and path is None:
                spaced(driver)
            if step.then:
                driver.restart(restore=step.then in ("restore", "spaced") and path is None)
        stores = {
            (str(task.id), state.spec.name): list(task.backend.range(state.spec.name, None, None))
            for task in driver.tasks.values()
            for state in task.stores.values()
        }
        written = {topic: driver.read_raw(topic) for topic in ("out", "also", LETTERS)}
        return written, +driver.dropped_records, driver.changelogs, stores, driver.carried


def compare(
    run: Callable[..., Any],
    topology: Topology,
    steps: Sequence[Step],
    rng: random.Random,
    sizes: Sequence[int],
    path: Path | None,
) -> None:
    """Run by rows and by columns at each batch size, in one order of arrival or the other. On a disk (``path``) changelogs
    and messages differ, because there are more commits."""
    partitions = rng.choice((1, 1, 2))
    for size in sizes:
        ways: dict[str, Any] = {"partitions": partitions, "arrival_order": rng.random() < 0.5}
        expected = run(topology, steps, size, columns=False, **ways)
        found = run(topology, steps, size, columns=True, path=None if path is None else path / str(size), **ways)
        if path is None or expected is None:
            assert found == expected, (size, ways)
        else:
            assert (found[0], found[1], found[3]) == (expected[0], expected[1], expected[3]), (size, ways)


def counting(form: Any, name: str, tried: Counter[tuple[str, bool]]) -> Callable[..., Any]:
    method = getattr(form, name)

    def call(*args: Any) -> Any:
        found = method(*args)
        tried[f"{form.__name__}.{name}", found is not None] += 1
        return found

    return call
