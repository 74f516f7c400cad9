"""A real Apache Kafka as local processes: for development, for the demo and for the tests of users' topologies."""

from penstock.streams.kafka.embedded.cluster import EmbeddedKafka
from penstock.streams.kafka.embedded.detached import (
    DEFAULT_NAME,
    ClusterStatus,
    running_bootstrap_servers,
    start_detached,
    status_of,
    stop_detached,
)
from penstock.streams.kafka.embedded.properties import ClusterSettings
from penstock.streams.kafka.embedded.state_file import BrokerRecord, ClusterRecord

__all__ = [
    "EmbeddedKafka",
    "DEFAULT_NAME",
    "BrokerRecord",
    "ClusterRecord",
    "ClusterSettings",
    "ClusterStatus",
    "running_bootstrap_servers",
    "start_detached",
    "status_of",
    "stop_detached",
]
