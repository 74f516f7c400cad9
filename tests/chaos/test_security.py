"""Rights that are revoked and passwords that are rotated under running workers, on a listener that asks for both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.chaos.cluster import ChaosCluster
from tests.chaos.log_reading import LogReader
from tests.chaos.scene import Scene
from tests.chaos.workers import USER_ERROR, until

pytestmark = pytest.mark.long

USER = "worker"
SECURED = {
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    "listener.name.client.scram-sha-256.sasl.jaas.config": (
        "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    ),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
OLD, NEW = "opensesame-1", "opensesame-2"


class Secured:
    """The cluster's users and rights. Whoever comes by the brokers' own listener may do everything."""

    def __init__(self, cluster: ChaosCluster) -> None:
        self.cluster = cluster
        self.admin = LogReader(cluster.bootstrap_servers).admin

    def set_password(self, password: str) -> None:
        """The worker's, from the next connection on."""
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        change = UserScramCredentialUpsertion(USER, info, password.encode())
        for done in self.admin.alter_user_scram_credentials([change]).values():
            done.result()

    def grant(self, prefix: str) -> None:
        """Everything on topics, groups and transactional ids whose names begin so."""
        for kind in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID):
            self._add(self._rule(kind, prefix, ResourcePatternType.PREFIXED, AclOperation.ALL, AclPermissionType.ALLOW))

    def deny(self, topic: str, operation: AclOperation) -> AclBinding:
        """One operation on one topic; returns what ``allow`` takes."""
        rule = self._rule(ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, operation, AclPermissionType.DENY)
        self._add(rule)
        return rule

    def allow(self, rule: AclBinding) -> None:
        """Take the rule back."""
        same = AclBindingFilter(
            rule.restype,
            rule.name,
            rule.resource_pattern_type,
            rule.principal,
            rule.host,
            rule.operation,
            rule.permission_type,
        )
        for done in self.admin.delete_acls([same]).values():
            done.result()

    def _add(self, rule: AclBinding) -> None:
        for done in self.admin.create_acls([rule]).values():
            done.result()

    def _rule(self, kind: Any, name: str, pattern: Any, operation: Any, permission: Any) -> AclBinding:
        return AclBinding(kind, name, pattern, f"User:{USER}", "*", operation, permission)


@pytest.fixture(scope="module")
def secured() -> Iterator[Secured]:
    """One broker that asks who comes and what they may."""
    with ChaosCluster(1, SECURED, client_protocol="SASL_PLAINTEXT") as cluster:
        yield Secured(cluster)


@pytest.fixture
def scene(secured: Secured, tmp_path: Path) -> Iterator[Scene]:
    """One worker at work, with a password and rights."""
    secured.set_password(OLD)
    login = {
        "common__security_protocol": "SASL_PLAINTEXT",
        "common__sasl_mechanism": "SCRAM-SHA-256",
        "common__sasl_username": USER,
    }
    with Scene(secured.cluster, "secured", tmp_path, replicas=1, min_insync_replicas="1", **login) as made:
        secured.grant(made.name)
        made.worker("a", common__sasl_password=OLD)
        made.await_both()
        yield made


@pytest.mark.long
@pytest.mark.parametrize(
    ("topic", "operation"),
    [("orders", AclOperation.READ), ("counts", AclOperation.WRITE), ("per-user-changelog", AclOperation.WRITE)],
)
def test_revoked_right_ends_the_worker_with_its_name(
    secured: Secured, scene: Scene, topic: str, operation: AclOperation
) -> None:
    """O6: nothing is committed without it; when it is granted again, a new start goes on."""
    (worker,) = scene.workers
    rule = secured.deny(scene.topic(topic), operation)
    scene.writer.write(50)
    until("the worker ends", lambda: not worker.alive, 240)
    secured.allow(rule)
    assert worker.status == USER_ERROR, worker.said()
    assert "grant this principal the topic" in worker.said()
    worker.start()
    scene.writer.write(50)
    scene.converge()
    scene.assert_right()


@pytest.mark.long
def test_rotated_password_is_said_and_the_new_one_goes_on(secured: Secured, scene: Scene) -> None:
    """O6: connections that are open live on; the next one is refused."""
    (worker,) = scene.workers
    secured.set_password(NEW)
    scene.writer.write(50)
    scene.converge()
    secured.cluster.network.reset("a")
    until("the worker says so", lambda: "SASL" in worker.said(), 240)
    said = worker.said()
    assert OLD not in said
    worker.kill()
    secured.set_password(OLD)  # as if it had been started with the new one
    worker.start()
    scene.writer.write(50)
    scene.converge()
    scene.assert_right()
