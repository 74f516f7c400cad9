"""The settings of a cluster, the text that its brokers read, and what is made of a broker's last words."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

from penstock.state.errors import EnvironmentFault, SettingsError
from penstock.streams.kafka.embedded.ports import choose_addresses, is_free, require_free
from penstock.streams.kafka.embedded.properties import (
    HOST,
    BrokerAddress,
    ClusterSettings,
    diagnose,
    server_properties,
)

ONE = (BrokerAddress(0, 20000, 20001),)
THREE = tuple(BrokerAddress(i, 20000 + i, 20010 + i) for i in range(3))


def read(text: str) -> dict[str, str]:
    """A properties file as a dictionary."""
    return dict(line.split("=", 1) for line in text.splitlines())


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"brokers": 0}, "brokers is 0"),
        ({"brokers": 10}, "brokers is 10"),
        ({"port": 0}, "port is 0"),
        ({"port": 65535, "brokers": 3}, "port is 65535"),
        ({"heap": "lots"}, "heap is 'lots'"),
        ({"configs": {"node.id": "7"}}, "'?node.id'? belongs to Penstock"),
        ({"configs": {"a": "b\nlog.dirs=/"}}, "not one line"),
    ],
)
def test_values_out_of_bounds_are_refused(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        ClusterSettings(**wrong)  # type: ignore[arg-type]  # wrong on purpose


def test_one_broker_keeps_one_copy_of_everything() -> None:
    values = read(server_properties(ONE[0], ONE, Path("/d"), {}))
    assert values["controller.quorum.voters"] == f"0@{HOST}:20001"
    assert {v for k, v in values.items() if k.endswith("replication.factor")} == {"1"}
    assert {v for k, v in values.items() if k.endswith(("min.isr", "min.insync.replicas"))} == {"1"}
    assert values["auto.create.topics.enable"] == "false"


def test_three_brokers_keep_three_copies_and_need_two() -> None:
    values = read(server_properties(THREE[1], THREE, Path("/d"), {}))
    assert values["node.id"] == "1"
    assert values["controller.quorum.voters"].count("@") == 3
    assert {v for k, v in values.items() if k.endswith("replication.factor")} == {"3"}
    assert {v for k, v in values.items() if k.endswith(("min.isr", "min.insync.replicas"))} == {"2"}


def test_the_users_setting_wins() -> None:
    configs = {"auto.create.topics.enable": "true", "log.retention.ms": "5"}
    values = read(server_properties(ONE[0], ONE, Path("/d"), configs))
    assert values["auto.create.topics.enable"] == "true"
    assert values["log.retention.ms"] == "5"


def test_a_backslash_survives_the_properties_file() -> None:
    assert read(server_properties(ONE[0], ONE, Path("/d"), {"x": "a\\b"}))["x"] == "a\\\\b"


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("org.apache.kafka.common.KafkaException: Socket server failed to bind: Address already in use", "was taken"),
        ("java.io.IOException: No space left on device", "no space left on the disk of /d.* --data DIR"),
        ("java.nio.file.AccessDeniedException: Permission denied", r"chmod -R u\+rwX '/d'"),
        ("Failed to acquire lock on file .lock in /d", "another broker uses /d.*penstock down"),
        ("Error: Could not reserve enough space for object heap", "--heap"),
        (
            "ERROR x\norg.apache.kafka.common.config.ConfigException: Invalid value z for configuration y: Not a number",
            "refused its settings: Invalid value z .* --config",
        ),
        ("WARN all is well\n2026 ERROR it broke (kafka)", "^2026 ERROR it broke"),
        ("", "its log says nothing"),
    ],
)
def test_a_brokers_last_words_become_what_to_do(log: str, said: str) -> None:
    assert re.search(said, diagnose(log, ONE[0], Path("/d")))


def test_random_ports_are_free_and_distinct() -> None:
    addresses = choose_addresses(9, None)
    ports = [port for a in addresses for port in (a.port, a.controller_port)]
    assert len(set(ports)) == 18
    assert all(is_free(port) for port in ports)
    assert max(ports) < 32768  # where Linux begins to give ports to outgoing connections


def test_a_wished_port_is_the_first_brokers() -> None:
    first = choose_addresses(1, None)[0].port
    assert [a.port for a in choose_addresses(2, first)] == [first, first + 1]


def test_a_busy_port_is_named_with_the_way_out() -> None:
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(EnvironmentFault, match=rf"port {port} on {HOST} is in use.*penstock up --port N"):
            choose_addresses(1, port)
    require_free(port)
