"""Which connector a session asks for."""

from __future__ import annotations

import pyspark
import pytest

from penstock.streams.spark.session import KAFKA_CONNECTOR, SparkSettings, kafka_connector


@pytest.mark.parametrize(
    ("spark", "connector"), [("4.0.1", "4.0.0"), ("4.1.0", "4.1.1"), ("4.1.12", "4.1.1"), ("4.2.3", "4.2.3")]
)
def test_the_connector_is_of_the_minor_release_of_spark(spark: str, connector: str) -> None:
    assert kafka_connector(spark) == f"org.apache.spark:spark-sql-kafka-0-10_2.13:{connector}"


def test_sessions_take_the_connector_of_the_installed_spark() -> None:
    assert SparkSettings().connector == KAFKA_CONNECTOR == kafka_connector(pyspark.__version__)
