"""Which serde a topic's keys and values have: named on the command line, or known from a topology."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.state.errors import SettingsError
from penstock.streams.cli.typed_bytes import RAW, Codec, codec_of

if TYPE_CHECKING:
    from penstock.state.serdes.serde import Serde
    from penstock.state.stores.store import StoreSpec
    from penstock.topologies.graph.topology import Topology

_WINDOWED = re.compile(r"windowed\((.+),\s*([^,()]+)\)")
_SESSION = re.compile(r"(?:session|windowed)\((.+)\)")
TYPES = (
    "string, json, msgpack, int, int32, float, bytes, MODULE:TYPE (dataclass, Struct, attrs, pydantic, Serde), "
    "windowed(TYPE,1m), session(TYPE)"
)


class TopicTypes(NamedTuple):
    """The codecs of a topic's keys and values. ``written_by``: what alone writes it, if that is not the user."""

    key: Codec = RAW
    value: Codec = RAW
    written_by: str | None = None


def add_type_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--key-type``, ``--value-type``, ``--topology`` and ``--application-id``."""
    parser.add_argument("--key-type", metavar="TYPE", help=f"{TYPES} (default: bytes, shown as text)")
    parser.add_argument("--value-type", metavar="TYPE", help="as --key-type")
    parser.add_argument(
        "--topology", metavar="MODULE:TOPOLOGY", help="take the types from this topology, changelogs too"
    )
    parser.add_argument(
        "--application-id", metavar="ID", help="of the topology's own topics (default: $PENSTOCK_APPLICATION_ID)"
    )


def types_of(args: argparse.Namespace, topic: str) -> TopicTypes:
    """The types of a topic as the command line says them. Raises ``SettingsError`` for a type that does not exist, and for
    a topic that the topology does not have."""
    import os

    found = TopicTypes()
    if args.topology is not None:
        from penstock.streams.topology_loading import load_topology

        application_id = args.application_id or os.environ.get("PENSTOCK_APPLICATION_ID")
        known = topology_types(load_topology(args.topology), application_id)
        if topic in known:
            found = known[topic]
        elif args.value_type is None:
            more = "" if application_id else "; to know its own topics as well, give --application-id"
            raise SettingsError(
                f"topic {topic!r} is not one of {args.topology}, which has: {', '.join(sorted(known))}{more}. Give "
                "--value-type, or another topology"
            )
    if args.key_type is not None:
        found = found._replace(key=codec_of(parse_type(args.key_type)))
    if args.value_type is not None:
        found = found._replace(value=codec_of(parse_type(args.value_type)))
    return found


def parse_type(text: str) -> Serde[Any]:
    """The serde that a user means. Raises ``SettingsError``."""
    from penstock.state.errors import PenstockError
    from penstock.state.serdes.serde import serde_of
    from penstock.state.serdes.window_keys import spanning_serde, windowed_serde
    from penstock.topologies.windows.durations import duration_ms

    text = text.strip()
    try:
        if found := _WINDOWED.fullmatch(text):
            return windowed_serde(parse_type(found[1]), duration_ms(found[2]))
        if found := _SESSION.fullmatch(text):
            return spanning_serde(parse_type(found[1]))
        return serde_of(_loaded(text) if ":" in text else text)  # type: ignore[arg-type]  # any text may be tried
    except SettingsError:
        raise
    except PenstockError as exc:
        raise SettingsError(f"{text!r} is not a type; write {TYPES}") from exc


def _loaded(text: str) -> Any:
    from penstock.streams.topology_loading import load_named

    return load_named(text)


def topology_types(topology: Topology, application_id: str | None) -> dict[str, TopicTypes]:
    """The types of every topic of a topology by its real name; without ``application_id``, of the user's topics."""
    from penstock.state.recovery.changelog import changelog_topic, journal_topic

    out: dict[str, TopicTypes] = {}
    if application_id is not None:
        own = f"application {application_id}"
        for sub in topology.subtopologies:
            out[journal_topic(application_id, sub.number)] = TopicTypes(written_by=own)
        for spec in topology.stores:
            if spec.source_topic is None:
                types = TopicTypes(changelog_keys(spec), codec_of(spec.value_serde), own)
                out[changelog_topic(application_id, spec)] = types
    for sub in topology.subtopologies:
        for sink in map(topology.sink, sub.sinks):
            if not sink.internal:
                for topic in sink.topics or (sink.topic,):
                    out[topic] = TopicTypes(codec_of(sink.key_serde), codec_of(sink.value_serde))
    for sub in topology.subtopologies:
        for source in map(topology.source, sub.sources):
            types = TopicTypes(codec_of(source.key_serde), codec_of(source.value_serde))
            if not source.internal:
                out[source.topic] = types
            elif application_id is not None:
                packed = TopicTypes() if source.packed else types
                out[source.topic_name(application_id)] = packed._replace(written_by=f"application {application_id}")
    return out


def changelog_keys(spec: StoreSpec) -> Codec:
    """The keys of a store's changelog: those of windows have the window behind the key."""
    inner = codec_of(spec.key_serde)
    behind = {"window": 12, "key_window": 12, "session": 16, "list": 12}.get(spec.kind, 0)
    if not behind:
        return Codec(inner.name, inner.show, None)

    def show(data: bytes) -> Any:
        first = int.from_bytes(data[-behind:][:8], "big", signed=True)
        out: dict[str, Any] = {"key": inner.show(data[:-behind])}
        if spec.kind == "session":
            return out | {"start": int.from_bytes(data[-8:], "big", signed=True), "end": first}
        if spec.kind == "list":
            return out | {"timestamp": first, "sequence": int.from_bytes(data[-4:], "big")}
        return out | window(first, spec)

    return Codec(f"{spec.kind}({inner.name})", show, None)


def window(start_ms: int, spec: StoreSpec) -> dict[str, int]:
    """A window of a store, with its end where the store knows the size."""
    end = {} if spec.window_size_ms is None else {"end": start_ms + spec.window_size_ms}
    return {"start": start_ms, **end}
