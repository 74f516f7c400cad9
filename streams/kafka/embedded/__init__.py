"""A real Apache Kafka as local processes: for development, for the demo and for the tests of users'
topologies."""

from penstock.streams.kafka.embedded.cluster import EmbeddedKafka

__all__ = ["EmbeddedKafka"]
