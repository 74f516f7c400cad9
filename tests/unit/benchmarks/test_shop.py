"""The shop's topologies against an oracle that knows nothing of streams, on the benchmark's own records."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pytest

from benchmarks import flink_sql, shop, shop_data, shop_flink
from benchmarks.shop_data import Row
from penstock.state.log import Record
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.examples import shop as topologies

BASE_MS = 1_790_000_000_000 // 60_000 * 60_000
CLICKS = 20_000
GAP_MS, MINUTE_MS, FIVE_MINUTES_MS, TEN_MINUTES_MS = 10_000, 60_000, 300_000, 600_000
TABLES = {"sales": ("users",), "revenue": ("products",)}
Rows = Iterable[tuple[dict[str, Any], int]]


@pytest.fixture(scope="module")
def streams() -> Mapping[str, list[Row]]:
    """By topic. Two seconds of clicks are stretched to three minutes, so that sessions and minutes end."""
    made = (shop_data.clicks, shop_data.orders, shop_data.payments)
    stretched = {
        f"shop-{make.__name__}": [(k, v, BASE_MS + (at - BASE_MS) * 100) for k, v, at in make(CLICKS, BASE_MS)]
        for make in made
    }
    seen = {v.split(b'"user":"')[1][:8] for _, v, _ in stretched["shop-orders"] if v}
    users = [row for row in shop_data.users(BASE_MS) if row[0] in seen]
    return {"shop-users": users, "shop-products": list(shop_data.products(BASE_MS)), **stretched}


def values(rows: list[Row]) -> Iterator[tuple[dict[str, Any], int]]:
    """The values of records, and their times."""
    return ((json.loads(value or b""), at) for _, value, at in rows)


def sessions(clicks: Rows) -> Iterator[tuple[Any, ...]]:
    """All but those that the end of the input leaves open."""
    of_users = defaultdict(list)
    for click, at in clicks:
        of_users[click["user"]].append((at, click["product"]))
    for user, seen in of_users.items():
        begin = 0
        for place in range(1, len(seen) + 1):
            if place == len(seen) or seen[place][0] - seen[place - 1][0] > GAP_MS:
                visit = seen[begin:place]
                if user != "last":
                    yield user, len(visit), len({p for _, p in visit}), visit[0][0], visit[-1][0] + GAP_MS
                begin = place


def top(clicks: Rows) -> Iterator[tuple[Any, ...]]:
    """The ten best of each minute that ends."""
    minutes: dict[int, Counter[str]] = defaultdict(Counter)
    for click, at in clicks:
        minutes[at // MINUTE_MS * MINUTE_MS][click["product"]] += 1
    for minute in sorted(minutes)[:-1]:
        best = sorted(minutes[minute].items(), key=lambda item: (-item[1], item[0]))
        yield from ((product, number, minute) for product, number in best[:10])


def sales(orders: Rows, payments: Rows, users: Rows) -> Iterator[tuple[Any, ...]]:
    """Each order with each payment in time."""
    placed = {order["id"]: (order["user"], at) for order, at in orders}
    countries = {row["name"].split()[1]: row["country"] for row, _ in users}
    for payment, at in payments:
        user, since = placed.get(payment["order"], ("", 0))
        if payment["ok"] and 0 <= at - since <= FIVE_MINUTES_MS:
            yield payment["order"], user, countries[str(int(user[1:]))], payment["cents"]


def alerts(payments: Rows) -> Iterator[tuple[Any, ...]]:
    """Of each card, two failures and a success in a row."""
    of_cards = defaultdict(list)
    for payment, at in payments:
        of_cards[payment["card"]].append((at, payment))
    for card, paid in of_cards.items():
        paid.sort(key=lambda item: item[0])
        place = 0
        while place + 2 < len(paid):
            (begin, first), (_, second), (end, third) = paid[place : place + 3]
            if not first["ok"] and not second["ok"] and third["ok"] and end - begin < TEN_MINUTES_MS:
                yield card, first["order"], third["cents"]
                place += 3
            else:
                place += 1


def revenue(orders: Rows, products: Rows) -> Iterator[tuple[Any, ...]]:
    """Of each category and minute that ends."""
    facts = {f"p{int(row['title'].split()[1]):05d}": (row["category"], row["cents"]) for row, _ in products}
    sums: dict[tuple[str, int], list[int]] = defaultdict(lambda: [0, 0])
    last = 0
    for order, at in orders:
        category, cents = facts[order["product"]]
        last = max(last, at // MINUTE_MS * MINUTE_MS)
        both = sums[category, at // MINUTE_MS * MINUTE_MS]
        both[0] += 1
        both[1] += order["quantity"] * cents
    yield from ((c, number, cents, minute) for (c, minute), (number, cents) in sums.items() if minute < last)


def expected(part: str, streams: Mapping[str, list[Row]]) -> Counter[tuple[Any, ...]]:
    """The oracle's rows."""
    clicks, orders, payments, users, products = (
        list(values(streams[f"shop-{name}"])) for name in ("clicks", "orders", "payments", "users", "products")
    )
    rows = {
        "sessions": lambda: sessions(clicks),
        "top": lambda: top(clicks),
        "sales": lambda: sales(orders, payments, users),
        "alerts": lambda: alerts(payments),
        "revenue": lambda: revenue(orders, products),
    }
    return Counter(rows[part]())


def driven(parts: tuple[str, ...], streams: Mapping[str, list[Row]], batch: int) -> dict[str, Counter[Any]]:
    """The answers of an application on the test driver."""
    options = TaskOptions(batch_max_records=batch)
    with TopologyTestDriver(topologies.of_parts(*parts), options=options, columns=batch > 1) as driver:
        driver.pipe_raw(
            {
                f"shop-{name}": [Record(*row) for row in streams[f"shop-{name}"]]
                for part in parts
                for name in (*shop.READS[part], *TABLES.get(part, ()))
            }
        )
        found = {part: [(r.key, r.value) for r in driver.read_raw(f"shop-{part}")] for part in parts}
    return {part: flink_sql.of_ours(shop_flink.PARTS[part], pairs) for part, pairs in found.items()}


@pytest.mark.parametrize("batch", [1, 1_000])
@pytest.mark.parametrize("name", list(shop.READS))
def test_each_part_answers_what_the_oracle_does(name: str, batch: int, streams: Mapping[str, list[Row]]) -> None:
    if batch == 1 and name == shop.WHOLE:
        batch = 7
    for part, found in driven(shop.parts_of(name), streams, batch).items():
        right = expected(part, streams)
        assert sum(right.values()) > 5
        assert found == right


def test_flink_has_the_same_parts_and_columns() -> None:
    assert list(shop_flink.PARTS) == list(topologies.PARTS)
    assert set(shop.READS) == {*topologies.PARTS, shop.WHOLE}
    script = shop_flink.script(shop.parts_of(shop.WHOLE), "127.0.0.1:1", "group").split(flink_sql.SEPARATOR)
    assert script[-1].count("INSERT INTO") == len(topologies.PARTS)
    for part, query in shop_flink.PARTS.items():
        assert any(f"CREATE TABLE to_{part} (" in statement for statement in script)
        assert all(f"`{column}` {kind}" in "".join(script) for column, kind in query.columns.items())


def test_each_card_pays_at_different_times() -> None:
    times = defaultdict(list)
    for card, _, at in shop_data.payments(CLICKS, BASE_MS):
        times[card].append(at)
    assert all(len(set(of_card)) == len(of_card) for of_card in times.values())
