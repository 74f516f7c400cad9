"""The settings and the addresses of every broker of a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # exported there, without the mark that mypy wants
    AdminClient,
    ConfigResource,
    ResourceType,
)

from penstock.streams.kafka.client_config import admin_config
from penstock.streams.kafka.client_log import client_logger
from penstock.streams.kafka.request_retries import answered

_TIMEOUT_S = 30.0


def broker_settings(servers: str, client: Mapping[str, Any]) -> dict[int, dict[str, str]]:
    """Name and value of what each broker says, by the broker's id; secrets are left out."""
    admin = AdminClient(admin_config(servers, client), logger=client_logger())

    def ask(left_s: float) -> dict[int, dict[str, str]]:
        nodes = admin.describe_cluster(request_timeout=left_s).result().nodes
        out: dict[int, dict[str, str]] = {}
        for node in nodes:
            resource = ConfigResource(ResourceType.BROKER, str(node.id))
            entries = admin.describe_configs([resource], request_timeout=left_s)[resource].result()
            out[node.id] = {name: str(entry.value) for name, entry in entries.items() if entry.value is not None}
        return out

    return answered(ask, "reading the settings of the brokers", _TIMEOUT_S)


def broker_addresses(servers: str, client: Mapping[str, Any]) -> dict[int, tuple[str, int]]:
    """Host and port that each broker tells its clients to use, by the broker's id."""
    admin = AdminClient(admin_config(servers, client), logger=client_logger())

    def ask(left_s: float) -> dict[int, tuple[str, int]]:
        nodes = admin.describe_cluster(request_timeout=left_s).result().nodes
        return {node.id: (str(node.host), int(node.port)) for node in nodes}

    return answered(ask, "asking for the brokers", _TIMEOUT_S)
