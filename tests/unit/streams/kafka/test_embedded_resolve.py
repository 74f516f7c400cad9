"""Jars that are not exactly the recorded ones never reach Java."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from penstock.state.errors import EnvironmentFault
from penstock.streams.kafka.embedded import resolve
from penstock.streams.kafka.embedded.jars import JAR_SHA256, KAFKA_VERSION
from penstock.streams.kafka.embedded.paths import cache_dir, ensure_dir
from penstock.streams.kafka.embedded.resolve import check_sums, kafka_jars


def jars(folder: Path, contents: dict[str, bytes]) -> dict[str, str]:
    """Write jars; their sums."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}


def test_the_recorded_table_is_whole() -> None:
    assert f"kafka_2.13-{KAFKA_VERSION}.jar" in JAR_SHA256
    assert any(name.startswith("log4j-slf4j-impl-") for name in JAR_SHA256)
    assert all(re.fullmatch(r"[0-9a-f]{64}", digest) for digest in JAR_SHA256.values())


def test_equal_sums_pass(tmp_path: Path) -> None:
    check_sums(tmp_path, jars(tmp_path, {"a.jar": b"a", "b.jar": b"b"}))


def test_a_changed_jar_is_named_with_both_sums(tmp_path: Path) -> None:
    sums = jars(tmp_path, {"a.jar": b"a", "b.jar": b"b"})
    (tmp_path / "b.jar").write_bytes(b"B")
    seen = hashlib.sha256(b"B").hexdigest()
    with pytest.raises(EnvironmentFault, match=rf"b\.jar has the SHA-256 sum {seen}, not .* {sums['b.jar']}.*rm -r"):
        check_sums(tmp_path, sums)


def test_a_missing_jar_is_named(tmp_path: Path) -> None:
    sums = jars(tmp_path, {"a.jar": b"a", "b.jar": b"b"})
    (tmp_path / "a.jar").unlink()
    with pytest.raises(EnvironmentFault, match=r"lacks a\.jar"):
        check_sums(tmp_path, sums)


def test_a_jar_that_does_not_belong_is_named(tmp_path: Path) -> None:
    sums = jars(tmp_path, {"a.jar": b"a"})
    jars(tmp_path, {"evil.jar": b"e"})
    with pytest.raises(EnvironmentFault, match=r"do not belong there: evil\.jar"):
        check_sums(tmp_path, sums)


def test_a_cache_with_other_jars_is_refused_without_fetching(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path))
    jars(tmp_path / f"kafka-{KAFKA_VERSION}", dict.fromkeys(JAR_SHA256, b"not a jar"))
    with pytest.raises(EnvironmentFault, match="has the SHA-256 sum"):
        kafka_jars(Path("/nonexistent/java"))


def test_a_disk_too_full_for_the_jars_is_refused_before_fetching(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path))
    monkeypatch.setattr(resolve, "FREE_MIN_BYTES", 1 << 60)  # more than any disk has
    with pytest.raises(EnvironmentFault, match=r"no space in .* for Kafka's jars.*PENSTOCK_CACHE=/path penstock up"):
        kafka_jars(Path("/nonexistent/java"))


def test_the_cache_folder_follows_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path))
    assert cache_dir() == tmp_path
    monkeypatch.delenv("PENSTOCK_CACHE")
    assert cache_dir().name == "penstock"


def test_a_folder_that_cannot_be_made_is_an_environment_fault(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EnvironmentFault, match=r"cannot make the folder .*PENSTOCK_CACHE"):
        ensure_dir(tmp_path / "file" / "below")
