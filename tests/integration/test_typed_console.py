"""``penstock produce``, ``consume`` and ``tail`` with types, against a real broker."""

from __future__ import annotations

import io
import sys
import uuid
from pathlib import Path

import orjson
import pytest

from penstock.state.log import Windowed
from penstock.state.serdes.serde import INT
from penstock.state.serdes.window_keys import windowed_serde
from penstock.streams.cli.main import main
from penstock.streams.kafka.client_config import producer_config
from penstock.streams.kafka.console import NewRecord, produce_records
from penstock.streams.kafka.producer import KafkaProducer
from penstock.streams.kafka.topics import Topics


@pytest.fixture
def topic(kafka: str) -> str:
    """A topic of two partitions."""
    name = f"typed-{uuid.uuid4().hex[:8]}"
    Topics(kafka, {}).create(name, partitions=2, replication_factor=1, configs={})
    return name


def produce(kafka: str, topic: str, lines: str, *options: str) -> int:
    """Run the command over these lines."""
    before = sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(lines.encode()))
    try:
        return main(["produce", topic, *options, "--bootstrap-server", kafka])
    finally:
        sys.stdin = before


def consume(kafka: str, capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> list[str]:
    """The lines of a command that reads a number of records from the beginning; the time-out is for what does not come."""
    assert "--max-messages" in words
    capsys.readouterr()
    assert main([*words, "--from-beginning", "--timeout", "120", "--bootstrap-server", kafka]) == status
    return capsys.readouterr().out.splitlines()


def test_records_go_in_and_come_out_as_json(kafka: str, topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    records = [
        {"key": "b", "value": 2, "timestamp": 2_000, "headers": [["h", "x"], ["raw", {"base64": "/w=="}]]},
        {"key": "a", "value": 1, "timestamp": 0, "headers": []},
        {"key": None, "value": None, "timestamp": 1_000, "headers": []},
    ]
    typed = ("--key-type", "string", "--value-type", "int")
    lines = "".join(orjson.dumps({**r, "partition": 0}).decode() + "\n" for r in records)
    assert produce(kafka, topic, lines, "--json", *typed) == 0
    out = [
        orjson.loads(line) for line in consume(kafka, capsys, "consume", topic, "--json", *typed, "--max-messages", "3")
    ]
    assert [{k: r[k] for k in ("key", "value", "timestamp", "headers")} for r in out] == records
    assert [(r["topic"], r["partition"], r["offset"]) for r in out] == [(topic, 0, n) for n in range(3)]
    (line,) = consume(kafka, capsys, "consume", topic, "--value-type", "int", "--max-messages", "1")
    assert line == "2"


def test_a_line_that_does_not_fit_stops_and_those_before_it_are_written(
    kafka: str, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert produce(kafka, topic, '{"value":1}\n{"value":"x"}\n{"value":3}\n', "--json", "--value-type", "int") == 2
    assert "line 2: value: 'x' cannot be written as int" in capsys.readouterr().err
    assert sum(p.end_offset for p in Topics(kafka, {}).describe(topic).partitions) == 1
    one, two = ("--max-messages", "1"), ("--max-messages", "2")
    assert consume(kafka, capsys, "consume", topic, "--value-type", "int", *one) == ["1"]
    produce_records(kafka, {}, topic, [NewRecord(None, b"poison")])
    shown = consume(kafka, capsys, "consume", topic, "--value-type", "int", *two, status=1)
    assert "1" in shown
    assert any("b'poison' cannot be read as int" in line for line in shown)


def test_last_counts_records_and_not_the_markers_of_transactions(
    kafka: str, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    producer = KafkaProducer(producer_config(kafka, {}, transactional_id=topic))
    producer.init_transactions(60)
    for number in range(40):
        producer.begin()
        producer.send(topic, [None], [b"%d" % number], [number], partition=0)
        producer.flush(60)
        producer.abort(60) if number % 20 == 19 else producer.commit(60)
    producer.close()

    def last(number: int) -> list[str]:
        words = ("consume", topic, "--last", str(number), "--timeout", "3", "--bootstrap-server", kafka)
        assert main([*words]) == 0
        return capsys.readouterr().out.splitlines()

    assert last(1) == ["38"]
    assert last(30) == [str(n) for n in range(39) if n != 19][-30:]
    assert last(1_000) == [str(n) for n in range(39) if n != 19]


def test_topics_are_followed_in_order_of_time(kafka: str, topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    other = f"{topic}-other"
    Topics(kafka, {}).create(other, partitions=1, replication_factor=1, configs={})
    produce_records(kafka, {}, topic, [NewRecord(None, b"t%d" % at, at, (), at % 2) for at in (10, 30, 31, 50, 51)])
    produce_records(kafka, {}, other, [NewRecord(None, b"o%d" % at, at) for at in (20, 40, 60)])
    shown = consume(kafka, capsys, "tail", topic, other, "--max-messages", "8", "--format", "{timestamp}:{value}")
    assert shown == ["10:t10", "20:o20", "30:t30", "31:t31", "40:o40", "50:t50", "51:t51", "60:o60"]
    assert consume(kafka, capsys, "tail", topic, other, "--max-messages", "2", "--format", "{value}") == ["t10", "o20"]


def test_a_topology_makes_windowed_keys_readable(
    kafka: str, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module = tmp_path / "views.py"
    module.write_text(
        "import penstock as ps\n"
        "topology = builder = ps.StreamsBuilder(key=str, value=dict)\n"
        "counts = builder.stream('views').group_by_key().windowed_by(ps.tumbling('1m', grace=0)).count(name='n')\n"
        f"counts.to_stream().to('{topic}', value=int)\n"
    )
    key = windowed_serde(str, 60_000).serialize(Windowed("ann", 60_000, 120_000))
    produce_records(kafka, {}, topic, [NewRecord(key, INT.serialize(7))])
    words = ("consume", topic, "--topology", str(module), "--max-messages", "1")
    assert consume(kafka, capsys, *words, "--format", "{key} {value}") == [
        "ann@1970-01-01T00:01:00Z/1970-01-01T00:02:00Z 7"
    ]
    (line,) = consume(kafka, capsys, *words, "--json")
    assert orjson.loads(line)["key"] == {"key": "ann", "start": 60_000, "end": 120_000}
    assert main(["consume", "absent", "--topology", str(module), "--bootstrap-server", kafka]) == 2
    assert "topic 'absent' is not one of" in capsys.readouterr().err
