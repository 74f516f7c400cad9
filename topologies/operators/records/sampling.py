"""Samples that are the same in every run: by a hash of the key, and reservoirs per key and window.

A reservoir is Vitter's algorithm R. Its random numbers are a counter-based generator of our own: SplitMix64's mixing of
a seed (the hash of key and window) and the record's number in its window, so nothing but the sample has to be kept.
"""

from __future__ import annotations

import dataclasses
import struct
from hashlib import blake2b
from typing import Any, TypeAlias

import msgspec

from penstock.state.errors import SerdeError
from penstock.state.log import Windowed
from penstock.state.serdes.partitioner import murmur2
from penstock.state.serdes.serde import Serde
from penstock.state.stores.store import StoreSpec
from penstock.topologies.operator_api.batch import Batch
from penstock.topologies.operator_api.edge_kinds import EdgeKind, Emits
from penstock.topologies.operator_api.operator import Emission, Operator, OperatorContext, OperatorSpec
from penstock.topologies.operator_api.required_columns import EdgeLayout, InputMode
from penstock.topologies.operators.base.row_functions import serialize_keys, without_nulls
from penstock.topologies.operators.base.row_operator import RowOperator

_START = struct.Struct(">q")
_MASK = (1 << 64) - 1

Reservoir: TypeAlias = "tuple[int, tuple[tuple[int, bytes], ...]]"
"""The number of records seen, and the kept ones with their numbers, by slot."""

_DECODER = msgspec.msgpack.Decoder(tuple[int, tuple[tuple[int, bytes], ...]])
RESERVOIR: Serde[Reservoir] = Serde(
    "reservoir", msgspec.msgpack.Encoder().encode, _DECODER.decode, immutable=True, exact=tuple
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SampleKeysSpec(OperatorSpec):
    """The records of the share ``fraction`` of all keys: those whose murmur2 hash, of ``seed`` and the key's bytes, lies
    low. A larger fraction takes the keys of a smaller one and more. Records without a key are dropped and counted."""

    fraction: float
    key_serde: Serde[Any]
    seed: int = 0

    def output_layout(self, port: int, given: EdgeLayout, input_mode: InputMode) -> EdgeLayout:
        return given

    def open(self, ctx: OperatorContext) -> Operator:
        """Build the operator of one task."""
        return _SampleKeysOperator(ctx, self)

    def details(self) -> dict[str, Any]:
        """Fraction and seed."""
        return {"fraction": self.fraction, "seed": self.seed}


class _SampleKeysOperator(Operator):
    def __init__(self, ctx: OperatorContext, spec: SampleKeysSpec) -> None:
        super().__init__(ctx)
        self._serde = spec.key_serde
        self._below = round(spec.fraction * (1 << 32))
        self._seed = spec.seed.to_bytes(8, "big") if spec.seed else b""

    def process(self, port: int, batch: Batch) -> None:
        batch = without_nulls(self.ctx, batch, "key")
        keys, batch = serialize_keys(self.ctx, batch, self._serde)
        seed, below = self._seed, self._below
        self.ctx.emit(batch.where([(murmur2(seed + k) & 0xFFFFFFFF) < below for k in keys]))


def uniform(seed: int, counter: int, below: int) -> int:
    """A number from 0 to ``below - 1``, the same for the same seed and counter, as if drawn at random."""
    x = (seed + counter * 0x9E3779B97F4A7C15) & _MASK
    x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ x >> 27) * 0x94D049BB133111EB) & _MASK
    return ((x ^ x >> 31) * below) >> 64


@dataclasses.dataclass(frozen=True, kw_only=True)
class SampleReservoirSpec(OperatorSpec):
    """Per key and tumbling window a list of up to ``n`` values, each set of n values equally likely, in order of arrival,
    under a ``Windowed`` key at the window's last millisecond, once the watermark has passed that by ``grace_ms``. Records
    of closed windows, without key or without value are dropped and counted."""

    n: int
    size_ms: int
    grace_ms: int
    value_serde: Serde[Any]
    uses_watermark: bool = True
    order_sensitive: bool = True
    emission: Emission | None = "on_close"
    emits: Emits = "insert"
    accepts: frozenset[EdgeKind] = frozenset({"insert"})

    def open(self, ctx: OperatorContext) -> Operator:
        """Build the operator of one task."""
        return _SampleReservoirOperator(ctx, self)

    def details(self) -> dict[str, Any]:
        """Store, size and window."""
        return {
            "store": self.stores[0].name,
            "n": self.n,
            "window": f"{self.size_ms} ms",
            "grace": f"{self.grace_ms} ms",
        }


class _SampleReservoirOperator(RowOperator):
    """Store keys: window start (8) | key bytes."""

    def __init__(self, ctx: OperatorContext, spec: SampleReservoirSpec) -> None:
        super().__init__(ctx, spec)
        self._state = ctx.state(spec.stores[0].name)
        self._keys: Serde[Any] = spec.stores[0].key_serde
        self._values = spec.value_serde
        self._n, self._size_ms, self._grace_ms = spec.n, spec.size_ms, spec.grace_ms
        self._first_ms: int | None = None
        """No window that starts earlier is open; ``None``: unknown."""

    def row(self, port: int, key: Any, value: Any, ts: int) -> None:
        if key is None or value is None:
            self.ctx.dropped("null_key" if key is None else "null_value")
            return
        start = ts - ts % self._size_ms
        if start + self._size_ms - 1 + self._grace_ms <= self.watermark_ms:
            self.ctx.dropped("late")
            return
        try:
            name, data = _START.pack(start) + self._keys.serialize(key), self._values.serialize(value)
        except Exception as exc:
            raise SerdeError(f"{key!r:.60} → {value!r:.60} cannot be kept: {exc}; give the stream its serdes") from exc
        found = self._state.get(name)
        seen, kept = (0, ()) if found is None else found[0]
        number = seen + 1
        if seen < self._n:
            kept = (*kept, (number, data))
        else:
            seed = int.from_bytes(blake2b(name, digest_size=8).digest(), "big")
            slot = uniform(seed, number, number)
            if slot < self._n:
                kept = (*kept[:slot], (number, data), *kept[slot + 1 :])
        self._state.put(name, (number, kept), ts)
        if self._first_ms is not None:
            self._first_ms = min(self._first_ms, start)

    def on_watermark(self, watermark_ms: int) -> None:
        until_ms = watermark_ms - self._grace_ms - self._size_ms + 1  # the last start of a window that is over
        if until_ms < 0 or (self._first_ms is not None and self._first_ms > until_ms):
            return
        for name, (_, kept), _ in list(self._state.range(None, _START.pack(until_ms + 1))):
            start = _START.unpack_from(name)[0]
            end = start + self._size_ms
            sample = [self._values.deserialize(data) for _, data in sorted(kept)]
            self._state.put(name, None, end - 1)
            self.emit_row(Windowed(self._keys.deserialize(name[8:]), start, end), sample, end - 1)
        self._first_ms = next((_START.unpack_from(k)[0] for k, _, _ in self._state.range()), until_ms + 1)


def reservoir_store(name: str, key: Serde[Any]) -> StoreSpec:
    """The store of a ``SampleReservoirSpec``. Its serde of keys is that of the keys behind the window's start."""
    return StoreSpec(name, "key_value", key, RESERVOIR)
