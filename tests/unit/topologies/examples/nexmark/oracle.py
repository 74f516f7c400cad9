"""What the queries of Nexmark mean: plain functions of the list of all events.

Functions called ``bag_…`` give the rows of a query that adds rows, in no particular order; those called ``table_…`` the
last value by key of one that updates them. Windows are taken to have closed.
"""

from __future__ import annotations

import datetime
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from typing import Any

from penstock.topologies.examples.nexmark.model import Auction, Bid, NexmarkEvent, Person

Rows = list[Any]
Table = dict[Any, Any]
SECOND, DAY = 1000, 86_400_000


def persons_of(events: Iterable[NexmarkEvent]) -> list[Person]:
    return [e.person for e in events if e.person is not None]


def auctions_of(events: Iterable[NexmarkEvent]) -> list[Auction]:
    return [e.auction for e in events if e.auction is not None]


def bids_of(events: Iterable[NexmarkEvent]) -> list[Bid]:
    return [e.bid for e in events if e.bid is not None]


def moment(time_ms: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(time_ms / 1000, datetime.UTC)


def parts(of: Any, *names: str) -> dict[str, Any]:
    return {name: getattr(of, name) for name in names}


def grouped(of: Iterable[Any], by: Callable[[Any], Any]) -> dict[Any, list[Any]]:
    groups: dict[Any, list[Any]] = defaultdict(list)
    for one in of:
        groups[by(one)].append(one)
    return groups


# -- one bid at a time -----------------------------------------------------------------------------------------------


def bag_q0(events: list[NexmarkEvent]) -> Rows:
    return [parts(b, "auction", "bidder", "price", "dateTime", "extra") for b in bids_of(events)]


def bag_q1(events: list[NexmarkEvent]) -> Rows:
    rows = bag_q0(events)
    return [{**row, "price": Decimal(row["price"] * 908).scaleb(-3)} for row in rows]


def bag_q2(events: list[NexmarkEvent]) -> Rows:
    return [parts(b, "auction", "price") for b in bids_of(events) if b.auction % 123 == 0]


def bag_q10(events: list[NexmarkEvent]) -> Rows:
    return bids_of(events)


def folders_q10(events: list[NexmarkEvent]) -> Table:
    """The bids of each folder."""
    found = grouped(bids_of(events), lambda b: moment(b.dateTime).strftime("%Y-%m-%d/%H:%M"))
    return {folder: len(bids) for folder, bids in found.items()}


def bag_q14(events: list[NexmarkEvent]) -> Rows:
    rows = []
    for b in bids_of(events):
        if not 1_000_000_000 < 908 * b.price < 50_000_000_000:
            continue
        hour = moment(b.dateTime).hour
        time = "dayTime" if hour in range(8, 19) else "otherTime" if hour in (7, 19) else "nightTime"
        row = parts(b, "auction", "bidder", "dateTime", "extra")
        row |= {"price": Decimal(b.price * 908).scaleb(-3), "bidTimeType": time, "c_counts": b.extra.count("c")}
        rows.append(row)
    return rows


def bag_q21(events: list[NexmarkEvent]) -> Rows:
    rows = []
    for b in bids_of(events):
        channel = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}.get(b.channel.lower())
        if channel is None and "&channel_id=" in b.url:
            channel = b.url.split("&channel_id=")[1].split("&")[0]
        if channel is not None:
            rows.append({**parts(b, "auction", "bidder", "price", "channel"), "channel_id": channel})
    return rows


def bag_q22(events: list[NexmarkEvent]) -> Rows:
    rows = []
    for b in bids_of(events):
        dir1, dir2, dir3 = b.url.split("/")[3:6]
        rows.append({**parts(b, "auction", "bidder", "price", "channel"), "dir1": dir1, "dir2": dir2, "dir3": dir3})
    return rows


# -- joins -----------------------------------------------------------------------------------------------------------


def table_q3(events: list[NexmarkEvent]) -> Table:
    people = {p.id: p for p in persons_of(events) if p.state in ("OR", "ID", "CA")}
    return {
        a.id: {**parts(people[a.seller], "name", "city", "state"), "id": a.id}
        for a in auctions_of(events)
        if a.category == 10 and a.seller in people
    }


def bag_q8(events: list[NexmarkEvent]) -> Rows:
    def window(of: Any) -> int:
        start: int = of.dateTime - of.dateTime % (10 * SECOND)
        return start

    opened = {(a.seller, window(a)) for a in auctions_of(events)}
    new = [p for p in persons_of(events) if (p.id, window(p)) in opened]
    return [{"id": p.id, "name": p.name, "starttime": window(p)} for p in new]


def winners(events: list[NexmarkEvent]) -> Iterator[tuple[Auction, Bid]]:
    """Each auction that has a bid while it is open, with the best of them."""
    bids = grouped(bids_of(events), lambda b: b.auction)
    for a in auctions_of(events):
        in_time = [b for b in bids[a.id] if a.dateTime <= b.dateTime <= a.expires]
        if in_time:
            yield a, min(in_time, key=lambda b: (-b.price, b.dateTime))


def table_q9(events: list[NexmarkEvent]) -> Table:
    return {a.id: {"auction": a, "bid": b} for a, b in winners(events)}


def bag_q13(events: list[NexmarkEvent]) -> Rows:
    """The side input has the text of a number under the number."""
    fields = ("auction", "bidder", "price", "dateTime")
    return [{**parts(b, *fields), "value": str(b.auction % 10_000)} for b in bids_of(events)]


def bag_q20(events: list[NexmarkEvent]) -> Rows:
    auctions = {a.id: a for a in auctions_of(events) if a.category == 10}
    return [{"bid": b, "auction": auctions[b.auction]} for b in bids_of(events) if b.auction in auctions]


# -- windows ---------------------------------------------------------------------------------------------------------


def bag_q5(events: list[NexmarkEvent]) -> Rows:
    bids = bids_of(events)
    size, slide = 10 * SECOND, 2 * SECOND
    earliest, latest = min(b.dateTime for b in bids), max(b.dateTime for b in bids)
    rows = []
    for start in range((earliest - size) // slide * slide, latest + 1, slide):
        counts = Counter(b.auction for b in bids if start <= b.dateTime < start + size)
        most = max(counts.values(), default=0)
        rows += [{"auction": a, "num": n} for a, n in counts.items() if n == most]
    return rows


def bag_q7(events: list[NexmarkEvent]) -> Rows:
    bids, size = bids_of(events), 10 * SECOND
    rows = []
    for start, inside in grouped(bids, lambda b: b.dateTime - b.dateTime % size).items():
        highest = max(b.price for b in inside)
        rows += [b for b in bids if b.price == highest and start <= b.dateTime <= start + size]
    return rows


def bag_q11(events: list[NexmarkEvent]) -> Rows:
    gap = 10 * SECOND
    rows: Rows = []
    for bidder, bids in grouped(bids_of(events), lambda b: b.bidder).items():
        mine: Rows = []
        for at in sorted(b.dateTime for b in bids):
            if not mine or at > mine[-1]["endtime"]:
                mine.append({"bidder": bidder, "bid_count": 0, "starttime": at, "endtime": at})
            mine[-1]["bid_count"] += 1
            mine[-1]["endtime"] = at + gap
        rows += mine
    return rows


# -- results by key --------------------------------------------------------------------------------------------------


def table_q4(events: list[NexmarkEvent]) -> Table:
    finals = grouped(winners(events), lambda w: w[0].category)
    return {category: sum(b.price for _, b in won) // len(won) for category, won in finals.items()}


def table_q6(events: list[NexmarkEvent]) -> Table:
    """All auctions have closed."""
    means = {}
    for seller, won in grouped(winners(events), lambda w: w[0].seller).items():
        last_ten = sorted(won, key=lambda w: (w[1].dateTime, w[0].id))[-10:]
        mean = Decimal(sum(b.price for _, b in last_ten)) / len(last_ten)
        means[seller] = int((mean + Decimal("0.5")) // 1)
    return means


def by_class(bids: list[Bid], name: str, measure: Callable[[list[Bid]], int]) -> dict[str, int]:
    classes = {
        f"total_{name}": bids,
        f"rank1_{name}": [b for b in bids if b.price < 10_000],
        f"rank2_{name}": [b for b in bids if 10_000 <= b.price < 1_000_000],
        f"rank3_{name}": [b for b in bids if b.price >= 1_000_000],
    }
    return {label: measure(those) for label, those in classes.items()}


def statistics(bids: list[Bid]) -> dict[str, int]:
    return {
        **by_class(bids, "bids", len),
        **by_class(bids, "bidders", lambda those: len({b.bidder for b in those})),
        **by_class(bids, "auctions", lambda those: len({b.auction for b in those})),
    }


def days(bids: list[Bid], by: Callable[[Bid], Any], row: Callable[[list[Bid]], dict[str, Any]]) -> Table:
    """Rows by key and day, as windowed keys are written here: [key, start, end]."""
    found = grouped(bids, lambda b: (by(b), b.dateTime // DAY * DAY))
    return {
        (key, start, start + DAY): {**row(those), "day": moment(start).strftime("%Y-%m-%d")}
        for (key, start), those in found.items()
    }


def table_q15(events: list[NexmarkEvent]) -> Table:
    return days(bids_of(events), lambda b: moment(b.dateTime).strftime("%Y-%m-%d"), statistics)


def table_q16(events: list[NexmarkEvent]) -> Table:
    def row(bids: list[Bid]) -> dict[str, Any]:
        minute = max(moment(b.dateTime).strftime("%H:%M") for b in bids)
        return {**statistics(bids), "minute": minute, "channel": bids[0].channel}

    return days(bids_of(events), lambda b: b.channel, row)


def table_q17(events: list[NexmarkEvent]) -> Table:
    def row(bids: list[Bid]) -> dict[str, Any]:
        prices = [b.price for b in bids]
        shown = {"min_price": min(prices), "max_price": max(prices), "sum_price": sum(prices)}
        shown |= {"avg_price": sum(prices) // len(prices), "auction": bids[0].auction}
        return shown | by_class(bids, "bids", len)

    return days(bids_of(events), lambda b: b.auction, row)


def table_q18(events: list[NexmarkEvent]) -> Table:
    """No two bids have one time."""
    found = grouped(bids_of(events), lambda b: (b.bidder, b.auction))
    return {
        (("auction", auction), ("bidder", bidder)): max(bids, key=lambda b: b.dateTime)
        for (bidder, auction), bids in found.items()
    }


def table_q19(events: list[NexmarkEvent]) -> Table:
    table = {}
    for auction, bids in grouped(bids_of(events), lambda b: b.auction).items():
        for rank, bid in enumerate(sorted(bids, key=lambda b: (-b.price, b.dateTime))[:10], 1):
            table[f"{auction}/{rank}"] = bid
    return table
