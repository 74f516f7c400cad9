"""Keys and values of two sides as people read them, and whether two values are close enough to count as the same."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.state.serdes.models import plain as plain_of
from penstock.state.serdes.serde import Serde
from penstock.state.stores.store import StoreSpec
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operators.records.source_sink import SinkSpec

_LONG = 8
_INT = 4


@dataclasses.dataclass(frozen=True)
class Tolerance:
    """How far two floating-point numbers may be apart: by ``relative`` of the larger one, or by ``absolute``. Other values
    are the same or not."""

    relative: float = 0.0
    absolute: float = 0.0

    def __bool__(self) -> bool:
        return self.relative > 0 or self.absolute > 0

    def close(self, one: Any, other: Any) -> bool:
        """Whether two values, plain ones or made of plain ones, are the same within it."""
        if isinstance(one, float) or isinstance(other, float):
            if not all(isinstance(x, int | float) and not isinstance(x, bool) for x in (one, other)):
                return False
            if math.isnan(one) or math.isnan(other):
                return math.isnan(one) and math.isnan(other)
            return math.isclose(one, other, rel_tol=self.relative, abs_tol=self.absolute)
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            return one.keys() == other.keys() and all(self.close(one[k], other[k]) for k in one)
        if _listed(one) and _listed(other):
            return len(one) == len(other) and all(map(self.close, one, other))
        return bool(one == other)


def _listed(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


@dataclasses.dataclass(frozen=True)
class StoredForm:
    """How the bytes of one topic or store are read. ``entries``: the store's spec, whose keys hold windows and whose values
    begin with a timestamp; ``None`` for a topic."""

    key: Serde[Any]
    value: Serde[Any]
    entries: StoreSpec | None = None

    def key_text(self, key: bytes | None) -> str | None:
        """A key, with its window where it has one."""
        if key is None:
            return None
        if self.entries is None:
            return as_text(self.key, key)
        inner, places = entry_key(self.entries, key)
        text = as_text(self.key, inner)
        return text if not places else f"{text} {' '.join(f'{name}={at}' for name, at in places.items())}"

    def value_text(self, value: bytes | None) -> str | None:
        """A value; ``None`` where there is none."""
        data = self._content(value)
        return None if data is None else as_text(self.value, data)

    def close(self, one: bytes | None, other: bytes | None, tolerance: Tolerance) -> bool:
        """Whether two values are the same within the tolerance. What cannot be read is the same when its bytes are, and the
        timestamps of entries are never apart."""
        if one == other:
            return True
        if self.entries is not None and one is not None and other is not None and one[:_LONG] != other[:_LONG]:
            return False
        contents = self._content(one), self._content(other)
        if contents[0] is None or contents[1] is None:
            return False
        try:
            plain = [plain_of(self.value.deserialize(c), other=repr) for c in contents if c is not None]
        except Exception:
            return False
        return tolerance.close(*plain)

    def _content(self, value: bytes | None) -> bytes | None:
        return value if value is None or self.entries is None else value[_LONG:]


def as_text(serde: Serde[Any], data: bytes) -> str:
    """Bytes as JSON of what they mean, or as bytes where they cannot be read. Values that are bytes are taken for text."""
    try:
        meant = serde.deserialize(data)
        plain = meant.decode() if isinstance(meant, bytes) else plain_of(meant, other=repr)
        return json.dumps(plain, ensure_ascii=False)
    except Exception:
        return repr(data)


def entry_key(spec: StoreSpec, stored: bytes) -> tuple[bytes, dict[str, int]]:
    """The key within a store's key, and what else that says: the start of its window in milliseconds, or the like."""

    def at(place: int) -> int:
        return int.from_bytes(stored[place : place + _LONG], "big", signed=True)

    if spec.kind == "key_value":
        return stored, {}
    if spec.kind == "versioned":
        return stored[:-_LONG], {"valid_from": at(len(stored) - _LONG)}
    if spec.kind == "window":
        return stored[_LONG:], {"window_start": at(0)}
    suffix = {"key_window": 0, "session": _LONG, "list": _INT}[spec.kind]
    place = len(stored) - _LONG - suffix
    key = stored[_LONG:place]
    if spec.kind == "session":
        return key, {"window_start": at(len(stored) - _LONG), "window_end": at(place)}
    return key, {"time" if spec.kind == "list" else "window_start": at(place)}


def forms_of(topology: Topology, application_id: str) -> dict[tuple[str, str], StoredForm]:
    """The form of each topic that is written and of each store, by ``("topic" | "store", name)``."""
    out: dict[tuple[str, str], StoredForm] = {}
    for sub in topology.subtopologies:
        for name in sub.sinks:
            sink: SinkSpec = topology.sink(name)
            if not sink.packs:
                for topic in sink.topics or (sink.topic_name(application_id),):
                    out["topic", topic] = StoredForm(sink.key_serde, sink.value_serde)
        for spec in sub.stores:
            out["store", spec.name] = StoredForm(spec.key_serde, spec.value_serde, spec)
    return out
