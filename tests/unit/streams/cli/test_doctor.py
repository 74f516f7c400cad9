"""What ``penstock doctor`` makes of what it sees."""

from __future__ import annotations

import socket
from pathlib import Path
from types import SimpleNamespace

import orjson
import pytest

from penstock.streams.cli.client_options import settings_of
from penstock.streams.cli.doctor import disk, judged, writable
from penstock.streams.cli.doctor_cluster import addresses, clock, port, rights
from penstock.streams.cli.main import main
from penstock.streams.kafka.broker_clock import ClockDifference
from penstock.streams.runtime.least_rights import Right
from penstock.streams.worker.settings import WorkerSettings

SETTINGS = WorkerSettings(application_id="a")


def seen(values: dict[str, str], brokers: int = 1, settings: WorkerSettings = SETTINGS) -> list[tuple[str, str]]:
    return [(finding.verdict, finding.seen) for finding in judged(0, values, brokers, settings)]


def test_settings_that_are_right_are_one_line() -> None:
    assert seen({"message.max.bytes": "1048588"}) == [("good", "the settings that matter")]


@pytest.mark.parametrize(
    ("name", "value", "brokers", "verdict"),
    [
        ("transaction.max.timeout.ms", "5000", 1, "wrong"),
        ("group.max.session.timeout.ms", "30000", 1, "wrong"),
        ("message.max.bytes", "1000", 1, "wrong"),
        ("offsets.retention.minutes", "60", 1, "look"),
        ("auto.create.topics.enable", "true", 1, "look"),
    ],
)
def test_a_setting_that_hurts_is_named(name: str, value: str, brokers: int, verdict: str) -> None:
    settings = WorkerSettings(application_id="a", transaction_timeout_ms=10_000)
    assert seen({name: value}, brokers, settings) == [(verdict, f"{name}={value}")]


def test_copies_matter_where_there_are_brokers_for_them() -> None:
    values = {"default.replication.factor": "1", "min.insync.replicas": "1"}
    assert seen(values, brokers=1) == [("good", "the settings that matter")]
    assert [text for _, text in seen(values, brokers=3)] == ["default.replication.factor=1", "min.insync.replicas=1"]
    given = WorkerSettings(application_id="a", replication_factor=3)
    assert [text for _, text in seen(values, 3, given)] == ["min.insync.replicas=1"]


@pytest.mark.parametrize(("free", "verdict"), [(1 << 20, "wrong"), (2 << 30, "look"), (9 << 30, "good")])
def test_the_disk_of_a_folder_that_is_not_there_yet_is_looked_at(free: int, verdict: str, tmp_path: Path) -> None:
    asked: list[Path] = []
    found = disk(tmp_path / "absent" / "state", lambda path: (asked.append(path), SimpleNamespace(free=free))[1])
    assert (found.verdict, asked) == (verdict, [tmp_path])


def test_the_application_is_the_files_where_no_option_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "shop.toml"
    file.write_text('[penstock]\napplication_id = "shop"\n')
    where = {"bootstrap_servers": "127.0.0.1:1"}
    assert settings_of(str(file), unnamed="doctor", **where).application_id == "shop"
    assert settings_of(str(file), unnamed="doctor", application_id="a", **where).application_id == "a"
    assert settings_of(None, unnamed="doctor", **where).application_id == "doctor"
    monkeypatch.setenv("PENSTOCK_APPLICATION_ID", "b")
    assert settings_of(None, unnamed="doctor", **where).application_id == "b"


def test_brokers_that_do_not_answer_are_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--bootstrap-server", "127.0.0.1:1", "--json"]) == 1
    found = {finding["what"]: finding for finding in orjson.loads(capsys.readouterr().out)}
    assert found["brokers"]["verdict"] == "wrong"
    assert "Connection refused" in found["brokers"]["advice"]
    assert found["penstock"]["verdict"] == "good"


def test_an_address_that_cannot_be_reached_is_wrong() -> None:
    brokers = {1: ("kafka-1", 9092), 2: ("kafka-2", 9092)}
    found = list(addresses(brokers, lambda host, _: "No route to host" if host == "kafka-2" else None))
    assert [finding.verdict for finding in found] == ["good", "wrong"]
    assert found[1].seen == "kafka-2:9092 cannot be reached: No route to host"
    assert "advertised.listeners" in found[1].advice


def test_a_real_connection_is_tried() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        number = server.getsockname()[1]
        assert [f.verdict for f in addresses({1: ("127.0.0.1", number)})] == ["good"]
        assert port(number, "127.0.0.1").verdict == "look"
    assert [f.verdict for f in addresses({1: ("127.0.0.1", number)})] == ["wrong"]


@pytest.mark.parametrize(
    ("least", "most", "verdict"),
    [(-5, 40, "good"), (300, 900, "good"), (1_500, 1_600, "look"), (-200_000, -190_000, "wrong")],
)
def test_clocks_differ_by_what_is_certain(least: int, most: int, verdict: str) -> None:
    assert clock(ClockDifference(least, most)).verdict == verdict


def test_rights_that_are_missing_are_named_and_those_that_brokers_keep_to_themselves() -> None:
    needed = [
        Right("topic", "orders", ("READ",), "reads it"),
        Right("topic", "totals", ("WRITE",), "writes it"),
        Right("topic", "shop-topology", ("CREATE", "READ", "WRITE"), "record of the topology"),
        Right("transactional-id", "shop-", ("WRITE",), "commits in transactions", prefixed=True),
    ]
    topics = {"orders": frozenset({"READ"}), "totals": frozenset({"DESCRIBE"}), "shop-topology": None}
    found = list(rights(needed, topics, {}))
    assert [(f.verdict, f.seen) for f in found] == [
        ("wrong", "topic totals: no WRITE"),
        ("look", "brokers do not say: shop-topology, shop-*"),
    ]
    granted = list(rights(needed[:2], {"orders": frozenset({"READ"}), "totals": frozenset({"WRITE"})}, {}))
    assert [(f.verdict, f.seen) for f in granted] == [("good", "2 of 2 asked for, all granted")]


def test_a_folder_that_cannot_be_made_is_wrong(tmp_path: Path) -> None:
    assert writable(tmp_path / "absent" / "state").verdict == "good"
    (tmp_path / "file").write_text("")
    assert writable(tmp_path / "file" / "state").verdict == "wrong"
