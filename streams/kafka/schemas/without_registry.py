"""Serdes of one schema each, whose bytes are the bare encoding: for topics and stores that no registry describes.

Bytes do not say by which schema they were written, so a serde's name carries its schema: a store whose schema was changed
is refused at the start as one whose serde was changed, and is not read wrongly.
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.state.errors import SerdeError, SettingsError
from penstock.state.serdes.serde import Serde
from penstock.streams.kafka.schemas.libraries import needed
from penstock.streams.kafka.schemas.typed_values import AVRO_KINDS, TypedValues
from penstock.topologies.columnar.avro_columns import AvroCoder, AvroForm


def avro(schema: str | Mapping[str, Any], *, type: Any = None) -> Serde[Any]:
    """A serde of Avro's binary encoding by this schema (JSON text, or as dicts). Values are dicts, or instances of
    ``type``. Raises ``SettingsError`` if the schema is not one."""
    form = _Avro(schema if isinstance(schema, str) else json.dumps(schema), TypedValues(type, AVRO_KINDS))
    parsed, fingerprint = _avro_of(form.schema)
    name = parsed.get("name", parsed["type"]) if isinstance(parsed, dict) else "union"
    return _serde_of(f"avro({name}:{fingerprint})", form, type)


def json_schema(schema: str | Mapping[str, Any], *, type: Any = None) -> Serde[Any]:
    """A serde of JSON that is held to this JSON Schema when it is read and when it is written. Values are what JSON has, or
    instances of ``type``. Raises ``SettingsError`` if the schema is not one."""
    form = _Json(schema if isinstance(schema, str) else json.dumps(schema), TypedValues(type))
    _json_of(form.schema)
    digest = hashlib.sha256(form.schema.encode()).hexdigest()[:16]
    return _serde_of(f"json_schema({digest})", form, type)


def protobuf(message: type[Any]) -> Serde[Any]:
    """A serde of a class that ``protoc`` has generated. Equal messages have equal bytes (maps are written in order)."""
    name = getattr(getattr(message, "DESCRIPTOR", None), "full_name", None)
    if name is None:
        raise SettingsError(f"{message!r} is not a class of messages; give one that protoc has generated")
    form = _Protobuf(message)
    return _serde_of(f"protobuf({name})", form, None)


@dataclass(frozen=True)
class _Avro(AvroCoder):
    schema: str
    values: TypedValues

    def avro_form(self) -> AvroForm | None:
        def schema(_: int) -> Any:
            return _avro_of(self.schema)[0]

        return AvroForm(self.values.type, None, False, schema, schema)

    def serialize(self, value: Any) -> bytes:
        out = io.BytesIO()
        parsed, _ = _avro_of(self.schema)
        needed("fastavro").schemaless_writer(out, parsed, self.values.write(value), strict=True)
        return out.getvalue()

    def deserialize(self, data: bytes) -> Any:
        source = io.BytesIO(data)
        parsed, _ = _avro_of(self.schema)
        value = needed("fastavro").schemaless_reader(source, parsed, None)
        if source.tell() < len(data):
            raise SerdeError(
                f"{len(data) - source.tell()} bytes are left after the value; it was written by another schema, or is "
                "framed by a schema registry (SchemaRegistry(…).avro)"
            )
        return self.values.read(value)


@dataclass(frozen=True)
class _Json:
    schema: str
    values: TypedValues

    def serialize(self, value: Any) -> bytes:
        plain = self.values.write(value)
        _json_of(self.schema)(plain)
        return json.dumps(plain, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()

    def deserialize(self, data: bytes) -> Any:
        value = json.loads(data)
        _json_of(self.schema)(value)
        return self.values.read(value)


@dataclass(frozen=True)
class _Protobuf:
    message: type[Any]

    def serialize(self, value: Any) -> bytes:
        if not isinstance(value, self.message):
            raise TypeError(f"expected {self.message.__name__}, got {type(value).__name__}")
        data: bytes = value.SerializeToString(deterministic=True)
        return data

    def deserialize(self, data: bytes) -> Any:
        value = self.message()
        value.ParseFromString(data)
        return value


@functools.lru_cache(maxsize=10_000)
def _serde_of(name: str, form: _Avro | _Json | _Protobuf, type: Any) -> Serde[Any]:
    """One serde for equal forms, so that sources of equal serdes are equal."""
    return Serde(name, form.serialize, form.deserialize, declared=type)


@functools.lru_cache(maxsize=1_000)
def _avro_of(schema: str) -> tuple[Any, str]:
    """The parsed schema and its fingerprint (CRC-64 of its canonical form)."""
    fastavro = needed("fastavro")
    try:
        parsed = fastavro.parse_schema(json.loads(schema))
        canonical = needed("fastavro.schema").to_parsing_canonical_form(parsed)
        return parsed, needed("fastavro.schema").fingerprint(canonical, "CRC-64-AVRO")
    except Exception as exc:
        raise SettingsError(f"this is not an Avro schema ({exc}): {schema:.200}") from exc


@functools.lru_cache(maxsize=1_000)
def _json_of(schema: str) -> Callable[[Any], None]:
    """A function that raises if a value does not fit the schema."""
    validators = needed("jsonschema.validators")
    try:
        parsed = json.loads(schema)
        kind = validators.validator_for(parsed)
        kind.check_schema(parsed)
    except Exception as exc:
        raise SettingsError(f"this is not a JSON Schema ({exc}): {schema:.200}") from exc
    validator = kind(parsed, format_checker=kind.FORMAT_CHECKER)

    def check(value: Any) -> None:
        error = next(iter(validator.iter_errors(value)), None)
        if error is not None:
            raise SerdeError(f"{error.json_path}: {error.message:.300}")

    return check
