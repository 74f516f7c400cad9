"""Exact ranges of Kafka topics as DataFrames.

Committed records only, lost data is an error, offsets are explicit, and one Spark partition reads one topic partition in
offset order (no ``minPartitions``, no ``maxRecordsPerPartition``), so that what depends on offset order needs no shuffle.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from penstock.state.errors import SettingsError
from penstock.state.log import TIMESTAMP_ZERO_HEADER, TopicPartition

Ranges = Mapping[TopicPartition, tuple[int, int]]
"""Per partition the first offset to read and the offset to stop before."""

HEADERS_TYPE = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
RECORD_FIELDS = (
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp_ms", LongType()),
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("headers", HEADERS_TYPE),
)
RECORD_SCHEMA = StructType(list(RECORD_FIELDS))

_FIXED = {
    "kafka.isolation.level": "read_committed",
    "failOnDataLoss": "true",
    "includeHeaders": "true",
}
_OURS = {
    "startingoffsets",
    "startingoffsetsbytimestamp",
    "startingtimestamp",
    "endingoffsets",
    "endingoffsetsbytimestamp",
    "endingtimestamp",
    "assign",
    "subscribe",
    "subscribepattern",
    "minpartitions",
    "maxrecordsperpartition",
    "groupidprefix",
}


@dataclasses.dataclass(frozen=True)
class KafkaSource:
    """Where Spark reads. ``options`` are those of Spark's connector: ``kafka.<Java client key>`` and its own. They may
    hold secrets, so they are never shown."""

    bootstrap_servers: str
    options: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        fixed = {k.lower() for k in _FIXED} | _OURS
        for name, value in self.options.items():
            if name.lower() in fixed and _FIXED.get(name) != value:
                raise SettingsError(
                    f"the Spark option {name} is Penstock's to set: another value would make the result inexact; remove it"
                )


def read_ranges(spark: SparkSession, source: KafkaSource, ranges: Ranges) -> DataFrame:
    """The records of these ranges, with the columns of ``RECORD_SCHEMA``. ``timestamp_ms`` is exact, and 0 where
    Penstock's header says so, which is taken off then. The job that uses it fails when records of a
    range are no longer there."""
    full = {tp: r for tp, r in ranges.items() if r[0] < r[1]}
    if not full:
        return spark.createDataFrame([], RECORD_SCHEMA)
    topics: dict[str, list[int]] = {}
    for tp in sorted(full):
        topics.setdefault(tp.topic, []).append(tp.partition)
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", source.bootstrap_servers)
    for name, value in {**source.options, **_FIXED}.items():
        reader = reader.option(name, value)
    raw = (
        reader.option("assign", json.dumps(topics))
        .option("startingOffsets", _offsets(full, 0))
        .option("endingOffsets", _offsets(full, 1))
        .load()
    )
    mark = f"(h.key = '{TIMESTAMP_ZERO_HEADER}' and h.value = cast('0' as binary))"
    zero = F.expr(f"coalesce(exists(headers, h -> {mark}), false)")
    return raw.select(
        "topic",
        "partition",
        "offset",
        F.when(zero, F.lit(0)).otherwise(F.unix_millis("timestamp")).cast("long").alias("timestamp_ms"),
        "key",
        "value",
        F.when(zero, F.expr(f"nullif(filter(headers, h -> not {mark}), array())"))
        .otherwise(F.col("headers"))
        .cast(HEADERS_TYPE)
        .alias("headers"),
    )


def _offsets(ranges: Ranges, end: int) -> str:
    out: dict[str, dict[str, int]] = {}
    for tp in sorted(ranges):
        out.setdefault(tp.topic, {})[str(tp.partition)] = ranges[tp][end]
    return json.dumps(out)


def java_options(client: Mapping[str, str]) -> dict[str, str]:
    """The options of Spark's connector that say the same as these librdkafka settings, as far as they are about
    reaching and trusting the brokers; the rest does not concern a reader. Raises ``SettingsError`` for one that has no
    counterpart."""
    out: dict[str, str] = {}
    for ours, theirs in (("security.protocol", "security.protocol"), ("ssl.endpoint.identification.algorithm",) * 2):
        if ours in client:
            value = client[ours]
            out[f"kafka.{theirs}"] = value.upper() if ours == "security.protocol" else value.replace("none", "")
    if "ssl.ca.location" in client:
        out |= {"kafka.ssl.truststore.type": "PEM", "kafka.ssl.truststore.location": client["ssl.ca.location"]}
    if "ssl.certificate.location" in client or "ssl.key.location" in client:
        raise SettingsError(
            "ssl.certificate.location and ssl.key.location have no counterpart in Java; give Spark "
            "kafka.ssl.keystore.type=PEM and kafka.ssl.keystore.location=<one file with key and certificates>"
        )
    mechanism = client.get("sasl.mechanism", client.get("sasl.mechanisms"))
    if mechanism is not None:
        out |= _sasl(mechanism.upper(), client)
    return out


def _sasl(mechanism: str, client: Mapping[str, str]) -> dict[str, str]:
    modules = {
        "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
        "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
        "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    }
    if mechanism not in modules:
        raise SettingsError(
            f"sasl.mechanism {mechanism} has no translation to Java; give Spark kafka.sasl.mechanism and "
            "kafka.sasl.jaas.config"
        )
    given = (client.get(f"sasl.{k}", "") for k in ("username", "password"))
    user, password = (x.replace("\\", "\\\\").replace('"', '\\"') for x in given)
    return {
        "kafka.sasl.mechanism": mechanism,
        "kafka.sasl.jaas.config": f'{modules[mechanism]} required username="{user}" password="{password}";',
    }
