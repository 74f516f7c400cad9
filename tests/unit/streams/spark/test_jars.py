"""Jars that were resolved once are taken from the cache, if they are those, and whole."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from penstock.streams.spark.jars import class_path, known_jars, note_jars, resolving

PACKAGES = ("org.apache.spark:kafka:4.0.0", "org.apache.iceberg:runtime:1.10.0")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """Two jars of the packages, one that Spark has too, and what a session says of them."""
    for name in ("jars", "of-spark"):
        (tmp_path / name).mkdir()
    for name in (
        "org.apache.spark_kafka_2.13-4.0.0.jar",
        "org.apache.iceberg_runtime-1.10.0.jar",
        "org.lz4_lz4-1.8.jar",
    ):
        (tmp_path / "jars" / name).write_bytes(name.encode())
    (tmp_path / "of-spark" / "lz4-1.8.jar").touch()
    return tmp_path


def note(cache: Path) -> None:
    urls = [jar.as_uri() for jar in sorted((cache / "jars").iterdir())]
    note_jars(cache, PACKAGES, ",".join([*urls, "file:///somewhere/else.jar"]), cache / "of-spark")


def test_noted_jars_are_found_without_those_of_spark(cache: Path) -> None:
    assert known_jars(cache, PACKAGES) is None
    note(cache)
    found = known_jars(cache, PACKAGES)
    assert found is not None
    assert [jar.name for jar in found] == [
        "org.apache.iceberg_runtime-1.10.0.jar",
        "org.apache.spark_kafka_2.13-4.0.0.jar",
    ]
    assert known_jars(cache, PACKAGES[:1]) is None, "other packages need others"


@pytest.mark.parametrize("damage", ["missing", "shorter", "record"])
def test_damaged_caches_are_resolved_again(cache: Path, damage: str) -> None:
    note(cache)
    jar = cache / "jars" / "org.apache.iceberg_runtime-1.10.0.jar"
    if damage == "missing":
        jar.unlink()
    elif damage == "shorter":
        jar.write_bytes(b"half")
    else:
        (record,) = cache.glob("resolved-*.json")
        record.write_bytes(record.read_bytes()[:20])
    assert known_jars(cache, PACKAGES) is None


def test_nothing_is_noted_of_a_session_that_got_none(cache: Path) -> None:
    note_jars(cache, PACKAGES, "", cache / "of-spark")
    assert not list(cache.glob("resolved-*"))


def test_a_cluster_gets_the_jars_themselves() -> None:
    jars = [Path("/cache/a.jar"), Path("/cache/b c.jar")]
    assert class_path(jars, in_this_process=True) == {"spark.driver.extraClassPath": "/cache/a.jar:/cache/b c.jar"}
    assert class_path(jars, in_this_process=False) == {"spark.jars": "file:///cache/a.jar,file:///cache/b%20c.jar"}


def test_packages_are_resolved_one_after_the_other(tmp_path: Path) -> None:
    order: list[str] = []
    inside = threading.Event()

    def first() -> None:
        with resolving(tmp_path / "ivy"):
            inside.set()
            order.append("first")

    with resolving(tmp_path / "ivy"):
        thread = threading.Thread(target=first)
        thread.start()
        assert not inside.wait(0.2)
        order.append("second")
    thread.join(10)
    assert order == ["second", "first"]
