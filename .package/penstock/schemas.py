"""Serdes of Avro, JSON Schema and Protobuf. They need the extra ``schemas``.

``SchemaRegistry(url)`` has those whose schemas a registry with Confluent's API keeps; ``avro``, ``json_schema`` and
``protobuf`` are those of one schema and bare bytes::

    registry = schemas.SchemaRegistry("http://127.0.0.1:8081")
    orders = builder.stream("orders", key=str, value=registry.avro("orders-value", type=Order))
"""

from __future__ import annotations

from penstock.streams.kafka.schemas.schema_registry import SchemaRegistry, subject_name
from penstock.streams.kafka.schemas.without_registry import avro, json_schema, protobuf

__all__ = ["SchemaRegistry", "avro", "json_schema", "protobuf", "subject_name"]
