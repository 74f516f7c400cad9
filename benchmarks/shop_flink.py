"""The shop as Flink SQL, over the same topics and into topics of the same names.

Joins with users and products are those of an event-time version (``FOR SYSTEM_TIME AS OF``). Both tables come from compacted
topics that end before the first click, so they count as idle after two seconds, or nothing would be joined. The watermark
is a millisecond lower, as that of ``bounded_out_of_orderness`` is.
"""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.flink_sql import SEPARATOR, FlinkQuery, sink

IDLE = "table.exec.source.idle-timeout: 2 s"
_TIME = "ts TIMESTAMP_LTZ(3) METADATA FROM 'timestamp'"
_STREAM = (
    "CREATE TABLE {name} ({columns}, " + _TIME + ", WATERMARK FOR ts AS ts - INTERVAL '1.001' SECOND) WITH "
    "('connector' = 'kafka', 'topic' = 'shop-{name}', 'scan.startup.mode' = 'earliest-offset', 'format' = 'json', "
    "'properties.bootstrap.servers' = '{bootstrap}', 'properties.group.id' = '{group}')"
)
_TABLE = (
    "CREATE TABLE {name} ({columns}, " + _TIME + ", WATERMARK FOR ts AS ts, PRIMARY KEY ({key}) NOT ENFORCED) WITH "
    "('connector' = 'upsert-kafka', 'topic' = 'shop-{name}', 'key.format' = 'raw', 'value.format' = 'json', "
    "'value.fields-include' = 'EXCEPT_KEY', 'properties.bootstrap.servers' = '{bootstrap}', "
    "'properties.group.id' = '{group}')"
)
_INPUTS: Mapping[str, tuple[str, str]] = {
    "clicks": ("`user` STRING, product STRING", ""),
    "orders": ("id BIGINT, `user` STRING, product STRING, quantity BIGINT", ""),
    "payments": ("`order` BIGINT, card STRING, cents BIGINT, ok BOOLEAN", ""),
    "users": ("`user` STRING, country STRING", "`user`"),
    "products": ("product STRING, category STRING, cents BIGINT", "product"),
}
_VIEWS = (
    "CREATE VIEW paid AS SELECT O.id AS `order`, O.`user`, P.cents, P.ts FROM orders O JOIN payments P ON O.id = P.`order` "
    "WHERE P.ok AND P.ts BETWEEN O.ts AND O.ts + INTERVAL '5' MINUTE",
    "CREATE VIEW worth AS SELECT P.category, O.quantity * P.cents AS cents, O.ts FROM orders O JOIN products "
    "FOR SYSTEM_TIME AS OF O.ts AS P ON O.product = P.product",
)
_MINUTE = "TABLE(TUMBLE(TABLE %s, DESCRIPTOR(ts), INTERVAL '1' MINUTE))"
_BIGINT, _TEXT, _STAMP = "BIGINT", "STRING", "TIMESTAMP(3)"

PARTS: Mapping[str, FlinkQuery] = {
    "sessions": FlinkQuery(
        {"user": _TEXT, "clicks": _BIGINT, "products": _BIGINT, "starttime": _STAMP, "endtime": _STAMP},
        "SELECT `user`, COUNT(*), COUNT(DISTINCT product), CAST(SESSION_START(ts, INTERVAL '10' SECOND) AS TIMESTAMP(3)), "
        "CAST(SESSION_END(ts, INTERVAL '10' SECOND) AS TIMESTAMP(3)) FROM clicks "
        "GROUP BY `user`, SESSION(ts, INTERVAL '10' SECOND)",
    ),
    "top": FlinkQuery(
        {"product": _TEXT, "num": _BIGINT, "starttime": _STAMP},
        "SELECT product, num, window_start FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end "
        "ORDER BY num DESC, product ASC) AS place FROM (SELECT window_start, window_end, product, COUNT(*) AS num FROM "
        f"{_MINUTE % 'clicks'} GROUP BY window_start, window_end, product)) WHERE place <= 10",
    ),
    "sales": FlinkQuery(
        {"order": _BIGINT, "user": _TEXT, "country": _TEXT, "cents": _BIGINT},
        "SELECT S.`order`, S.`user`, U.country, S.cents FROM paid S JOIN users FOR SYSTEM_TIME AS OF S.ts AS U "
        "ON S.`user` = U.`user`",
    ),
    "alerts": FlinkQuery(
        {"card": _TEXT, "first_order": _BIGINT, "cents": _BIGINT},
        "SELECT card, first_order, cents FROM payments MATCH_RECOGNIZE (PARTITION BY card ORDER BY ts "
        "MEASURES A.`order` AS first_order, C.cents AS cents ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW "
        "PATTERN (A B C) WITHIN INTERVAL '10' MINUTE DEFINE A AS NOT A.ok, B AS NOT B.ok, C AS C.ok)",
    ),
    "revenue": FlinkQuery(
        {"category": _TEXT, "orders": _BIGINT, "cents": _BIGINT, "starttime": _STAMP},
        f"SELECT category, COUNT(*), SUM(cents), window_start FROM {_MINUTE % 'worth'} "
        "GROUP BY category, window_start, window_end",
    ),
}


def script(parts: tuple[str, ...], bootstrap: str, application: str) -> str:
    """The statements of an application with these parts; the last of them runs it."""
    inputs = [
        (_TABLE if key else _STREAM).format(name=name, columns=columns, key=key, bootstrap=bootstrap, group=application)
        for name, (columns, key) in _INPUTS.items()
    ]
    sinks = [sink(f"shop-{part}", bootstrap, PARTS[part].columns, name=f"to_{part}") for part in parts]
    inserts = "\n".join(f"INSERT INTO to_{part} {PARTS[part].select};" for part in parts)
    return SEPARATOR.join([*inputs, *_VIEWS, *sinks, f"EXECUTE STATEMENT SET BEGIN\n{inserts}\nEND"])
