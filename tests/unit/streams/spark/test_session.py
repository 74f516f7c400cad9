"""Which connector a session asks for, and when it stays on loopback."""

from __future__ import annotations

import pyspark
import pytest

from penstock.streams.spark.lake.catalog import iceberg_runtime
from penstock.streams.spark.session import KAFKA_CONNECTOR, SparkSettings, is_local, kafka_connector


@pytest.mark.parametrize(
    ("spark", "connector"), [("4.0.1", "4.0.0"), ("4.1.0", "4.1.1"), ("4.1.12", "4.1.1"), ("4.2.3", "4.2.3")]
)
def test_the_connector_is_of_the_minor_release_of_spark(spark: str, connector: str) -> None:
    assert kafka_connector(spark) == f"org.apache.spark:spark-sql-kafka-0-10_2.13:{connector}"


@pytest.mark.parametrize(
    "spark, runtime", [("4.0.1", "4.0_2.13:1.10.0"), ("4.1.4", "4.1_2.13:1.11.0"), ("4.2.0", "4.2_2.13:1.11.0")]
)
def test_the_table_format_is_that_of_spark_s_release(spark: str, runtime: str) -> None:
    assert iceberg_runtime(spark) == f"org.apache.iceberg:iceberg-spark-runtime-{runtime}"


def test_sessions_take_the_connector_of_the_installed_spark() -> None:
    assert SparkSettings().connector == KAFKA_CONNECTOR == kafka_connector(pyspark.__version__)


def test_a_session_stays_on_loopback_only_where_no_cluster_can_be_meant() -> None:
    assert is_local("local[2]", {"SPARK_HOME": "/spark"}) and is_local(None, {})
    assert not is_local("spark://somewhere:7077", {})
    for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS", "SPARK_CONF_DIR", "SPARK_HOME"):
        assert not is_local(None, {name: "x"})
