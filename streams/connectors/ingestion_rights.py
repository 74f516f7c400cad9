"""The rights that an ingestion needs in Kafka, and no others. Pure."""

from __future__ import annotations

from penstock.streams.connectors.ingestion import Ingestion
from penstock.streams.runtime.least_rights import Right


def ingestion_rights(ingestion: Ingestion) -> list[Right]:
    """All of them, topics first."""
    return [
        Right("topic", ingestion.topic, ("WRITE",), "writes it"),
        Right("topic", ingestion.positions_topic, ("CREATE", "READ", "WRITE"), "positions of its source"),
        Right("transactional-id", ingestion.transactional_id, ("WRITE",), "writes in transactions"),
    ]
