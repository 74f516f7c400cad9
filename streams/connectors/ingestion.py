"""An ingestion: a source, the topic that its records go into, and their types. Pure."""

from __future__ import annotations

import dataclasses
import re
from typing import Any, Literal

from penstock.state.errors import SettingsError
from penstock.state.serdes.models import converted
from penstock.state.serdes.record_classes import record_class
from penstock.state.serdes.serde import Serde, SerdeLike, serde_of
from penstock.streams.connectors.source import Source, SourceRecord
from penstock.topologies.windows.durations import Duration, duration_ms

_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")
_SCALARS = (str, int, float)


class UnreadableError(Exception):
    """A record that cannot be read or written: where it stands, and why."""


@dataclasses.dataclass(frozen=True)
class Ingestion:
    """Writes the records of ``source`` to ``topic``, which must exist. ``name`` is its identity: positions are kept under
    it, in the topic ``<name>-positions``, and a second run of the same name ends the first.

    ``key`` and ``value``: a type or a serde, as in ``StreamsBuilder``. Rows become instances of a class with fields;
    numbers and dates are read from texts where the source has texts only. ``on_error``: what happens to a record that
    cannot be read or does not fit: ``"fail"`` ends the ingestion with its place, ``"skip"`` counts it and goes on.
    ``follow``: goes on looking for more at the end, every ``poll_interval``. ``batch_records``: at most this many are
    one transaction.

    Records are in the topic exactly once if the source keeps positions, for readers of committed records, which all
    workers are. If it keeps none, they are there at least once."""

    name: str
    source: Source
    topic: str
    _: dataclasses.KW_ONLY
    key: SerdeLike[Any] = str
    value: SerdeLike[Any] = dict
    on_error: Literal["fail", "skip"] = "fail"
    follow: bool = False
    poll_interval: Duration = "1s"
    batch_records: int = 10_000

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise SettingsError(f"name={self.name!r:.100}; give letters, digits, dots, dashes and underscores")
        if self.on_error not in ("fail", "skip"):
            raise SettingsError(f"on_error={self.on_error!r:.100}; choose fail or skip")
        if duration_ms(self.poll_interval) == 0 or self.batch_records < 1:
            raise SettingsError("give a poll_interval above zero, and a batch_records of one or more")
        serde_of(self.key), serde_of(self.value)

    @property
    def positions_topic(self) -> str:
        """Where its positions are kept."""
        return f"{self.name}-positions"

    @property
    def transactional_id(self) -> str:
        """The producer's transactional id."""
        return f"{self.name}-ingestion"


class RecordWriter:
    """Makes the bytes of an ingestion's records."""

    def __init__(self, ingestion: Ingestion) -> None:
        self._key, self._value = serde_of(ingestion.key), serde_of(ingestion.value)
        self._strict = not ingestion.source.textual

    def written(self, record: SourceRecord) -> tuple[bytes | None, bytes | None]:
        """Its key and value. Raises ``UnreadableError``."""
        if record.error is not None:
            raise UnreadableError(_placed(record, record.error))
        if record.timestamp_ms is not None and record.timestamp_ms < 0:
            raise UnreadableError(_placed(record, f"its time {record.timestamp_ms} ms is before 1970"))
        return self._side(record, "key", self._key), self._side(record, "value", self._value)

    def _side(self, record: SourceRecord, side: str, serde: Serde[Any]) -> bytes | None:
        try:
            return self._bytes(serde, getattr(record, side))
        except Exception as exc:
            raise UnreadableError(_placed(record, f"its {side}: {str(exc) or type(exc).__name__}")) from exc

    def _bytes(self, serde: Serde[Any], value: Any) -> bytes | None:
        if value is None:
            return None
        wanted = serde.declared if record_class(serde.declared) is not None else serde.exact
        known = record_class(wanted) or (wanted if wanted in _SCALARS else None)
        if known is not None and not isinstance(value, known):
            value = converted(value, wanted, strict=self._strict, kinds=_KINDS)
        return serde.serialize(value)


_KINDS: tuple[Any, ...] = (bytes,)


def _placed(record: SourceRecord, why: str) -> str:
    return f"{record.place}: {why}" if record.place else why
