"""``python -m tests.releases.written_state``: writes down what the current release keeps, as ``written/<version>.json``.

One application with stores of every kind gets records up to a commit; its changelogs and committed positions are the
state that it leaves. Then it gets more records; what comes out is what any release must give from that state. Run it
when a release is made, or when a format was changed on purpose before one; never change the file of a release that is out.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import msgspec

import penstock as ps
from penstock import aggregators as agg
from penstock import col
from penstock.state.log import Record, TopicPartition
from penstock.streams.runtime.commit_protocol import OffsetAndMetadata

FOLDER = Path(__file__).parent / "written"
APPLICATION_ID = "written"
OUTPUTS = (
    "counts",
    "sums",
    "hours",
    "finals",
    "visits",
    "joined",
    "matched",
    "first",
    "ranked",
    "kept",
    "patterns",
    "timed",
    "shops",
    "different",
)
SPLIT = 60


class Sale(msgspec.Struct, frozen=True):
    """A typed value in stores."""

    shop: str
    cents: int
    tags: tuple[str, ...] = ()


SEEN = ps.key_value_store("seen", key=str, value=int)


class Reminder(ps.Processor[str, Sale, str, str]):
    """A store of its own, and timers of keys."""

    stores = (SEEN,)
    timers = ("event",)

    def init(self, ctx: ps.ProcessorContext[str, str]) -> None:
        self._seen = ctx.store(SEEN)

    def process(self, record: Record[str, Sale], ctx: ps.ProcessorContext[str, str]) -> None:
        self._seen.put(record.key, (self._seen.get(record.key) or 0) + 1)
        ctx.set_timer("remind", record.timestamp_ms + 20_000)

    def on_timer(self, timer: Any, ctx: ps.ProcessorContext[str, str]) -> None:
        ctx.forward(timer.key, str(self._seen.get(timer.key)))


def topology() -> ps.Topology:
    """Stores of every kind."""
    builder = ps.StreamsBuilder("written", key=str, value=Sale)
    sales = builder.stream("sales", watermark=ps.bounded_out_of_orderness("2s"))
    returns = builder.stream("returns")
    by_key, by_shop = sales.group_by_key(), sales.group_by(lambda _, sale: sale.shop)
    by_key.count(name="count").to_stream().to("counts")
    by_shop.reduce(lambda a, b: Sale(a.shop, a.cents + b.cents, a.tags + b.tags), name="sum").to_stream().to("sums")
    hours = by_key.windowed_by(ps.tumbling("10s", grace="4s"))
    text = {"key_fn": lambda window, _: f"{window.key}@{window.start_ms}", "key": str}
    hours.count(name="hour").to_stream(text["key_fn"], key=str).to("hours")
    hours.count(name="final", emission="on_close").to_stream(text["key_fn"], key=str).to("finals")
    visits = by_shop.windowed_by(ps.session("3s", grace="3s"))
    visits.count(name="visit", emission="on_close").to_stream(text["key_fn"], key=str).to("visits")
    sales.join(returns, lambda a, b: f"{a.cents}-{b.cents}", within="20s", grace="2s", value=str, name="pair").to(
        "joined"
    )
    table = returns.to_table(name="latest")
    sales.left_join(table, lambda a, row: f"{a.cents}/{row and row.cents}", value=str, name="look").to("matched")
    sales.deduplicate("8s", name="once").to("first")
    by_shop.aggregate(
        list, lambda _, sale, top: sorted([*top, sale.cents])[-3:], value=list, name="top"
    ).to_stream().to("ranked")
    table.suppress(ps.until_time_limit("5s"), name="wait").to_stream().to("kept")
    rise = (
        ps.pattern("low").where(lambda sale: sale.cents < 300).followed_by("high").where(lambda sale: sale.cents > 700)
    )
    sales.match(
        rise.within("9s"), select=lambda m: m["high"][0].cents - m["low"][0].cents, value=int, name="rise"
    ).matches.to("patterns")
    sales.process(Reminder, value=str, name="remind").to("timed")
    hours.aggregate(agg.count_distinct("shop"), name="shops").to_stream(text["key_fn"], key=str).to("shops")
    by_shop.agg(
        rows=agg.count(),
        cents=col("cents").count_distinct(),
        big=col("cents").count_distinct().where(col("cents") > 500),
    ).to_stream().to("different")
    return builder.build()


def records() -> list[tuple[str, Record[str, Sale]]]:
    """The whole input, in order of arrival: times that go back by up to 3 s, some keys that never come again."""
    rng, out = random.Random(5), []
    for n in range(2 * SPLIT):
        sale = Sale(f"shop{rng.randrange(3)}", rng.randrange(1_000), ("a",) * rng.randrange(3))
        time_ms = 1_000_000 + n * 700 - rng.randrange(3_000)
        out.append(
            ("returns" if rng.random() < 0.3 else "sales", Record(f"k{rng.randrange(4 + n // 20)}", sale, time_ms))
        )
    return out


def taken(driver: ps.TopologyTestDriver) -> dict[str, list[list[Any]]]:
    """What has come out, as texts."""
    return {t: [[as_text(r.key), as_text(r.value), r.timestamp_ms] for r in driver.read_raw(t)] for t in OUTPUTS}


def as_text(data: bytes | None) -> str | None:
    """Bytes in hexadecimal digits."""
    return None if data is None else data.hex()


def as_bytes(text: str | None) -> bytes | None:
    """What ``as_text`` was given."""
    return None if text is None else bytes.fromhex(text)


def opened() -> ps.TopologyTestDriver:
    """The application before its first record."""
    return ps.TopologyTestDriver(topology(), application_id=APPLICATION_ID)


def written() -> dict[str, Any]:
    """Everything that the file has."""
    with opened() as driver:
        driver.pipe_sequence(records()[:SPLIT])
        driver.restart()  # commits whatever there is
        before = taken(driver)
        kept = {
            "changelogs": [
                [topic, partition, [[as_text(r.key), as_text(r.value), r.timestamp_ms] for r in rows]]
                for (topic, partition), rows in sorted(driver._logged.items())
            ],
            "committed": [[*tp, p.offset, p.metadata] for tp, p in sorted(driver._committed.items())],
            "ends": [[*tp, offset] for tp, offset in sorted(driver._offsets.items())],
        }
        driver.pipe_sequence(records()[SPLIT:])
        driver.restart()
        return {"before": before, **kept, "after": taken(driver)}


def restored(kept: dict[str, Any]) -> ps.TopologyTestDriver:
    """The application on a machine without its stores, from what the file has."""
    driver = opened()
    for topic, partition, rows in kept["changelogs"]:
        driver._logged[topic, partition] = [Record(as_bytes(k), as_bytes(v), time_ms) for k, v, time_ms in rows]
    for topic, partition, offset, metadata in kept["committed"]:
        driver._committed[TopicPartition(topic, partition)] = OffsetAndMetadata(offset, metadata)
    for topic, partition, offset in kept["ends"]:
        driver._offsets[TopicPartition(topic, partition)] = offset
        driver._labels[TopicPartition(topic, partition)] = [0] * offset
    for task_id, task in list(driver.tasks.items()):
        driver._open(task_id, driver._restored(task))
        task.close()
    return driver


def main() -> None:
    path = FOLDER / f"{ps.__version__}.json"
    path.write_text(json.dumps(written(), indent=None, separators=(",", ":")) + "\n")
    print(f"{path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
