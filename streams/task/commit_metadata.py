"""The metadata string that is committed with every input offset: what a task needs besides offsets and changelogs to
continue exactly. Versioned JSON; above 2,000 bytes it is deflated, because brokers accept ``LIMIT_CHARS`` by default."""

from __future__ import annotations

import base64
import zlib
from typing import Any, NamedTuple

import msgspec

from penstock.state.errors import IncompatibleError, SettingsError, StateCorruptedError
from penstock.topologies.operator_api.operator import NO_TIME

VERSION = 1
LIMIT_CHARS = 4_096
"""All of a long one is ASCII: a character is a byte."""
_PLAIN_CHARS = 2_000


class ReadUpTo(NamedTuple):
    """How far an input was read: the last record before ``offset`` was written to the leader of ``epoch``."""

    offset: int
    epoch: int


class CommitMetadata(msgspec.Struct, kw_only=True, omit_defaults=True):
    """``stream_time_ms`` of the task, ``operators``: own stream time by operator name (``name:port``: of an in port),
    ``partition_time_ms`` of this input partition, ``wall_ms``: last clock reading given to timers, ``changelogs``:
    next changelog offset by store, ``journal``: next journal offset, ``watermarks``: see ``TaskWatermarks.saved``,
    ``caught_up``: the bootstrap inputs whose writers have all caught up, ``caught_up_writers``: of the other bootstrap
    inputs, the writers that have, ``first``: where the application began to read this input partition, ``form``: the
    form of its records (``Source.form``), if it is internal, ``began_ms``: the clock when the first record of this
    input partition came, where policies judge timestamps by it, ``epochs``: the epoch of the leader that had each
    changelog up to there, by store, ``topic_id``: of this input, ``read_up_to``: how far this input was read, and the
    epoch of the leader that had it (``penstock.streams.runtime.input_epochs``), ``owner``: the worker that committed
    it (``penstock.streams.runtime.abandoned_transactions``).
    """

    version: int = msgspec.field(default=0, name="v")
    stream_time_ms: int = msgspec.field(default=NO_TIME, name="t")
    partition_time_ms: int = msgspec.field(default=NO_TIME, name="p")
    wall_ms: int = msgspec.field(default=NO_TIME, name="w")
    operators: dict[str, int] = msgspec.field(default_factory=dict, name="o")
    changelogs: dict[str, int] = msgspec.field(default_factory=dict, name="c")
    journal: int | None = msgspec.field(default=None, name="j")
    watermarks: dict[str, list[Any]] = msgspec.field(default_factory=dict, name="m")
    caught_up: list[str] = msgspec.field(default_factory=list, name="b")
    caught_up_writers: dict[str, list[int]] = msgspec.field(default_factory=dict, name="h")
    first: int | None = msgspec.field(default=None, name="s")
    form: str = msgspec.field(default="", name="f")
    began_ms: int = msgspec.field(default=NO_TIME, name="n")
    epochs: dict[str, int] = msgspec.field(default_factory=dict, name="e")
    topic_id: str = msgspec.field(default="", name="i")
    read_up_to: ReadUpTo | None = msgspec.field(default=None, name="l")
    owner: str = msgspec.field(default="", name="u")


class _MetadataVersion(msgspec.Struct):
    """The part that every version has."""

    v: int


def encode(metadata: CommitMetadata) -> str:
    """The string to commit. Raises ``SettingsError`` if it cannot be made short enough."""
    metadata.version = VERSION
    text = packed(metadata)
    if len(text) > LIMIT_CHARS:
        raise SettingsError(
            f"the commit metadata takes {len(text)} bytes and brokers keep {LIMIT_CHARS}; "
            "shorten the names of operators and stores or split the topology"
        )
    return text


def packed(metadata: CommitMetadata) -> str:
    """The string, however long it is."""
    plain = msgspec.json.encode(metadata)
    if len(plain) <= _PLAIN_CHARS:
        return plain.decode()
    return "z" + base64.b85encode(zlib.compress(plain, 9)).decode()


def decode(text: str) -> CommitMetadata:
    """Decode what ``encode`` wrote; an empty string (an offset set by another tool) gives the initial values."""
    if not text:
        return CommitMetadata()
    try:
        plain = zlib.decompress(base64.b85decode(text[1:])) if text[0] == "z" else text.encode()
        version = msgspec.json.decode(plain, type=_MetadataVersion).v
        if version > VERSION:
            raise IncompatibleError(
                f"the commit metadata is of version {version}; this release reads up to {VERSION}: upgrade it"
            )
        return msgspec.json.decode(plain, type=CommitMetadata)
    except (msgspec.MsgspecError, ValueError, RecursionError, zlib.error) as exc:
        raise StateCorruptedError(
            f"the commit metadata {text!r:.120} cannot be read ({exc}); the group's offsets were committed by another "
            "application: use another application_id"
        ) from exc
