"""``enrich`` on Spark Structured Streaming in micro-batches, as fast after each other as they come: ``app.py enrich``;
orders come from the environment. The table is read once and kept in memory, as a table that does not change would be."""

from __future__ import annotations

import os
import signal
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0"
CLICK = "user string, url string, ts long"
USER = "name string, age int, city string, tier string, since string"


def session() -> SparkSession:
    """A local session on two cores, with as many shuffle partitions as the topics have."""
    settings = {
        "spark.jars.packages": CONNECTOR,
        "spark.jars.ivy": os.environ.get("IVY_DIR", ""),
        "spark.driver.memory": "3g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "4",
    }
    builder = SparkSession.builder.master(f"local[{os.environ.get('SPARK_CORES', '2')}]").appName("enrich")
    for name, value in settings.items():
        if value:
            builder = builder.config(name, value)
    return builder.getOrCreate()


def topic(spark: SparkSession, name: str, *, stream: bool) -> DataFrame:
    """A topic's records."""
    reader = (spark.readStream if stream else spark.read).format("kafka")
    options = {"kafka.bootstrap.servers": os.environ["BOOTSTRAP"], "subscribe": name, "startingOffsets": "earliest"}
    return reader.options(**options).load()


def main() -> None:
    """Until SIGTERM."""
    if sys.argv[1] != "enrich":
        raise SystemExit(f"no such workload: {sys.argv[1]}")
    spark = session()
    spark.sparkContext.setLogLevel("ERROR")
    users = topic(spark, os.environ["TOPIC_TABLE"], stream=False).select(
        "key", f.from_json(f.col("value").cast("string"), USER).alias("profile")
    )
    users = users.repartition(4, "key").cache()
    users.count()
    clicks = topic(spark, os.environ["TOPIC_IN"], stream=True).select(
        "key", f.from_json(f.col("value").cast("string"), CLICK).alias("c")
    )
    # The few clicks of a batch make the hash table; the cached rows, partitioned already, pass by it.
    joined = clicks.hint("shuffle_hash").join(users, "key")
    out = joined.select("key", f.to_json(f.struct("c.user", "c.url", "c.ts", "profile")).alias("value"))
    query = (
        out.writeStream.format("kafka")
        .option("kafka.bootstrap.servers", os.environ["BOOTSTRAP"])
        .option("topic", os.environ["TOPIC_OUT"])
        .option("checkpointLocation", os.environ["STATE_DIR"])
        .trigger(processingTime="0 seconds")
        .start()
    )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    query.awaitTermination()


if __name__ == "__main__":
    main()
