"""Serdes of a real schema registry: Confluent's clients read what they write, versions, refusals, and a worker on Kafka."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import ConfigCompatibilityLevel, Schema, SchemaRegistryClient, ServerConfig
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

import penstock as ps
from penstock import schemas
from penstock.state.log import Record
from penstock.streams.task.error_policies import Policies
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.worker.settings import WorkerSettings
from penstock.streams.worker.worker import Worker
from tests.integration.schemas.registry import running
from tests.integration.worker.application import UNDISTURBED, Cluster, until
from tests.unit.streams.kafka.schemas.messages import order_message

FIRST = """{"type": "record", "name": "Order", "namespace": "shop", "fields": [
    {"name": "shop", "type": "string"}, {"name": "cents", "type": "long"}]}"""
SECOND = """{"type": "record", "name": "Order", "namespace": "shop", "fields": [
    {"name": "shop", "type": "string"}, {"name": "cents", "type": "long"},
    {"name": "currency", "type": "string", "default": "EUR"}]}"""
BREAKS = """{"type": "record", "name": "Order", "namespace": "shop", "fields": [
    {"name": "shop", "type": "string"}, {"name": "cents", "type": "string"}]}"""
SALES = """{"type": "record", "name": "Sales", "namespace": "shop", "fields": [
    {"name": "orders", "type": "long"}, {"name": "cents", "type": "long"}]}"""


@dataclasses.dataclass(frozen=True)
class Order:
    shop: str
    cents: int
    currency: str = "none"


@dataclasses.dataclass(frozen=True)
class Sales:
    orders: int
    cents: int


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(tmp_path_factory.mktemp("registry")) as url:
        SchemaRegistryClient({"url": url}).set_config(
            config=ServerConfig(compatibility=ConfigCompatibilityLevel.BACKWARD)
        )
        yield url


def test_confluents_clients_and_we_read_each_other(url: str) -> None:
    client, context = SchemaRegistryClient({"url": url}), SerializationContext("both", MessageField.VALUE)
    serde = schemas.SchemaRegistry(url).avro("both-value", FIRST)
    value = {"shop": "s", "cents": 7}
    theirs: Any = AvroSerializer(client, FIRST)(value, context)
    assert serde.serialize(value) == theirs
    assert serde.deserialize(theirs) == value
    assert AvroDeserializer(client)(serde.serialize(value), context) == value


def test_old_bytes_are_read_by_a_newer_schema(url: str) -> None:
    registry = schemas.SchemaRegistry(url)
    old = registry.avro("versions-value", FIRST).serialize({"shop": "s", "cents": 7})
    new = registry.avro("versions-value", SECOND, type=Order)
    written = new.serialize(Order("t", 8, "USD"))
    assert [v.version for v in map(SchemaRegistryClient({"url": url}).get_version, ["versions-value"] * 2, [1, 2])] == [
        1,
        2,
    ]
    assert new.deserialize(old) == Order("s", 7, "EUR")
    assert new.deserialize(written) == Order("t", 8, "USD")
    assert registry.avro("versions-value").deserialize(old) == {"shop": "s", "cents": 7}
    assert registry.avro("versions-value", type=Order).serialize(Order("t", 8, "USD")) == written
    assert pickle.loads(pickle.dumps(new)).deserialize(old) == Order("s", 7, "EUR")


@pytest.mark.parametrize("schema", [SECOND, None])
def test_columns_of_mixed_versions_are_what_rows_give(url: str, schema: str | None) -> None:
    """Records of two versions, of a schema that nobody knows, and damaged ones, in one batch."""
    registry, topic = schemas.SchemaRegistry(url), f"mixed-{schema is None}"
    old, new = (registry.avro(f"{topic}-value", text) for text in (FIRST, SECOND))
    values = [
        old.serialize({"shop": f"s{n % 3}", "cents": n})
        if n % 2
        else new.serialize({"shop": f"s{n % 3}", "cents": n, "currency": "USD"})
        for n in range(200)
    ]
    values[50], values[60], values[70] = b"\x00\x00\x0f\xff\xff\x02", values[60][:-1], b"not framed"
    builder = ps.StreamsBuilder("mixed", key=str)
    orders = builder.stream(topic, value=registry.avro(f"{topic}-value", schema, type=Order))
    orders.filter((ps.col("cents") > 20) & (ps.col("currency") == "USD")).select(ps.col("shop"), ps.col("cents")).to(
        "large"
    )
    orders.filter(ps.col("currency") != "USD").group_by_key().count(name="others").to_stream().to("counts")
    topology = builder.build()
    assert f"{topic} (Source): columns; decodes" in topology.describe(plan=True)
    found = []
    for columns in (False, True):
        options = TaskOptions(policies=Policies(deserialization="dead_letter", dead_letter_topic="letters"))
        with ps.TopologyTestDriver(topology, options=options, columns=columns) as driver:
            driver.pipe_raw({topic: [Record(b"k%d" % (n % 5), data, n) for n, data in enumerate(values)]})
            letters = [(letter.key, letter.value) for letter in driver.read_raw("letters")]
            found.append((driver.read_raw("large"), driver.read_raw("counts"), letters, driver.changelogs))
    assert [len(part) for part in found[0][:3]] == [86, 100, 3]
    assert found[0] == found[1]


@pytest.mark.parametrize("schema", [SECOND, None])
def test_columns_and_values_are_written_as_confluents_client_does(url: str, schema: str | None) -> None:
    """Records that are passed on, made by expressions and made by functions, under the number of their schema."""
    registry, topic = schemas.SchemaRegistry(url), f"out-{schema is None}"
    client = SchemaRegistryClient({"url": url})
    newest = client.register_schema(f"{topic}-value", Schema(SECOND, "AVRO"))
    old = registry.avro(f"{topic}-in", FIRST)
    values = [old.serialize({"shop": f"s{n % 3}", "cents": n}) for n in range(200)]
    typed = registry.avro(f"{topic}-value", schema, type=Order)
    builder = ps.StreamsBuilder("writes", key=str)
    reading = registry.avro(f"{topic}-value", SECOND, type=Order)
    builder.stream("a", value=reading).filter(ps.col("cents") >= 0).to("passed", value=typed)
    builder.stream("b", value=reading).map_values(lambda order: Order(order.shop, -order.cents, "USD")).to(
        "mapped", value=typed
    )
    untyped = registry.avro(f"{topic}-value", schema)
    builder.stream("c", value=reading).select(ps.col("shop"), ps.col("cents"), currency=ps.col("shop")).to(
        "selected", value=untyped
    )
    topology = builder.build()
    assert topology.describe(plan=True).count("(Sink): columns") == 3
    found = []
    for columns in (False, True):
        with ps.TopologyTestDriver(topology, columns=columns) as driver:
            records = [Record(b"k%d" % (n % 5), data, n) for n, data in enumerate(values)]
            driver.pipe_raw(dict.fromkeys(("a", "b", "c"), records))
            found.append([driver.read_raw(name) for name in ("passed", "mapped", "selected")])
    assert found[0] == found[1]
    encode = AvroSerializer(client, SECOND, conf={"subject.name.strategy": lambda ctx, record: f"{topic}-value"})
    context = SerializationContext(topic, MessageField.VALUE)
    wanted = [
        [encode({"shop": f"s{n % 3}", "cents": cents, "currency": currency}, context) for n, cents, currency in rows]
        for rows in (
            [(n, n, "EUR") for n in range(200)],
            [(n, -n, "USD") for n in range(200)],
            [(n, n, f"s{n % 3}") for n in range(200)],
        )
    ]
    assert [[record.value for record in part] for part in found[1]] == wanted
    assert {int.from_bytes(data[1:5]) for data in wanted[0] if data} == {newest}


def test_what_the_registry_refuses_is_named(url: str) -> None:
    registry = schemas.SchemaRegistry(url)
    registry.avro("refused-value", FIRST).serialize({"shop": "s", "cents": 7})
    with pytest.raises(ps.IncompatibleError, match=r"subject refused-value.* from version 1, the latest"):
        registry.avro("refused-value", BREAKS).serialize({"shop": "s", "cents": "7"})
    with pytest.raises(ps.SettingsError, match="subject unknown-value"):
        registry.avro("unknown-value").serialize({})
    with pytest.raises(ps.SettingsError, match="no such schema for subject refused-value"):
        closed = registry.avro("refused-value", SECOND, options={"auto.register.schemas": False})
        closed.serialize({"shop": "s", "cents": 7, "currency": "EUR"})
    with pytest.raises(ps.SerdeError, match=r"a schema that the registry at .* does not have"):
        registry.avro("refused-value").deserialize(b"\x00\x00\x0f\xff\xff\x02")
    with pytest.raises(ps.SerdeError, match="reading a value of subject refused-value"):
        registry.avro("refused-value").deserialize(b"not framed")


def test_json_schema_and_protobuf(url: str) -> None:
    registry = schemas.SchemaRegistry(url)
    schema = '{"type": "object", "title": "Order", "properties": {"cents": {"type": "integer"}}, "required": ["cents"]}'
    as_json = registry.json_schema("json-value", schema)
    assert as_json.deserialize(as_json.serialize({"cents": 7})) == {"cents": 7}
    with pytest.raises(ps.SerdeError, match="'x' is not of type 'integer'"):
        as_json.serialize({"cents": "x"})
    message = order_message()
    as_protobuf = registry.protobuf("protobuf-value", message)
    assert as_protobuf.deserialize(as_protobuf.serialize(message(id=3, note="n"))) == message(id=3, note="n")


def test_a_worker_reads_keeps_and_writes_by_schemas(url: str, kafka: str, tmp_path: Path) -> None:
    """Records of two versions in, sums kept in a store whose changelog restores them, sums out."""
    cluster, registry = Cluster(kafka, "schemas"), schemas.SchemaRegistry(url)
    source, out = cluster.create("orders"), cluster.create("sales")
    client = SchemaRegistryClient({"url": url})
    context = SerializationContext(source, MessageField.VALUE)

    def write(schema: str, values: list[dict[str, Any]]) -> None:
        encode = AvroSerializer(client, schema)
        data = [encode(value, context) for value in values]
        cluster.write(source, data, keys=[value["shop"].encode() for value in values])

    builder = ps.StreamsBuilder("schemas", key=str)
    orders = builder.stream(source, value=registry.avro(f"{source}-value", SECOND, type=Order))
    sales = registry.avro(f"{out}-value", SALES, type=Sales)
    sums = orders.group_by_key().aggregate(
        lambda: Sales(0, 0), lambda _, order, sums: Sales(sums.orders + 1, sums.cents + order.cents), value=sales
    )
    sums.to_stream().to(out)
    topology = builder.build()

    def run(state: str, count: int) -> None:
        settings = WorkerSettings(
            application_id=cluster.name,
            bootstrap_servers=kafka,
            state_dir=tmp_path / state,
            guarantee="exactly_once",
            commit_interval_ms=50,
            **UNDISTURBED,
        )
        worker = Worker(topology, settings).start()
        try:
            until("all is written", lambda: not worker.running or len(cluster.read(out)) == count)
        finally:
            worker.stop()

    write(FIRST, [{"shop": f"s{n % 3}", "cents": n} for n in range(30)])
    run("first", 30)
    write(SECOND, [{"shop": f"s{n % 3}", "cents": n, "currency": "USD"} for n in range(30, 60)])
    run("fresh", 60)  # restores from the changelog
    read = AvroDeserializer(client)
    last = {w.key: read(w.value, SerializationContext(out, MessageField.VALUE)) for w in cluster.read(out)}
    assert last == {b"s%d" % shop: {"orders": 20, "cents": sum(range(shop, 60, 3))} for shop in range(3)}
    assert client.get_latest_version(f"{source}-value").version == 2


def test_the_registrys_own_schema_is_used_as_it_is(url: str) -> None:
    """A schema that somebody else has registered, and a serde that may not."""
    SchemaRegistryClient({"url": url}).register_schema("owned-value", Schema(FIRST, "AVRO"))
    serde = schemas.SchemaRegistry(url).avro("owned-value", options={"auto.register.schemas": False})
    assert serde.deserialize(serde.serialize({"shop": "s", "cents": 7})) == {"shop": "s", "cents": 7}
