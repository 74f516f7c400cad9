"""How Spark's jobs reach Kafka."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping

from penstock.state.errors import SettingsError
from penstock.streams.batch.cluster import ClusterAddress
from penstock.streams.spark.read import KafkaSource, java_options

SERVERS_ENV = "PENSTOCK_BOOTSTRAP_SERVERS"


def known_servers() -> str:
    """The servers of ``$PENSTOCK_BOOTSTRAP_SERVERS``, else those of the cluster that ``penstock up`` started, as commands
    find them. Raises ``SettingsError`` if there are neither."""
    from penstock.streams.kafka.embedded import running_bootstrap_servers

    servers = os.environ.get(SERVERS_ENV) or running_bootstrap_servers()
    if servers is None:
        raise SettingsError(
            f"no cluster to talk to. Start one with: penstock up, or name one: Connection('HOST:PORT'), or set {SERVERS_ENV}"
        )
    return servers


@dataclasses.dataclass(frozen=True)
class Connection(ClusterAddress):
    """How to reach Kafka, from the driver and from Spark, which takes its security settings from ``client``.
    ``bootstrap_servers``: if not given, as ``known_servers`` finds them.
    ``spark_options``: options of Spark's connector, which win over those; they may hold secrets and are never shown."""

    bootstrap_servers: str = dataclasses.field(default_factory=known_servers)
    spark_options: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)

    def source(self) -> KafkaSource:
        """Where Spark reads."""
        options = dict(self.spark_options)
        if not any(name.startswith("kafka.") for name in options):
            options |= java_options(self.client)
        return KafkaSource(self.bootstrap_servers, options)
