"""Sources and sinks: where records enter and leave a sub-topology. The task moves the bytes; these name topics,
serdes and partitioning."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable, Sequence
from typing import Any, Literal

from penstock.state.errors import TopologyError
from penstock.state.log import Record
from penstock.state.serdes.serde import BYTES, JSON, Serde
from penstock.topologies.operator_api.batch import Batch, ColumnBatch
from penstock.topologies.operator_api.edge_kinds import NO_RETRACTIONS, EdgeKind
from penstock.topologies.operator_api.operator import Operator, OperatorContext, OperatorSpec
from penstock.topologies.operator_api.required_columns import (
    COLUMN_LAYOUT,
    ROW_LAYOUT,
    EdgeLayout,
    InputMode,
    RequiredColumns,
    path_of,
)
from penstock.topologies.operator_api.watermark_strategies import WatermarkStrategy
from penstock.topologies.operators.base.row_functions import decode_column
from penstock.topologies.operators.columnar.input_modes import writing_mode
from penstock.topologies.operators.columnar.source import PLAIN, Decoder, decoding_mode
from penstock.topologies.operators.records.missing_columns import MissingColumns
from penstock.topologies.operators.records.record_unpacking import Unpacker, read_in_columns


@dataclasses.dataclass(frozen=True, kw_only=True)
class SourceSpec(OperatorSpec):
    """Reads a topic. ``internal``: a repartition topic of this application, whose real name begins with the
    application id. ``partitions``: the repartition topic's number of partitions (``None``: as many as the other
    inputs). ``timestamp``: computes the event time of a record (milliseconds); ``None``: the log's. ``watermark``:
    this source's watermark strategy. ``carries_watermarks``: the tasks that write an internal topic send their
    watermark in it; not if the topic answers what its readers have sent. ``loop_rounds``: a feedback topic, in which
    records go around at most this often. ``bootstrap``: when a task starts, it reads this to its end before the other
    inputs. ``priority``: while an input with a higher one has records, the others wait. ``packed``: each of its
    records holds many (``penstock.topologies.columnar.packing``). ``partials_of``: its records are partial aggregates
    of this kind."""

    topic: str
    key_serde: Serde[Any] = BYTES
    value_serde: Serde[Any] = BYTES
    internal: bool = False
    partitions: int | None = None
    packed: bool = False
    partials_of: str = ""
    timestamp: Callable[[Record], int] | None = None
    watermark: WatermarkStrategy | None = None
    carries_watermarks: bool = True
    loop_rounds: int = 0
    bootstrap: bool = False
    priority: int = 0
    in_ports: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.topic:
            raise TopologyError("a source has no topic; name one")
        if self.partitions is not None and self.partitions < 1:
            raise TopologyError(f"source {self.topic!r}: partitions={self.partitions}; it must be at least 1")

    @property
    def waits_for_writers(self) -> bool:
        """Whether its end, as a bootstrap input, is where the tasks that write it announce that they have caught up."""
        return self.bootstrap and self.internal

    @property
    def form(self) -> str:
        """A short tag that distinguishes the records of an internal topic from those that the same application wrote
        there before it was changed; empty for a user's topic."""
        if not self.internal:
            return ""
        parts = (self.key_serde.name, self.value_serde.name, str(self.packed), self.partials_of)
        return f"{zlib.crc32(chr(0).join(parts).encode()):08x}"

    def topic_name(self, application_id: str) -> str:
        """The topic's real name."""
        return f"{application_id}-{self.topic}" if self.internal else self.topic

    @property
    def at_most_one(self) -> bool:
        return not self.packed

    def input_mode(self, port: int, out: Sequence[RequiredColumns]) -> InputMode:
        if self.packed:
            plain = read_in_columns(self.key_serde, self.value_serde)
            return InputMode(out[0], None if plain else f"its records hold many, of serde {self.value_serde.name}")
        return decoding_mode(self.value_serde, out[0])

    def row_reason(self, port: int, given: EdgeLayout) -> str | None:
        return None if given == COLUMN_LAYOUT else "records come as lists"

    def output_layout(self, port: int, given: EdgeLayout, input_mode: InputMode) -> EdgeLayout:
        if given != COLUMN_LAYOUT:
            return ROW_LAYOUT
        columns = input_mode.rows is None
        if self.packed:
            return EdgeLayout(columns, columns)
        plain = self.value_serde in PLAIN
        return EdgeLayout(self.key_serde in PLAIN, plain or columns, plain, None if plain else input_mode.needs.fields)

    def open(self, ctx: OperatorContext) -> Operator:
        """Decodes the log's bytes, which it gets unchanged from the task."""
        return _SourceOperator(ctx, self)

    def details(self) -> dict[str, Any]:
        """Topic and serdes."""
        return {"topic": self.topic, "key": self.key_serde.name, "value": self.value_serde.name}


class _SourceOperator(Operator):
    def __init__(self, ctx: OperatorContext, spec: SourceSpec) -> None:
        super().__init__(ctx)
        self._keys = None if spec.key_serde is BYTES else spec.key_serde
        self._values = None if spec.value_serde is BYTES else spec.value_serde
        self._unpacker = None
        self._decoder = None
        self._missing = None
        if spec.value_serde == JSON and not spec.internal and ctx.needs is not None and ctx.needs.fields:
            self._missing = MissingColumns(ctx, {path_of(f)[0] for f in ctx.needs.fields})
        if spec.packed:
            self._unpacker = Unpacker(ctx, spec.key_serde, spec.value_serde, in_columns=ctx.needs is not None)
        elif ctx.needs is not None:
            self._decoder = Decoder(ctx, spec.key_serde, spec.value_serde, ctx.needs)

    def process_columns(self, port: int, batch: ColumnBatch) -> Batch | None:
        read = None if self._decoder is None else self._decoder.read(batch)
        if read is None:
            return batch
        if self._missing is not None and not self._missing.look(read.values):
            self._missing = None
        self.ctx.emit(read)
        return None

    def process(self, port: int, batch: Batch) -> None:
        decoded = batch.listed()
        if self._unpacker is not None:
            decoded, whole = self._unpacker.unpacked(decoded)
            if whole:
                self.ctx.emit(decoded)
                return
        if self._values is not None:
            values, decoded = decode_column(self.ctx, decoded, self._values, decoded.values, "value")
            decoded = decoded.replace(values=values)
            if self._missing is not None and not self._missing.look(values):
                self._missing = None
        if self._keys is not None:
            keys, decoded = decode_column(self.ctx, decoded, self._keys, decoded.keys, "key")
            decoded = decoded.replace(keys=keys)
        self.ctx.emit(decoded)


@dataclasses.dataclass(frozen=True)
class Split:
    """By the key and a number below ``ways`` that follows from the whole record: ``ways`` sub-keys instead of each
    key."""

    ways: int


Route = Literal["key", "broadcast", "shuffle"] | Split | Callable[[Any, Any, int], int]
"""How the partition of a record in a repartition topic is chosen: by its key; all partitions; computed from the whole
record; by sub-keys; or ``fn(key, value, partitions)``."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SinkSpec(OperatorSpec):
    """Writes a topic. Partition: murmur2 of the key as Kafka's Java producer does (``inner_key``: of the inner key of a
    windowed key), null keys anywhere; to an ``internal`` topic null keys go to the producing task's partition modulo the
    count. ``route``: another rule (``Route``), or ``fn(key, value, partitions)``. ``topic_of(key, value)``: which of
    ``topics`` each record goes to (``topic`` is then the first of them). Sinks of one topic run in lockstep, so that the
    topic's order does not depend on batches. ``packs``: many records travel as one, of a topic whose records all have
    keys and values and no headers (``penstock.topologies.columnar.packing``)."""

    topic: str
    key_serde: Serde[Any] = BYTES
    value_serde: Serde[Any] = BYTES
    internal: bool = False
    partitions: int | None = None
    packs: bool = False
    inner_key: Serde[Any] | None = None
    route: Route = "key"
    topic_of: Callable[[Any, Any], str] | None = None
    topics: tuple[str, ...] = ()
    out_ports: tuple[str, ...] = ()
    accepts: frozenset[EdgeKind] = NO_RETRACTIONS

    def __post_init__(self) -> None:
        if not self.topic:
            raise TopologyError("a sink has no topic; name one")

    def input_mode(self, port: int, out: Sequence[RequiredColumns]) -> InputMode:
        by_key = self.route == "key" and self.topic_of is None
        return writing_mode(self.key_serde, self.value_serde, by_key=by_key)

    def row_reason(self, port: int, given: EdgeLayout) -> str | None:
        # one side is enough: lists are written at once next to a column
        return None if self.packs or given.keys or given.values else "records come as lists"

    @property
    def resources(self) -> tuple[str, ...]:
        """Its topics."""
        return tuple(f"topic:{t}" for t in self.topics or (self.topic,))

    def topic_name(self, application_id: str) -> str:
        """The topic's real name."""
        return f"{application_id}-{self.topic}" if self.internal else self.topic

    def details(self) -> dict[str, Any]:
        """Topic and serdes."""
        return {"topic": self.topic, "key": self.key_serde.name, "value": self.value_serde.name}
