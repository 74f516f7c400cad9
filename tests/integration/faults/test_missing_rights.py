"""Rights that are revoked while a worker runs end it with the name of the right, wherever the refusal arrives."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

import penstock as ps
from penstock.state.errors import UserError
from penstock.streams.kafka.client_config import producer_config
from penstock.streams.kafka.embedded import EmbeddedKafka
from penstock.streams.kafka.producer import KafkaProducer
from penstock.streams.worker.load_settings import load_settings
from penstock.streams.worker.worker import Worker
from tests.integration.worker.application import Cluster, until

AUTHORIZED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
TIMEOUT_S = 20.0


class Rights:
    """What everyone may do with a topic: all, but for what is denied."""

    def __init__(self, servers: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": servers})

    def deny(self, topic: str, operation: AclOperation) -> None:
        for kind, denied in ((AclPermissionType.ALLOW, AclOperation.ALL), (AclPermissionType.DENY, operation)):
            rule = AclBinding(
                ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*", denied, kind
            )
            for done in self._admin.create_acls([rule]).values():
                done.result()

    def grant(self, topic: str) -> None:
        literal, any_of = ResourcePatternType.LITERAL, (AclOperation.ANY, AclPermissionType.ANY)
        rules = AclBindingFilter(ResourceType.TOPIC, topic, literal, None, None, *any_of)
        for done in self._admin.delete_acls([rules]).values():
            done.result()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with EmbeddedKafka(configs=AUTHORIZED) as kafka:
        yield Cluster(kafka.bootstrap_servers, "rights")


@pytest.fixture(scope="module")
def rights(cluster: Cluster) -> Rights:
    return Rights(cluster.bootstrap_servers)


@pytest.mark.parametrize("denied_first", [True, False], ids=["denied first", "denied last"])
@pytest.mark.parametrize("native", ["auto", "off"])
def test_a_transaction_fails_with_the_right_that_is_missing(
    cluster: Cluster, rights: Rights, native: str, *, denied_first: bool
) -> None:
    name = f"{native}-{denied_first}"
    denied, granted = cluster.create(f"denied-{name}", 1), cluster.create(f"granted-{name}", 1)
    rights.deny(denied, AclOperation.WRITE)
    config = producer_config(cluster.bootstrap_servers, {"linger.ms": 100}, transactional_id=f"rights-{name}")
    producer = KafkaProducer(config, native=native)
    try:
        producer.init_transactions(TIMEOUT_S)
        producer.begin()
        with pytest.raises(UserError, match="grant this principal the topic"):
            for topic in (denied, granted) if denied_first else (granted, denied):
                for _ in range(50):
                    producer.send(topic, [b"k"] * 100, [b"v"] * 100, [1] * 100, partition=0)
            producer.flush(TIMEOUT_S)
        with pytest.raises(UserError, match="grant this principal the topic"):
            producer.commit(TIMEOUT_S)
    finally:
        producer.close()


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
@pytest.mark.parametrize("what", ["output", "changelog"])
def test_a_worker_ends_and_goes_on_once_it_is_granted(
    cluster: Cluster, rights: Rights, tmp_path: Path, guarantee: str, what: str
) -> None:
    name = f"{cluster.name}-{guarantee}-{what}".replace("_", "-")
    source, output = cluster.create(f"in-{name}", 1), cluster.create(f"out-{name}", 1)
    builder = ps.StreamsBuilder("t", key=str, value=str)
    builder.stream(source).group_by_key().count(name="counts").to_stream().to(output, value=int)
    settings = load_settings(
        env={},
        application_id=name,
        bootstrap_servers=cluster.bootstrap_servers,
        state_dir=str(tmp_path),
        guarantee=guarantee,
        commit_interval_ms=100,
    )

    def counts() -> list[int]:
        return [int.from_bytes(w.value or b"", "big") for w in cluster.read(output, 1)]

    worker = Worker(builder.build(), settings).start()
    cluster.write(source, [b"v"] * 5, keys=[b"k"] * 5, partition=0)
    until("five are counted", lambda: counts()[-1:] == [5])
    denied = output if what == "output" else f"{name}-counts-changelog"
    rights.deny(denied, AclOperation.WRITE)
    cluster.write(source, [b"v"] * 5, keys=[b"k"] * 5, partition=0)
    until("the worker ends", lambda: not worker.running)
    with pytest.raises(UserError, match="grant this principal the topic"):
        worker.stop()
    rights.grant(denied)
    worker = Worker(builder.build(), settings).start()
    until("ten are counted", lambda: counts()[-1:] == [10])
    worker.stop()
    if guarantee == "exactly_once":
        assert counts() == list(range(1, 11))
