"""The table format in a Spark session: its jar, and the catalog that a table's name begins with."""

from __future__ import annotations

import dataclasses
import re

import pyspark
from pyspark.sql import SparkSession

from penstock.state.errors import EnvironmentFault, SettingsError
from penstock.streams.batch.places import absolute
from penstock.streams.spark.session import SparkSettings, minor_release

_ICEBERG_RELEASES = {"4.0": "1.10.0", "4.1": "1.11.0"}
"""The tested release for each of Spark's. A runtime works with one minor release of Spark only."""


def iceberg_runtime(spark_version: str) -> str:
    """The Maven coordinate of Iceberg's runtime for a release of Spark."""
    minor = minor_release(spark_version)
    release = _ICEBERG_RELEASES.get(minor, max(_ICEBERG_RELEASES.values()))
    return f"org.apache.iceberg:iceberg-spark-runtime-{minor}_2.13:{release}"


ICEBERG = iceberg_runtime(pyspark.__version__)
_CATALOG = "org.apache.iceberg.spark.SparkCatalog"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*){2,}")


def with_iceberg(settings: SparkSettings | None = None) -> SparkSettings:
    """The settings of a session with the table format (Apache Iceberg)."""
    given = settings or SparkSettings()
    return dataclasses.replace(given, packages=(*given.packages, ICEBERG))


def use_catalog(spark: SparkSession, table: str, warehouse: str | None) -> None:
    """Make the catalog of ``table`` known. ``warehouse``: a folder or URL that holds the tables itself; ``None``: the
    session's settings say where the catalog is. Raises ``SettingsError`` for a name without a catalog, or a catalog that is
    not known, ``EnvironmentFault`` where the session lacks the format."""
    if not _NAME.fullmatch(table):
        raise SettingsError(f"{table!r} names no table: write catalog.schema.table, of letters, digits and _")
    name = table.split(".", 1)[0]
    key = f"spark.sql.catalog.{name}"
    if warehouse is not None:
        for option, value in (("", _CATALOG), (".type", "hadoop"), (".warehouse", absolute(warehouse))):
            spark.conf.set(key + option, value)
    elif spark.conf.get(key, None) is None:
        raise SettingsError(
            f"the session knows no catalog {name}: give --warehouse DIR for one in a folder, or Spark's settings "
            f"({key}={_CATALOG}, {key}.type=…) for another"
        )
    try:
        spark.catalog.tableExists(table)
    except Exception as exc:
        if "Cannot find catalog plugin class" in str(exc) or "ClassNotFoundException" in str(exc):
            raise EnvironmentFault(
                "this Spark session has no Iceberg, and Java takes it only when it starts: open the process's first session "
                f"with spark_session(with_iceberg()), or set spark.jars.packages=…,{ICEBERG}"
            ) from exc
        raise EnvironmentFault(f"the catalog {name} does not answer: {str(exc)[:300]}") from exc
