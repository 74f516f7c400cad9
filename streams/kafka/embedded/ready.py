"""Ask a broker whether it serves. The only place in this package that talks to Kafka."""

from __future__ import annotations

import socket
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from penstock.streams.kafka.client_log import client_logger

_CONNECT_TIMEOUT_S = 0.5
_METADATA_TIMEOUT_S = 5.0


def brokers_serving(bootstrap_server: str) -> set[int]:
    """Return the node ids in this broker's metadata; empty while it does not answer."""
    host, _, port = bootstrap_server.rpartition(":")
    try:
        # librdkafka logs every refused connection; a bare connection attempt costs nothing and logs nothing.
        socket.create_connection((host, int(port)), timeout=_CONNECT_TIMEOUT_S).close()
    except OSError:
        return set()
    config: dict[str, Any] = {"bootstrap.servers": bootstrap_server, "log_level": 2, "error_cb": _ignore_error}
    client = AdminClient(config, logger=client_logger())
    try:
        return set(client.list_topics(timeout=_METADATA_TIMEOUT_S).brokers)
    except KafkaException:
        return set()


def _ignore_error(error: object) -> None:
    """Ignore errors: a broker may still be starting, and the caller has its own timeout."""
