"""How Spark's jobs reach Kafka."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from penstock.streams.batch.cluster import ClusterAddress
from penstock.streams.spark.read import KafkaSource, java_options


@dataclasses.dataclass(frozen=True)
class Connection(ClusterAddress):
    """How to reach Kafka, from the driver and from Spark, which takes its security settings from ``client``.
    ``spark_options``: options of Spark's connector, which win over those; they may hold secrets and are never shown."""

    spark_options: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)

    def source(self) -> KafkaSource:
        """Where Spark reads."""
        options = dict(self.spark_options)
        if not any(name.startswith("kafka.") for name in options):
            options |= java_options(self.client)
        return KafkaSource(self.bootstrap_servers, options)
