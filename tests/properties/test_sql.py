"""Random rows through SQL, in batches of every size, against plain Python over lists."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from penstock.state.log import Record
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.dsl.ktable import KTable

SEEDS = 12
SIZES = (1, 2, 7, 10_000)


class Bid(msgspec.Struct, frozen=True):
    auction: int
    price: int | None


class User(msgspec.Struct, frozen=True):
    name: str


def random_bids(rng: random.Random, *, ordered: bool = False) -> list[Record]:
    """Bids of few auctions and people, some without a price, with late ones unless ``ordered``."""
    rows, now = [], 0
    for _ in range(rng.randint(5, 60)):
        now += rng.choice((0, 1, 1, 2, 6))
        ts = now if ordered else max(now - rng.choice((0, 0, 0, 3, 9)), 0)
        price = None if rng.random() < 0.2 else rng.randint(-5, 20)
        rows.append(Record(rng.choice("abc"), Bid(rng.randint(1, 3), price), ts))
    return rows


Piped = list[tuple[str, list[Record]]]


def answers(text: str, piped: Piped, **options: Any) -> list[list[Record]]:
    """What the statement writes, at each batch size."""
    found = []
    topics = {topic for topic, _ in piped}
    for size in SIZES:
        builder = StreamsBuilder()
        inputs: dict[str, Any] = {t: builder.stream(t, value=Bid) for t in sorted(topics - {"users"})}
        if "users" in topics:
            inputs["users"] = builder.table("users", value=User)
        rows = builder.sql(text, **inputs, **options)
        (rows.to_stream() if isinstance(rows, KTable) else rows).to("out")
        with TopologyTestDriver(builder, options=TaskOptions(batch_max_records=size)) as driver:
            for topic, records in piped:
                driver.pipe_all(topic, records)
            found.append(driver.read("out"))
    return found


def test_projection_and_filter() -> None:
    """In order, with keys and times as they were."""
    text = """SELECT auction * 2 AS twice, COALESCE(price, 0) / 2 AS half, rowtime AS t FROM bids
              WHERE price > 3 OR auction = 1"""
    for seed in range(SEEDS):
        bids = random_bids(random.Random(seed))
        expected = [
            (r.key, {"twice": r.value.auction * 2, "half": int((r.value.price or 0) / 2), "t": r.timestamp_ms})
            for r in bids
            if (r.value.price is not None and r.value.price > 3) or r.value.auction == 1
        ]
        for found in answers(text, [("bids", bids)]):
            assert [(r.key, r.value) for r in found] == expected, f"seed {seed}"


def known(rows: Iterable[Bid]) -> list[int]:
    """The prices that are there."""
    return [b.price for b in rows if b.price is not None]


def test_running_aggregates() -> None:
    """Every update, in order; nulls take no part."""
    text = "SELECT auction, COUNT(*) AS n, SUM(price) AS s, COUNT(DISTINCT price) AS d FROM bids GROUP BY auction"
    for seed in range(SEEDS):
        bids = random_bids(random.Random(seed))
        seen: dict[int, list[Bid]] = defaultdict(list)
        expected = []
        for record in bids:
            rows = seen[record.value.auction]
            rows.append(record.value)
            prices = known(rows)
            total = sum(prices) if prices else None
            expected.append({"auction": record.value.auction, "n": len(rows), "s": total, "d": len(set(prices))})
        for found in answers(text, [("bids", bids)]):
            assert [r.value for r in found] == expected, f"seed {seed}"


@pytest.mark.parametrize(("window", "size", "slide"), [("TUMBLE", 10, 10), ("HOP", 10, 5)])
def test_windows(window: str, size: int, slide: int) -> None:
    """One row for each window that has closed, of the records that were in time."""
    durations = f"INTERVAL '{slide}' MILLISECOND" + (f", INTERVAL '{size}' MILLISECOND" if window == "HOP" else "")
    text = f"""SELECT auction, MAX(price) AS top, COUNT(*) AS n, window_start FROM bids
               GROUP BY auction, {window}(rowtime, {durations})"""
    for seed in range(SEEDS):
        bids = random_bids(random.Random(seed))
        time, rows = -1, defaultdict(list)
        for record in bids:
            time = max(time, record.timestamp_ms)
            last = record.timestamp_ms - record.timestamp_ms % slide
            for start in range(last, record.timestamp_ms - size, -slide):
                if start >= 0 and start + size > time:
                    rows[record.value.auction, start].append(record.value)
        expected = Counter(
            (auction, start, max(known(of), default=None), len(of))
            for (auction, start), of in rows.items()
            if start + size <= time
        )
        for found in answers(text, [("bids", bids)]):
            got = [(r.value["auction"], r.value["window_start"], r.value["top"], r.value["n"]) for r in found]
            assert Counter(got) == expected, f"seed {seed}"
            assert [r.key.start_ms for r in found] == sorted(r.key.start_ms for r in found), f"seed {seed}"


def test_interval_joins() -> None:
    """Every pair of one auction within the bounds, once."""
    text = """SELECT b.price AS bid, a.price AS ask FROM bids b JOIN asks a ON a.auction = b.auction
              AND b.rowtime >= a.rowtime - INTERVAL '3' MILLISECOND AND a.rowtime > b.rowtime - INTERVAL '5' MILLISECOND
              AND (a.price > b.price OR b.price IS NULL)"""
    for seed in range(SEEDS):
        rng = random.Random(seed)
        bids, asks = random_bids(rng, ordered=True), random_bids(rng, ordered=True)
        expected = Counter(
            (b.value.price, a.value.price)
            for b in bids
            for a in asks
            if a.value.auction == b.value.auction
            and -5 < a.timestamp_ms - b.timestamp_ms <= 3
            and (b.value.price is None or (a.value.price is not None and a.value.price > b.value.price))
        )
        for found in answers(text, [("bids", bids), ("asks", asks)], grace="1h"):
            assert Counter((r.value["bid"], r.value["ask"]) for r in found) == expected, f"seed {seed}"


def test_stream_table_joins() -> None:
    """Each bid meets its user as it stands when the bid is processed."""
    text = "SELECT b.price, u.name FROM bids b LEFT JOIN users u ON b.key = u.key"
    for seed in range(SEEDS):
        rng = random.Random(seed)
        piped: Piped = []
        users: dict[str, User | None] = {}
        expected = []
        for turn in range(5):
            changes = [Record(k, rng.choice([User(f"{k}{turn}"), None]), turn) for k in rng.sample("abc", k=2)]
            bids = random_bids(rng)
            piped += [("users", changes), ("bids", bids)]
            users |= {c.key: c.value for c in changes}
            for bid in bids:
                user = users.get(bid.key)
                expected.append({"price": bid.value.price, "name": None if user is None else user.name})
        for found in answers(text, piped):
            assert [r.value for r in found] == expected, f"seed {seed}"
