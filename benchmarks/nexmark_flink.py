"""Nexmark's queries as Flink SQL, over the same topic and into the same topics, and how their answers are held against ours.

The queries are those that nexmark/nexmark publishes. What differs, because both systems read and write one format:
times are milliseconds since 1970, results go to Kafka as JSON, under a key if they are updated, the watermark is a
millisecond lower, as that of ``bounded_out_of_orderness`` is, and query 19 ranks equal prices by time, so that it has
one answer. Query 6 does not exist in Flink SQL (its window does not take retractions), and query 13 joins a table that
Kafka's connector cannot look up.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from benchmarks.flink_sql import SEPARATOR, FlinkQuery, sink
from penstock.state.serdes.serde import INT
from penstock.topologies.examples.nexmark.model import Auction, Bid, Person


def _average(key: bytes, value: bytes) -> dict[str, Any]:
    return {"id": INT.deserialize(key), "final": INT.deserialize(value)}


def _filed(key: bytes, value: bytes) -> dict[str, Any]:
    day, minute = key.decode().split("/")
    return {**json.loads(value), "dt": day, "hm": minute}


def _ranked(key: bytes, value: bytes) -> dict[str, Any]:
    return {**json.loads(value), "rank_number": int(key.decode().split("/")[1])}


def _offered(key: bytes, value: bytes) -> dict[str, Any]:
    both = json.loads(value)
    bid, auction = both["bid"], both["auction"]
    renamed = {"bid_dateTime": bid.pop("dateTime"), "bid_extra": bid.pop("extra")}
    opened = {"auction_dateTime": auction["dateTime"], "auction_extra": auction["extra"]}
    return {**auction, **opened, **bid, **renamed}


# -- statements ------------------------------------------------------------------------------------------------------


def _fields(model: Any) -> str:
    types = {"int": "BIGINT", "str": "STRING"}
    return ", ".join(f"`{name}` {types[tp]}" for name, tp in model.__annotations__.items())


_EVENTS = f"""CREATE TABLE events (event_type INT, person ROW<{_fields(Person)}>, auction ROW<{_fields(Auction)}>,
bid ROW<{_fields(Bid)}>, ts AS TO_TIMESTAMP_LTZ(CASE event_type WHEN 0 THEN person.`dateTime`
WHEN 1 THEN auction.`dateTime` ELSE bid.`dateTime` END, 3), WATERMARK FOR ts AS ts - INTERVAL '4.001' SECOND)
WITH ('connector' = 'kafka', 'topic' = 'nexmark', 'scan.startup.mode' = 'earliest-offset', 'format' = 'json',
'properties.bootstrap.servers' = '%s', 'properties.group.id' = '%s')"""


def _view(kind: str, number: int, model: Any) -> str:
    names = ", ".join(f"{kind}.`{name}`" for name in model.__annotations__)
    return f"CREATE VIEW {kind} AS SELECT {names}, ts FROM events WHERE event_type = {number}"


def script(query: str, bootstrap: str, application: str) -> str:
    """The statements of a query; the last of them runs it."""
    of = FLINK_QUERIES[query]
    return SEPARATOR.join(
        [
            _EVENTS % (bootstrap, application),
            _view("person", 0, Person),
            _view("auction", 1, Auction),
            _view("bid", 2, Bid),
            sink(query, bootstrap, of.columns, of.key),
            f"INSERT INTO answer {of.select}",
        ]
    )


# -- queries -----------------------------------------------------------------------------------------------------------


def _numbers(*names: str) -> dict[str, str]:
    return dict.fromkeys(names, "BIGINT")


_PRICE = {"price": "DECIMAL(23, 3)"}
_EXTRA = {"extra": "STRING"}
_BID = {**_numbers("auction", "bidder", "price"), "channel": "STRING", "url": "STRING", "dateTime": "BIGINT", **_EXTRA}
_ITEM = {"itemName": "STRING", "description": "STRING", **_numbers("initialBid", "reserve")}
_BIDS = "SELECT auction, bidder, price, channel, url, `dateTime`, extra"
_HOP = "TABLE(HOP(TABLE bid, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '10' SECOND))"
_TUMBLE = "TABLE(TUMBLE(TABLE %s, DESCRIPTOR(ts), INTERVAL '10' SECOND))"
_DAY = "DATE_FORMAT(ts, 'yyyy-MM-dd')"
_CLASSES = ("price < 10000", "price >= 10000 AND price < 1000000", "price >= 1000000")


def _by_class(name: str, of: str) -> dict[str, str]:
    """An aggregate over all bids, and over those of each class of prices, by the names of the columns."""
    ranks = {f"rank{i}_{name}": f"{of} FILTER (WHERE {those})" for i, those in enumerate(_CLASSES, 1)}
    return {f"total_{name}": of, **ranks}


_BIDS_BY_CLASS = _by_class("bids", "COUNT(*)")
_STATISTICS = {
    **_BIDS_BY_CLASS,
    **_by_class("bidders", "COUNT(DISTINCT bidder)"),
    **_by_class("auctions", "COUNT(DISTINCT auction)"),
}


def _listed(expressions: Mapping[str, str]) -> str:
    return ", ".join(f"{text} AS `{name}`" for name, text in expressions.items())


FLINK_QUERIES: Mapping[str, FlinkQuery] = {
    "q0": FlinkQuery(
        {**_numbers("auction", "bidder", "price", "dateTime"), **_EXTRA},
        "SELECT auction, bidder, price, `dateTime`, extra FROM bid",
    ),
    "q1": FlinkQuery(
        {**_numbers("auction", "bidder"), **_PRICE, "dateTime": "BIGINT", **_EXTRA},
        "SELECT auction, bidder, 0.908 * price, `dateTime`, extra FROM bid",
    ),
    "q2": FlinkQuery(_numbers("auction", "price"), "SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0"),
    "q3": FlinkQuery(
        {"name": "STRING", "city": "STRING", "state": "STRING", "id": "BIGINT"},
        "SELECT P.name, P.city, P.state, A.id FROM auction AS A INNER JOIN person AS P ON A.seller = P.id "
        "WHERE A.category = 10 AND (P.state = 'OR' OR P.state = 'ID' OR P.state = 'CA')",
    ),
    "q4": FlinkQuery(
        _numbers("id", "final"),
        "SELECT Q.category, AVG(Q.final) FROM (SELECT MAX(B.price) AS final, A.category FROM auction A, bid B "
        "WHERE A.id = B.auction AND B.`dateTime` BETWEEN A.`dateTime` AND A.expires GROUP BY A.id, A.category) Q "
        "GROUP BY Q.category",
        key=("id",),
        ours=_average,
    ),
    "q5": FlinkQuery(
        _numbers("auction", "num"),
        "SELECT AuctionBids.auction, AuctionBids.num FROM (SELECT auction, COUNT(*) AS num, window_start, window_end "
        f"FROM {_HOP} GROUP BY auction, window_start, window_end) AS AuctionBids JOIN "
        "(SELECT MAX(CountBids.num) AS maxn, CountBids.window_start, CountBids.window_end FROM "
        f"(SELECT COUNT(*) AS num, window_start, window_end FROM {_HOP} GROUP BY auction, window_start, window_end) "
        "AS CountBids GROUP BY CountBids.window_start, CountBids.window_end) AS MaxBids "
        "ON AuctionBids.window_start = MaxBids.window_start AND AuctionBids.window_end = MaxBids.window_end "
        "AND AuctionBids.num >= MaxBids.maxn",
    ),
    "q7": FlinkQuery(
        {**_numbers("auction", "bidder", "price", "dateTime"), **_EXTRA},
        "SELECT B.auction, B.bidder, B.price, B.`dateTime`, B.extra FROM bid B JOIN (SELECT MAX(price) AS maxprice, "
        f"window_end FROM {_TUMBLE % 'bid'} GROUP BY window_start, window_end) B1 ON B.price = B1.maxprice "
        "WHERE CAST(B.ts AS TIMESTAMP(3)) BETWEEN B1.window_end - INTERVAL '10' SECOND AND B1.window_end",
    ),
    "q8": FlinkQuery(
        {"id": "BIGINT", "name": "STRING", "starttime": "TIMESTAMP(3)"},
        "SELECT P.id, P.name, P.window_start FROM (SELECT id, name, window_start, window_end FROM "
        f"{_TUMBLE % 'person'} GROUP BY id, name, window_start, window_end) P JOIN (SELECT seller, window_start, "
        f"window_end FROM {_TUMBLE % 'auction'} GROUP BY seller, window_start, window_end) A "
        "ON P.id = A.seller AND P.window_start = A.window_start AND P.window_end = A.window_end",
    ),
    "q9": FlinkQuery(
        {
            "id": "BIGINT", **_ITEM, **_numbers("auction_dateTime", "expires", "seller", "category"),
            "auction_extra": "STRING", **_numbers("auction", "bidder", "price", "bid_dateTime"), "bid_extra": "STRING",
        },
        f"SELECT id, {', '.join(_ITEM)}, `dateTime`, expires, seller, category, extra, auction, bidder, price, "
        "bid_dateTime, bid_extra FROM (SELECT A.*, B.auction, B.bidder, B.price, B.`dateTime` AS bid_dateTime, "
        "B.extra AS bid_extra, ROW_NUMBER() OVER (PARTITION BY A.id ORDER BY B.price DESC, B.`dateTime` ASC) AS rownum "
        "FROM auction A, bid B WHERE A.id = B.auction AND B.`dateTime` BETWEEN A.`dateTime` AND A.expires) "
        "WHERE rownum <= 1",
        key=("id",),
        ours=_offered,
    ),
    "q10": FlinkQuery(
        {**_numbers("auction", "bidder", "price", "dateTime"), **_EXTRA, "dt": "STRING", "hm": "STRING"},
        f"SELECT auction, bidder, price, `dateTime`, extra, {_DAY}, DATE_FORMAT(ts, 'HH:mm') FROM bid",
        ours=_filed,
    ),
    "q11": FlinkQuery(
        {**_numbers("bidder", "bid_count"), "starttime": "TIMESTAMP(3)", "endtime": "TIMESTAMP(3)"},
        "SELECT bidder, COUNT(*), CAST(SESSION_START(ts, INTERVAL '10' SECOND) AS TIMESTAMP(3)), "
        "CAST(SESSION_END(ts, INTERVAL '10' SECOND) AS TIMESTAMP(3)) FROM bid "
        "GROUP BY bidder, SESSION(ts, INTERVAL '10' SECOND)",
    ),
    "q12": FlinkQuery(
        {**_numbers("bidder", "bid_count"), "starttime": "TIMESTAMP(3)", "endtime": "TIMESTAMP(3)"},
        "SELECT bidder, COUNT(*), window_start, window_end FROM TABLE(TUMBLE((SELECT bidder, PROCTIME() AS p_time FROM "
        "bid), DESCRIPTOR(p_time), INTERVAL '10' SECOND)) GROUP BY bidder, window_start, window_end",
    ),
    "q14": FlinkQuery(
        {
            **_numbers("auction", "bidder"), **_PRICE, "bidTimeType": "STRING", "dateTime": "BIGINT", **_EXTRA,
            "c_counts": "BIGINT",
        },
        "SELECT auction, bidder, 0.908 * price, CASE WHEN HOUR(ts) >= 8 AND HOUR(ts) <= 18 THEN 'dayTime' "
        "WHEN HOUR(ts) <= 6 OR HOUR(ts) >= 20 THEN 'nightTime' ELSE 'otherTime' END, `dateTime`, extra, "
        "COUNT_CHAR(extra, 'c') FROM bid WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000",
    ),
    "q15": FlinkQuery(
        {"day": "STRING", **_numbers(*_STATISTICS)},
        f"SELECT {_DAY}, {_listed(_STATISTICS)} FROM bid GROUP BY {_DAY}",
        key=("day",),
    ),
    "q16": FlinkQuery(
        {"channel": "STRING", "day": "STRING", "minute": "STRING", **_numbers(*_STATISTICS)},
        f"SELECT channel, {_DAY}, MAX(DATE_FORMAT(ts, 'HH:mm')), {_listed(_STATISTICS)} FROM bid "
        f"GROUP BY channel, {_DAY}",
        key=("channel", "day"),
    ),
    "q17": FlinkQuery(
        {
            "auction": "BIGINT", "day": "STRING",
            **_numbers(*_BIDS_BY_CLASS, "min_price", "max_price", "avg_price", "sum_price"),
        },
        f"SELECT auction, {_DAY}, {_listed(_BIDS_BY_CLASS)}, MIN(price), MAX(price), AVG(price), SUM(price) FROM bid "
        f"GROUP BY auction, {_DAY}",
        key=("auction", "day"),
    ),
    "q18": FlinkQuery(
        _BID,
        f"{_BIDS} FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY ts DESC) AS rank_number "
        "FROM bid) WHERE rank_number <= 1",
        key=("bidder", "auction"),
    ),
    "q19": FlinkQuery(
        {**_BID, "rank_number": "BIGINT"},
        f"{_BIDS}, rank_number FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC, "
        "`dateTime` ASC) AS rank_number FROM bid) WHERE rank_number <= 10",
        key=("auction", "rank_number"),
        ours=_ranked,
    ),
    "q20": FlinkQuery(
        {
            **_numbers("auction", "bidder", "price"), "channel": "STRING", "url": "STRING", "bid_dateTime": "BIGINT",
            "bid_extra": "STRING", **_ITEM, **_numbers("auction_dateTime", "expires", "seller", "category"),
            "auction_extra": "STRING",
        },
        f"SELECT auction, bidder, price, channel, url, B.`dateTime`, B.extra, {', '.join(_ITEM)}, A.`dateTime`, "
        "expires, seller, category, A.extra FROM bid AS B INNER JOIN auction AS A ON B.auction = A.id "
        "WHERE A.category = 10",
        ours=_offered,
    ),
    "q21": FlinkQuery(
        {**_numbers("auction", "bidder", "price"), "channel": "STRING", "channel_id": "STRING"},
        "SELECT auction, bidder, price, channel, CASE WHEN LOWER(channel) = 'apple' THEN '0' "
        "WHEN LOWER(channel) = 'google' THEN '1' WHEN LOWER(channel) = 'facebook' THEN '2' "
        "WHEN LOWER(channel) = 'baidu' THEN '3' ELSE REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2) END FROM bid "
        "WHERE REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2) IS NOT NULL OR "
        "LOWER(channel) IN ('apple', 'google', 'facebook', 'baidu')",
    ),
    "q22": FlinkQuery(
        {**_numbers("auction", "bidder", "price"), "channel": "STRING", "dir1": "STRING", "dir2": "STRING",
         "dir3": "STRING"},
        "SELECT auction, bidder, price, channel, SPLIT_INDEX(url, '/', 3), SPLIT_INDEX(url, '/', 4), "
        "SPLIT_INDEX(url, '/', 5) FROM bid",
    ),
}  # fmt: skip
