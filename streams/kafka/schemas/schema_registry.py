"""Serdes whose schemas are kept by a schema registry with Confluent's API, by confluent-kafka's own clients.

Bytes begin with a zero and the schema's number, so what was written by any version of a schema is read by the version that
wrote it. A serde belongs to one subject, which is given by name (``subject_name`` makes the usual ones): a store's
changelog, the repartition topic before it and the topic that it came from may share it.

A registry that does not answer is not a record's fault: ``EnvironmentFault`` passes every policy and ends the worker, which
its supervisor starts again. A serde holds no connection, so it can be pickled; each process opens its own at first use.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from penstock.state.errors import SerdeError, SettingsError
from penstock.state.serdes.serde import Serde
from penstock.streams.kafka.schemas.libraries import needed
from penstock.streams.kafka.schemas.registry_errors import translated
from penstock.streams.kafka.schemas.typed_values import AVRO_KINDS, TypedValues
from penstock.topologies.columnar.avro_columns import AvroCoder, AvroForm

Options: TypeAlias = Mapping[str, Any]
SubjectStrategy: TypeAlias = Literal["topic", "record", "topic_record"]
_Form: TypeAlias = Literal["avro", "json_schema", "protobuf"]
_CLIENTS = "confluent_kafka.schema_registry"
_PLAIN_OPTIONS = frozenset(("auto.register.schemas", "normalize.schemas", "use.latest.version", "use.schema.id"))
"""Options that only choose the schema by which a value is written."""


def subject_name(
    topic: str,
    part: Literal["key", "value"] = "value",
    *,
    record: str | None = None,
    strategy: SubjectStrategy = "topic",
) -> str:
    """The subject of a topic's keys or values by one of Confluent's strategies; ``record`` is the schema's full name, which
    two of them need."""
    if strategy == "topic":
        return f"{topic}-{part}"
    if record is None:
        raise SettingsError(f"strategy {strategy!r} names subjects by the schema's full name; give it: record=…")
    return record if strategy == "record" else f"{topic}-{record}"


@dataclass(frozen=True)
class SchemaRegistry:
    """A schema registry at this URL. ``config`` has keys of confluent-kafka's ``SchemaRegistryClient``, such as
    ``{"basic.auth.user.info": "user:password"}``.

    ``options`` of a serde are keys of confluent-kafka's serializer of that form, such as
    ``{"auto.register.schemas": False}``. Without a schema, a serde writes by the subject's latest version.

    Serdes raise ``SerdeError`` for a value or bytes that do not fit, ``IncompatibleError`` if the registry refuses the
    schema for the subject, ``SettingsError`` for a subject or rights that are missing, and ``EnvironmentFault`` if it does
    not answer.
    """

    url: str
    config: Options = field(default_factory=dict, repr=False, hash=False)

    def avro(
        self, subject: str, schema: str | None = None, *, type: Any = None, options: Options | None = None
    ) -> Serde[Any]:
        """A serde of Avro: values are dicts, or instances of ``type``. A given schema is also the one that values are read
        as, by Avro's rules of resolution, whichever version wrote them."""
        return self._serde("avro", subject, schema, TypedValues(type, AVRO_KINDS), options)

    def json_schema(
        self, subject: str, schema: str | None = None, *, type: Any = None, options: Options | None = None
    ) -> Serde[Any]:
        """A serde of JSON held to the schema: values are what JSON has, or instances of ``type``."""
        return self._serde("json_schema", subject, schema, TypedValues(type), options)

    def protobuf(self, subject: str, message: type[Any], *, options: Options | None = None) -> Serde[Any]:
        """A serde of a class that ``protoc`` has generated."""
        if getattr(message, "DESCRIPTOR", None) is None:
            raise SettingsError(f"{message!r} is not a class of messages; give one that protoc has generated")
        return self._serde("protobuf", subject, message, TypedValues(), options)

    def _serde(
        self, form: _Form, subject: str, schema: Any, values: TypedValues, options: Options | None
    ) -> Serde[Any]:
        needed("confluent_kafka.schema_registry")
        known = dict(options or {})
        if schema is None:
            known = {"auto.register.schemas": False, "use.latest.version": True, **known}
        return _serde_of(_SerializerConfig(self.url, _items(self.config), form, subject, schema, values, _items(known)))


def _items(options: Options) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(options.items()))


@dataclass(frozen=True)
class _SerializerConfig(AvroCoder):
    """The values from which a process opens its serializer and deserializer, once for equal ones."""

    url: str
    config: tuple[tuple[str, Any], ...] = field(repr=False)
    form: _Form
    subject: str
    schema: Any
    values: TypedValues
    options: tuple[tuple[str, Any], ...]

    def serialize(self, value: Any) -> bytes:
        write, _ = _opened(self)
        try:
            data: bytes | None = write(self.values.write(value), _context(self.subject))
        except Exception as exc:
            raise translated(exc, self.url, self.subject, "writing", lambda: _latest_version(self)) from exc
        if data is None:
            raise SerdeError(f"subject {self.subject} has no form of {value!r:.100}")
        return data

    def deserialize(self, data: bytes) -> Any:
        _, read = _opened(self)
        try:
            value = read(data, _context(self.subject))
        except Exception as exc:
            raise translated(exc, self.url, self.subject, "reading") from exc
        return self.values.read(value)

    def avro_form(self) -> AvroForm | None:
        if self.form != "avro" or "use.latest.with.metadata" in dict(self.options):
            return None
        try:
            reader = None if self.schema is None else _parsed(self.schema)
        except Exception:  # raised again by the deserializer
            return None
        plain = dict(self.options).keys() <= _PLAIN_OPTIONS
        return AvroForm(self.values.type, reader, True, self._written_by, self._writes_by if plain else None)

    def _writes_by(self, number: int) -> Any:
        """The schema by which the serializer has written a value with this number."""
        known = dict(self.options)
        given = self.schema is not None and not known.get("use.latest.version") and known.get("use.schema.id") is None
        return _parsed(self.schema) if given else self._written_by(number)

    def _written_by(self, number: int) -> Any:
        """The schema of this number; ``None`` if it names others, or has rules that the deserializer obeys."""
        found = _client(self.url, self.config).get_schema(number, self.subject)
        if found.schema_type != "AVRO" or found.references or found.rule_set is not None:
            return None
        return _parsed(found.schema_str)


def _parsed(schema: str) -> Any:
    return needed("fastavro").parse_schema(json.loads(schema))


def _latest_version(coder: _SerializerConfig) -> int | None:
    """The subject's latest version; ``None`` if the registry does not say."""
    try:
        version: int | None = _client(coder.url, coder.config).get_latest_version(coder.subject).version
    except Exception:  # asked for a message, about a fault that is raised
        return None
    return version


@functools.lru_cache(maxsize=10_000)
def _serde_of(coder: _SerializerConfig) -> Serde[Any]:
    """One serde for equal coders, so that sources of equal serdes are equal."""
    return Serde(f"{coder.form}({coder.subject})", coder.serialize, coder.deserialize, declared=coder.values.type)


def _context(subject: str) -> Any:
    return needed("confluent_kafka.serialization").SerializationContext(subject, "value")


@functools.lru_cache(maxsize=1_000)
def _client(url: str, config: tuple[tuple[str, Any], ...]) -> Any:
    try:
        return needed(_CLIENTS).SchemaRegistryClient({"url": url, **dict(config)})
    except (ValueError, TypeError) as exc:
        raise SettingsError(f"the schema registry's client refuses its settings: {exc}") from exc


@functools.lru_cache(maxsize=10_000)
def _opened(coder: _SerializerConfig) -> tuple[Any, Any]:
    """The serializer and the deserializer."""
    client = _client(coder.url, coder.config)
    naming = {"subject.name.strategy": lambda ctx, record: coder.subject}
    options = {**naming, **dict(coder.options)}
    reading = {**naming, **{k: v for k, v in coder.options if k in ("use.latest.with.metadata",)}}
    try:
        if coder.form == "avro":
            avro = needed(f"{_CLIENTS}.avro")
            return (
                avro.AvroSerializer(client, coder.schema, conf=options),
                avro.AvroDeserializer(client, coder.schema, conf=reading),
            )
        if coder.form == "json_schema":
            json = needed(f"{_CLIENTS}.json_schema")
            return (
                json.JSONSerializer(coder.schema, client, conf=options),
                json.JSONDeserializer(coder.schema, schema_registry_client=client, conf=reading),
            )
        protobuf = needed(f"{_CLIENTS}.protobuf")
        return (
            protobuf.ProtobufSerializer(coder.schema, client, conf=options),
            protobuf.ProtobufDeserializer(coder.schema, {**reading, "use.deprecated.format": False}, client),
        )
    except Exception as exc:
        fault = translated(exc, coder.url, coder.subject, "writing")
        if not isinstance(fault, SerdeError):
            raise fault from exc
        raise SettingsError(f"the serializer of subject {coder.subject} refuses its schema or options: {exc}") from exc
