"""The pure parts of the topic commands and of the console."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaException, Producer

from penstock.state.errors import SettingsError, UserError
from penstock.streams.kafka.console import split_line
from penstock.streams.kafka.topics import Topics, parse_retention_ms, refused_config


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("500ms", 500),
        ("30s", 30_000),
        ("90m", 5_400_000),
        ("12h", 43_200_000),
        ("1d", 86_400_000),
        ("2w", 1_209_600_000),
        ("forever", -1),
        (" 1d ", 86_400_000),
        ("0s", 0),
    ],
)
def test_a_retention_is_a_number_and_its_unit(text: str, ms: int) -> None:
    assert parse_retention_ms(text) == ms


@pytest.mark.parametrize("text", ["", "1", "d", "1.5d", "-1d", "1 day", "1D", "1d2h"])
def test_anything_else_is_no_retention(text: str) -> None:
    with pytest.raises(SettingsError, match="write a number and its unit"):
        parse_retention_ms(text)


@pytest.mark.parametrize(
    ("line", "separator", "null", "expected"),
    [
        (b"a:b", None, None, (None, b"a:b")),
        (b"a:b:c", b":", None, (b"a", b"b:c")),
        (b":", b":", None, (b"", b"")),
        (b"", None, None, (None, b"")),
        (b"NULL:NULL", b":", b"NULL", (None, None)),
        (b"NULL", None, b"NULL", (None, None)),
        (b"\xff=>\xfe", b"=>", None, (b"\xff", b"\xfe")),
    ],
)
def test_a_line_is_a_key_and_a_value(
    line: bytes, separator: bytes | None, null: bytes | None, expected: tuple[bytes | None, bytes | None]
) -> None:
    assert split_line(line, 1, separator, null) == expected


def test_a_line_without_the_separator_is_named() -> None:
    with pytest.raises(UserError, match=r"line 7 has no key separator '\\t'"):
        split_line(b"a b", 7, b"\t", None)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"security.protocol": "hunter2"}, "'security.protocol': its value or combination is invalid"),
        ({"hunter3": "hunter2"}, "'hunter3': there is no such key"),
    ],
)
def test_a_refused_client_setting_is_named_without_its_value(config: dict[str, str], said: str) -> None:
    with pytest.raises(KafkaException) as native:
        Producer(dict(config))
    assert said in str(refused_config(native.value))
    with pytest.raises(SettingsError, match=said) as ours:
        Topics("127.0.0.1:1", config)
    assert "hunter2" not in str(ours.value)


@pytest.mark.parametrize(("partitions", "copies"), [(0, 1), (1, 0), (-1, 1)])
def test_a_topic_without_partitions_or_copies_is_refused(partitions: int, copies: int) -> None:
    with pytest.raises(SettingsError, match="give at least 1 for each"):
        Topics("127.0.0.1:1", {}).create("t", partitions=partitions, replication_factor=copies, configs={})
