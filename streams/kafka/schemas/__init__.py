"""Serdes of Avro, JSON Schema and Protobuf, with a schema registry and without one. An edge: asks over HTTP."""
