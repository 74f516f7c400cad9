"""Keys and values as JSON and back, by their types, and the lines that commands print of them."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import Any

import msgspec
import orjson
import pytest

from penstock.state.errors import SettingsError, UserError
from penstock.state.log import Windowed
from penstock.state.recovery.changelog import to_changelog_columns
from penstock.state.serdes.serde import INT, JSON, STRING, Serde, optional, serde_of
from penstock.state.serdes.window_keys import spanning_serde, windowed_serde
from penstock.state.stores.store import StoreKind, StoreSpec
from penstock.streams.cli.produce import json_record, text_records
from penstock.streams.cli.record_lines import RecordLines, check_format
from penstock.streams.cli.topic_types import TopicTypes, changelog_keys, parse_type, topology_types, types_of
from penstock.streams.cli.typed_bytes import (
    RAW,
    as_json,
    as_text,
    codec_of,
    corrected,
    raw_given,
    raw_shown,
    shown_or_marked,
)
from penstock.streams.kafka.console import NewRecord
from penstock.streams.kafka.follow import FoundRecord
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.windows.aligned import tumbling


class Order(msgspec.Struct):
    """A value with a type."""

    city: str
    cents: int


@dataclasses.dataclass
class Click:
    """Another one."""

    page: str


@pytest.mark.parametrize(
    ("serde", "value", "shown"),
    [
        (STRING, "ä", "ä"),
        (INT, -3, -3),
        (JSON, {"a": [1, None]}, {"a": [1, None]}),
        (serde_of(Order), Order("Ulm", 12), {"city": "Ulm", "cents": 12}),
        (serde_of(Click), Click("/"), {"page": "/"}),
        (windowed_serde(str, 60_000), Windowed("u", 0, 60_000), {"key": "u", "start": 0, "end": 60_000}),
        (spanning_serde(int), Windowed(7, 5, 9), {"key": 7, "start": 5, "end": 9}),
        (optional(INT), (None,), None),
        (serde_of(bytes), b"\xff", {"base64": "/w=="}),
        (serde_of(bytes), b"text", "text"),
    ],
)
def test_what_is_shown_can_be_written_again(serde: Serde[Any], value: Any, shown: Any) -> None:
    codec = codec_of(serde)
    data = serde.serialize(value)
    assert codec.show(data) == shown
    assert codec.read is not None
    assert codec.read(orjson.loads(as_json(shown))) == data


def test_what_does_not_fit_the_type_is_refused() -> None:
    codec = codec_of(serde_of(Order))
    assert codec.read is not None
    with pytest.raises(UserError, match="Expected `int`, got `str`"):
        codec.read({"city": "Ulm", "cents": "12"})
    with pytest.raises(UserError, match="cannot be read as int"):
        codec_of(INT).show(b"abc")
    with pytest.raises(ValueError, match="base64"):
        raw_given({"base64": "?"})


@pytest.mark.parametrize("data", [b"", b"plain", b"\xff\x00", "ä".encode()])
def test_raw_bytes_come_back(data: bytes) -> None:
    assert raw_given(orjson.loads(as_json(raw_shown(data)))) == data


def test_types_are_named_as_a_user_would(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shop_types.py").write_text(
        "import dataclasses\n@dataclasses.dataclass\nclass Order:\n    cents: int\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert parse_type("int") == INT
    assert parse_type("windowed(string, 1m)").name == windowed_serde(str, 60_000).name
    assert parse_type("session(int)").name == spanning_serde(int).name
    assert parse_type("shop_types:Order").name == "json:Order"
    for wrong in ("integer", "windowed(string,soon)", "shop_types:Absent", "absent_module:X"):
        with pytest.raises(SettingsError, match="is not a type; write string, json"):
            parse_type(wrong)


def topology() -> Any:
    builder = StreamsBuilder("t", key=str, value=Order)
    orders = builder.stream("orders")
    orders.group_by(lambda key, value: value.city).count(name="by-city").to_stream().to("by-city", value=int)
    windowed = orders.group_by_key().windowed_by(tumbling("1m", grace=0)).count(name="by-minute")
    windowed.to_stream().to("by-minute", value=int)
    return builder.build()


def test_a_topology_knows_the_types_of_its_topics() -> None:
    types = topology_types(topology(), "app")
    assert types["orders"].value.name == "json:Order"
    assert types["by-city"].value.name == "int"
    key = windowed_serde(str, 60_000).serialize(Windowed("u", 60_000, 120_000))
    assert types["by-minute"].key.show(key) == {"key": "u", "start": 60_000, "end": 120_000}
    assert types["app-by-city-changelog"].written_by == "application app"
    assert types["app-by-city-changelog"].key.name == "string"
    assert set(topology_types(topology(), None)) == {"orders", "by-city", "by-minute"}


@pytest.mark.parametrize(
    ("kind", "store_key", "shown"),
    [
        ("key_value", b"u", "u"),
        ("window", (60_000).to_bytes(8, "big") + b"u", {"key": "u", "start": 60_000, "end": 120_000}),
        (
            "key_window",
            bytes(8) + b"u" + (60_000).to_bytes(8, "big"),
            {"key": "u", "start": 60_000, "end": 120_000},
        ),
        (
            "session",
            bytes(8) + b"u" + (9).to_bytes(8, "big") + (5).to_bytes(8, "big"),
            {"key": "u", "start": 5, "end": 9},
        ),
        (
            "list",
            bytes(8) + b"u" + (9).to_bytes(8, "big") + (3).to_bytes(4, "big"),
            {"key": "u", "timestamp": 9, "sequence": 3},
        ),
    ],
)
def test_changelog_keys_are_readable(kind: StoreKind, store_key: bytes, shown: Any) -> None:
    size = 60_000 if "window" in kind else None
    spec = StoreSpec("s", kind, STRING, INT, window_size_ms=size, retention_ms=3_600_000)
    (key,), _ = to_changelog_columns(spec, [store_key], [bytes(8) + INT.serialize(1)])
    assert changelog_keys(spec).show(key) == shown


def arguments(**given: Any) -> argparse.Namespace:
    names = ("topology", "application_id", "key_type", "value_type", "key_separator", "null_marker")
    return argparse.Namespace(**{**dict.fromkeys(names), **given})


def test_options_are_stronger_than_the_topology(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_APPLICATION_ID", raising=False)
    example = "penstock.topologies.examples.keyed_count:build"
    assert types_of(arguments(value_type="int"), "t").value.name == "int"
    with pytest.raises(SettingsError, match=r"topic 'nope' is not one of .*keyed_count:build, which has: .*clicks"):
        types_of(arguments(topology=example), "nope")
    assert types_of(arguments(topology=example, value_type="json"), "nope").value.name == "json"
    assert types_of(arguments(topology=example, key_type="int"), "clicks").key.name == "int"


RECORD = FoundRecord("t", 3, 14, 1_500, INT.serialize(7), b"no number", (("h", b"\xff"), ("n", None)))


def test_a_line_of_json_has_everything() -> None:
    lines = RecordLines(lambda topic: TopicTypes(codec_of(INT)), None)
    assert orjson.loads(lines.line(RECORD)) == {
        "topic": "t",
        "partition": 3,
        "offset": 14,
        "timestamp": 1500,
        "key": 7,
        "value": "no number",
        "headers": [["h", {"base64": "/w=="}], ["n", None]],
    }
    assert lines.failed == 0


def test_what_cannot_be_read_is_marked_and_counted() -> None:
    lines = RecordLines(lambda topic: TopicTypes(value=codec_of(INT)), check_format("{key} {value}"))
    assert "cannot be read as int" in lines.line(RECORD)
    assert lines.failed == 1
    assert lines.first_failure.startswith("t [3] offset 14, value: b'no number' cannot be read as int")
    shown = orjson.loads(RecordLines(lambda topic: TopicTypes(value=codec_of(INT)), None).line(RECORD))
    assert shown["value"]["undecodable"] == "no number"


def test_what_could_not_be_read_is_written_again_once_its_text_is_corrected() -> None:
    codec, bad = codec_of(serde_of(Order)), b'{"city":"Ulm","cents":"free"}'
    marked = shown_or_marked(codec, bad)
    with pytest.raises(UserError, match="cannot be read as json:Order"):
        corrected(codec, bad, marked)
    with pytest.raises(UserError, match="undecodable: bytes are written as text"):
        corrected(codec, bad, {**marked, "undecodable": 5})
    fixed = b'{"city":"Ulm","cents":0}'
    assert corrected(codec, bad, {**marked, "undecodable": fixed.decode()}) == fixed
    assert corrected(codec, bad, {"city": "Ulm", "cents": 0}) is None, "the type writes it"
    assert corrected(codec, fixed, {**marked, "undecodable": "x"}) is None, "a record that can be read has such fields"


def test_windows_are_readable_as_text() -> None:
    assert as_text({"key": "u", "start": 0, "end": 1_500}) == "u@1970-01-01T00:00:00Z/1970-01-01T00:00:01.500Z"
    assert as_text({"a": 1}) == '{"a":1}'
    lines = RecordLines(lambda topic: TopicTypes(), check_format("{time} {topic}"), colour=True)
    assert lines.line(RECORD) == "1970-01-01T00:00:01.500Z \x1b[36mt\x1b[0m"


def test_a_line_of_json_becomes_a_record() -> None:
    types = TopicTypes(codec_of(INT), codec_of(serde_of(Order)))
    line = b'{"key":7,"value":{"city":"Ulm","cents":1},"timestamp":0,"headers":{"h":"x","n":null},"partition":2,"offset":9}'
    assert json_record(line, 1, types) == NewRecord(
        INT.serialize(7), b'{"city":"Ulm","cents":1}', 0, (("h", b"x"), ("n", None)), 2
    )
    assert json_record(b'{"headers":[["h",{"base64":"/w=="}]]}', 1, types).headers == (("h", b"\xff"),)
    assert json_record(b"{}", 1, types) == NewRecord(None, None)
    untyped = json_record(b'{"key":{"base64":"/w=="},"value":{"a":1}}', 1, TopicTypes())
    assert untyped == NewRecord(b"\xff", b'{"a":1}')


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{", "line 4: is not JSON"),
        (b"[]", "is not a JSON object; write one with key, value, timestamp"),
        (b'{"valeu":1}', "has a field 'valeu', and a record has key, value"),
        (b'{"value":{"city":"Ulm"}}', "value: .*missing required field `cents`"),
        (b'{"timestamp":"now"}', "timestamp 'now' is not a whole number"),
        (b'{"partition":-1}', "partition -1 is not a whole number"),
        (b'{"headers":5}', r"headers: .*write an object, or a list of \[name, value\]"),
        (b'{"headers":{"a":1}}', "headers: bytes are written as text"),
    ],
)
def test_a_wrong_line_is_named(line: bytes, said: str) -> None:
    with pytest.raises(UserError, match=said) as error:
        json_record(line, 4, TopicTypes(RAW, codec_of(serde_of(Order))))
    assert "Nothing of this line or after it was produced" in str(error.value)


def test_lines_of_text_take_their_types() -> None:
    types = TopicTypes(codec_of(STRING), codec_of(serde_of(Order)))
    given = arguments(key_separator="|", null_marker="-")
    lines = [b'7|{"city":"Ulm","cents":1}\n', b"u|-\n"]
    assert list(text_records(given, lines, types)) == [
        NewRecord(b"7", b'{"city":"Ulm","cents":1}'),
        NewRecord(b"u", None),
    ]
    with pytest.raises(UserError, match=r"line 1: value .*Expected `int`"):
        list(text_records(given, [b'u|{"city":"Ulm","cents":"x"}\n'], types))
    assert list(text_records(arguments(), [b"12\n"], TopicTypes(RAW, codec_of(INT)))) == [
        NewRecord(None, INT.serialize(12))
    ]
