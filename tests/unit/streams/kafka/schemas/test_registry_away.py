"""A registry that does not answer: nobody's record is blamed for it."""

from __future__ import annotations

import socket

import msgspec
import pytest

import penstock as ps
from penstock import schemas
from penstock.state.log import Record
from penstock.streams.task.error_policies import Policies
from penstock.streams.task.task_options import TaskOptions

SCHEMA = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}'


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


@pytest.mark.parametrize("reads", [True, False])
def test_no_policy_skips_a_record_for_it(reads: bool) -> None:
    registry = schemas.SchemaRegistry(f"http://127.0.0.1:{closed_port()}", {"max.retries": 0})
    orders = registry.avro("orders-value", SCHEMA)
    builder = ps.StreamsBuilder("away", key=str, value=orders if reads else dict)
    builder.stream("orders").to("out", value=dict if reads else orders)
    skipping = TaskOptions(policies=Policies(deserialization="skip", processing="skip"))
    with ps.TopologyTestDriver(builder.build(), options=skipping) as driver:
        with pytest.raises(ps.EnvironmentFault, match="does not answer for subject orders-value"):
            driver.pipe_raw({"orders": [Record(b"k", b"\x00\x00\x00\x00\x01\x02" if reads else b'{"id": 1}', 1)]})
        assert not driver.read_raw("out")


class Order(msgspec.Struct):
    id: int


def test_no_policy_skips_a_record_for_it_in_columns() -> None:
    registry = schemas.SchemaRegistry(f"http://127.0.0.1:{closed_port()}", {"max.retries": 0})
    builder = ps.StreamsBuilder("away", key=str, value=registry.avro("orders-value", SCHEMA, type=Order))
    builder.stream("orders").filter(ps.col("id") > 0).group_by_key().count().to_stream().to("out")
    topology = builder.build()
    assert "orders (Source): columns" in topology.describe(plan=True)
    skipping = TaskOptions(policies=Policies(deserialization="skip", processing="skip"))
    with ps.TopologyTestDriver(topology, options=skipping, columns=True) as driver:
        with pytest.raises(ps.EnvironmentFault, match="does not answer for subject orders-value"):
            driver.pipe_raw({"orders": [Record(b"k", b"\x00\x00\x00\x00\x01\x02", 1)] * 100})
        assert not driver.read_raw("out")


def test_settings_are_refused_at_first_use_and_never_shown() -> None:
    registry = schemas.SchemaRegistry("http://127.0.0.1:1", {"basic.auth.user.info": "me:secret", "no.such.key": 1})
    assert "secret" not in repr(registry)
    serde = registry.avro("s", SCHEMA)
    assert "secret" not in repr(serde)
    with pytest.raises(ps.SettingsError, match=r"no\.such\.key"):
        serde.serialize({"id": 1})


def test_subjects_are_named_by_confluents_strategies() -> None:
    assert schemas.subject_name("orders") == "orders-value"
    assert schemas.subject_name("orders", "key") == "orders-key"
    assert schemas.subject_name("orders", record="shop.Order", strategy="record") == "shop.Order"
    assert schemas.subject_name("orders", record="shop.Order", strategy="topic_record") == "orders-shop.Order"
    with pytest.raises(ps.SettingsError, match="record="):
        schemas.subject_name("orders", strategy="record")
