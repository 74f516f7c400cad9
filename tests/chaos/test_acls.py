"""``penstock acls`` against a broker that asks for rights: a worker runs with those that it lists, and no others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from penstock.streams.cli.main import main
from penstock.streams.kafka.topics import Topics
from penstock.streams.topology_loading import load_topology
from penstock.streams.worker.load_settings import load_settings
from penstock.streams.worker.worker import Worker
from tests.chaos.cluster import ChaosCluster
from tests.integration.worker.application import until

LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "shop",
    "sasl.password": "opensesame",
}
SECURED = {
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.client.plain.sasl.jaas.config": (
        'org.apache.kafka.common.security.plain.PlainLoginModule required user_shop="opensesame";'
    ),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
pytestmark = pytest.mark.long
TOPOLOGY = """
import penstock as ps

builder = ps.StreamsBuilder(key=str, value=str)
users = builder.table("users")
joined = builder.stream("orders").join(users, lambda order, user: user)
by_city = joined.group_by(lambda key, city: city)
by_city.count(name="totals").to_stream().to("totals", value=int)
windows = by_city.windowed_by(ps.tumbling("1m", grace=0)).count(name="minutes")
windows.to_stream(lambda window, count: window.key, key=str).to("minutes", value=int)
topology = builder.build()
"""


@pytest.fixture(scope="module")
def secured() -> Iterator[ChaosCluster]:
    """One broker whose listener for clients asks who comes, and what they may."""
    with ChaosCluster(1, SECURED, client_protocol="SASL_PLAINTEXT") as cluster:
        topics = Topics(cluster.bootstrap_servers, {})
        for name in ("users", "orders", "totals", "minutes"):
            topics.create(name, partitions=1, replication_factor=1, configs={})
        yield cluster


@pytest.fixture
def module(tmp_path: Path) -> Path:
    """The file with the topology."""
    (tmp_path / "shop.py").write_text(TOPOLOGY)
    return tmp_path / "shop.py"


def rules(module: Path, capsys: pytest.CaptureFixture[str]) -> list[AclBinding]:
    """What the command lists, as rules of Kafka."""
    assert main(["acls", str(module), "--application-id", "shop", "--guarantee", "exactly_once", "--json"]) == 0
    out = []
    for right in orjson.loads(capsys.readouterr().out):
        kind = ResourceType[right["kind"].upper().replace("-", "_")]
        pattern = ResourcePatternType.PREFIXED if right["prefixed"] else ResourcePatternType.LITERAL
        for operation in right["operations"]:
            asked, allow = AclOperation[operation], AclPermissionType.ALLOW
            out.append(AclBinding(kind, right["name"], pattern, right["principal"], "*", asked, allow))
    return out


def test_worker_runs_with_the_listed_rights_and_the_doctor_names_one_that_is_missing(
    secured: ChaosCluster, module: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    admin = AdminClient({"bootstrap.servers": secured.bootstrap_servers})
    needed = rules(module, capsys)
    for granted in admin.create_acls(needed).values():
        granted.result()
    producer = Producer({"bootstrap.servers": secured.bootstrap_servers})
    producer.produce("users", b"Oslo", b"ann", timestamp=1_000)
    for _ in range(3):
        producer.produce("orders", b"1", b"ann", timestamp=2_000)
    assert producer.flush(30) == 0
    settings = load_settings(
        env={},
        application_id="shop",
        bootstrap_servers=secured.clients,
        guarantee="exactly_once",
        state_dir=str(tmp_path / "state"),
        common=LOGIN,
    )
    worker = Worker(load_topology(str(module)), settings).start()
    try:
        topics = Topics(secured.bootstrap_servers, {})
        for output in ("totals", "minutes"):
            until(output, lambda output=output: topics.describe(output).partitions[0].end_offset >= 3)
    finally:
        worker.stop()

    config = tmp_path / "shop.toml"
    lines = [f'"{name}" = "{value}"' for name, value in LOGIN.items()]
    config.write_text("\n".join(['[penstock]\nguarantee = "exactly_once"\n[penstock.common]', *lines]))
    doctor = ["doctor", str(module), "--config", str(config), "--application-id", "shop", "--json"]

    def said() -> list[str]:
        main([*doctor, "--bootstrap-server", secured.clients])
        found = orjson.loads(capsys.readouterr().out)
        return [f["seen"] for f in found if f["what"] == "rights"]

    granted = len({rule.name for rule in needed})
    assert said() == [f"{granted - 1} of {granted} asked for, all granted", "brokers do not say: shop-*"]
    taken = [
        AclBindingFilter(
            r.restype, r.name, r.resource_pattern_type, r.principal, r.host, r.operation, r.permission_type
        )
        for r in needed
        if (r.name, r.operation) == ("totals", AclOperation.WRITE)
    ]
    for done in admin.delete_acls(taken).values():
        done.result()
    until("the broker knows", lambda: said()[0] == "topic totals: no WRITE")
