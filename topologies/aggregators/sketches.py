"""Aggregates in bounded space: distinct counts, quantiles, heavy hitters, frequencies, membership.

They use Apache DataSketches and rbloom, which the extra ``sketches`` installs and which are imported when an
aggregate is created. Accumulators are the libraries' own bytes. Every hash has a constant seed and nothing is
sampled, so the same records in the same order give the same bytes on every machine with the same release of the
library. (The libraries' KLL and REQ quantiles are random, which is why ``quantiles`` is a t-digest.)

Two values are the same if the bytes of their serde (``value``, or plain values) are.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from hashlib import blake2b
from importlib import import_module
from typing import Any

from penstock.state.errors import TopologyError
from penstock.state.serdes.serde import BYTES, INT, Serde, SerdeLike, serde_of
from penstock.state.type_parameters import T, V
from penstock.topologies.aggregators.base import AggregateInput, Aggregator, getter, named
from penstock.topologies.aggregators.encoding import PLAIN, RESULT_JSON

_PENDING = struct.Struct(">I")
_PENDING_MAX = 128


def _library(module: str, name: str) -> Any:
    try:
        return import_module(module)
    except ModuleNotFoundError as exc:
        raise TopologyError(
            f"aggregate {name!r} needs the package {module}, which is not installed: pip install 'penstock[sketches]'"
        ) from exc


def _serde(value: Any) -> Serde[Any]:
    return PLAIN if value is None else serde_of(value)


def _token(data: bytes) -> str:
    """Bytes as text of equal length, for libraries that hash text."""
    return data.decode("latin-1")


def approx_distinct(
    of: AggregateInput[V] = None, *, lg_k: int = 12, value: SerdeLike[T] | None = None
) -> Aggregator[int, V]:
    """The number of distinct values by a HyperLogLog of ``2**lg_k`` bytes, whose relative error is about ``1.04 /
    2**(lg_k / 2)`` (12: 1.6 %). The answer depends only on the set of values, so merges are exact."""
    name = named("approx-distinct", of)
    if not 7 <= lg_k <= 21:
        raise TopologyError(f"aggregate {name!r}: lg_k={lg_k}; it must be from 7 to 21")
    ds = _library("datasketches", name)
    pick, serde = getter(of, name), _serde(value)
    hll, dense = ds.hll_sketch, ds.tgt_hll_type.HLL_8

    def init() -> bytes:
        return bytes(hll(lg_k, dense).serialize_compact())

    def add(acc: bytes, row: Any, timestamp_ms: int) -> bytes:
        x = pick(row)
        if x is None:
            return acc
        sketch = hll.deserialize(acc)
        sketch.update(_token(serde.serialize(x)))
        return bytes(sketch.serialize_compact())

    def union(a: bytes, b: bytes) -> Any:
        made = ds.hll_union(lg_k)
        made.update(hll.deserialize(a))
        made.update(hll.deserialize(b))
        return made

    def merge(a: bytes, b: bytes) -> bytes:
        return bytes(union(a, b).get_result(dense).serialize_compact())

    def result(acc: bytes) -> int:
        # A sketch that was never merged estimates by its history. A union with itself makes it forget that.
        return round(float(union(acc, acc).get_estimate()))

    return Aggregator(
        name=name,
        init=init,
        add=add,
        result=result,
        serde=BYTES,
        result_serde=INT,
        merge=merge,
        exact_merge=True,
    )


def quantiles(
    at: Sequence[float] = (0.5,), of: AggregateInput[V] = None, *, compression: int = 500
) -> Aggregator[list[float], V]:
    """The values at these ranks (0 to 1) by a t-digest, as a list of floats; null if there are no values. NaN is
    ignored.

    With ``compression`` 500 the ranks are off by less than 1 %, and by much less near both ends. Merging is not
    exact: the result may differ within the error.
    """
    name = named("quantiles", of)
    ranks = tuple(at)
    if not ranks or any(not 0 <= q <= 1 for q in ranks):
        raise TopologyError(f"aggregate {name!r}: ranks {ranks}; give at least one, each from 0 to 1")
    if not 10 <= compression <= 10_000:
        raise TopologyError(f"aggregate {name!r}: compression={compression}; it must be from 10 to 10,000")
    tdigest = _library("datasketches", name).tdigest_double
    pick = getter(of, name)

    # Accumulators: number of pending values (4) | pending values (8 each) | the digest of the others, if any. Pending
    # values are added together, because a digest is compressed whenever it is written.
    def read(acc: bytes) -> tuple[list[float], bytes]:
        count = _PENDING.unpack_from(acc)[0]
        return list(struct.unpack_from(f">{count}d", acc, 4)), acc[4 + 8 * count :]

    def written(pending: list[float], digest: bytes) -> bytes:
        if len(pending) >= _PENDING_MAX:
            pending, digest = [], bytes(whole(pending, digest).serialize())
        return _PENDING.pack(len(pending)) + struct.pack(f">{len(pending)}d", *pending) + digest

    def whole(pending: list[float], digest: bytes) -> Any:
        made = tdigest.deserialize(digest) if digest else tdigest(compression)
        for x in pending:
            made.update(x)
        return made

    def add(acc: bytes, row: Any, timestamp_ms: int) -> bytes:
        x = pick(row)
        if x is None or (x := float(x)) != x:
            return acc
        pending, digest = read(acc)
        return written([*pending, x], digest)

    def merge(a: bytes, b: bytes) -> bytes:
        (mine, digest), (theirs, other) = read(a), read(b)
        if digest and other:
            made = tdigest.deserialize(digest)
            made.merge(tdigest.deserialize(other))
            digest, other = bytes(made.serialize()), b""
        return written(mine + theirs, digest or other)

    def result(acc: bytes) -> list[float] | None:
        made = whole(*read(acc))
        return None if made.is_empty() else [made.get_quantile(q) for q in ranks]

    return Aggregator(
        name=name,
        init=lambda: _PENDING.pack(0),
        add=add,
        result=result,
        serde=BYTES,
        result_serde=RESULT_JSON,
        merge=merge,
    )


def _counting(
    sketches: Any, pick: Callable[[Any], Any], serde: Serde[Any]
) -> tuple[Callable[[bytes, Any, int], bytes], Callable[[bytes, bytes], bytes]]:
    """``add`` and ``merge`` of a sketch that counts tokens, kept as its bytes."""

    def add(acc: bytes, row: Any, timestamp_ms: int) -> bytes:
        x = pick(row)
        if x is None:
            return acc
        sketch = sketches.deserialize(acc)
        sketch.update(_token(serde.serialize(x)))
        return bytes(sketch.serialize())

    def merge(a: bytes, b: bytes) -> bytes:
        sketch = sketches.deserialize(a)
        sketch.merge(sketches.deserialize(b))
        return bytes(sketch.serialize())

    return add, merge


def heavy_hitters(
    share: float = 0.01, of: AggregateInput[V] = None, *, value: SerdeLike[T] | None = None
) -> Aggregator[list[dict[str, Any]], V]:
    """The values that make up more than ``share`` of the records, most frequent first, equal ones in the order of
    their bytes, as ``{"value", "count", "at_least"}`` (Misra–Gries). None is missing; a value that is reported by
    mistake makes up at least half of that share. ``count`` is too high by at most half of the share, ``at_least`` is
    never too high."""
    name = named("heavy-hitters", of)
    if not 0.0001 <= share < 1:
        raise TopologyError(f"aggregate {name!r}: share={share}; it must be from 0.0001 and below 1")
    ds = _library("datasketches", name)
    pick, serde, items = getter(of, name), _serde(value), ds.frequent_strings_sketch
    lg_size = max(3, math.ceil(math.log2(3.5 / (share / 2))))  # the error is at most 3.5 / 2**lg_size of the records

    add, merge = _counting(items, pick, serde)

    def result(acc: bytes) -> list[dict[str, Any]]:
        sketch = items.deserialize(acc)
        least = int(share * sketch.total_weight)
        found = sketch.get_frequent_items(ds.frequent_items_error_type.NO_FALSE_NEGATIVES, least)
        rows = sorted((-estimate, token.encode("latin-1"), low) for token, estimate, low, _ in found)
        return [{"value": serde.deserialize(v), "count": -n, "at_least": low} for n, v, low in rows]

    return Aggregator(
        name=name,
        init=lambda: bytes(items(lg_size).serialize()),
        add=add,
        result=result,
        serde=BYTES,
        result_serde=RESULT_JSON,
        merge=merge,
    )


def count_min(
    of: AggregateInput[V] = None, *, error: float = 0.01, confidence: float = 0.99, value: SerdeLike[T] | None = None
) -> Aggregator[bytes, V]:
    """How often each value occurred, as a count-min sketch: ``frequency(result, x)`` is never too low and, with this
    confidence, too high by at most ``error`` times the number of records."""
    name = named("count-min", of)
    if not 0 < error < 1 or not 0 < confidence < 1:
        raise TopologyError(f"aggregate {name!r}: error={error}, confidence={confidence}; both must be between 0 and 1")
    sketches = _library("datasketches", name).count_min_sketch
    pick, serde = getter(of, name), _serde(value)
    rows, columns = sketches.suggest_num_hashes(confidence), sketches.suggest_num_buckets(error)

    add, merge = _counting(sketches, pick, serde)

    return Aggregator(
        name=name,
        init=lambda: bytes(sketches(rows, columns).serialize()),
        add=add,
        result=bytes,
        serde=BYTES,
        result_serde=BYTES,
        merge=merge,
        exact_merge=True,
    )


def frequency(sketch: bytes, x: T, *, value: SerdeLike[T] | None = None) -> int:
    """How often ``x`` occurred, by the result of ``count_min`` with the same ``value``."""
    made = _library("datasketches", "count-min").count_min_sketch.deserialize(sketch)
    return int(made.get_estimate(_token(_serde(value).serialize(x))))


def bloom(
    of: AggregateInput[V] = None,
    *,
    items: int = 10_000,
    false_positives: float = 0.01,
    value: SerdeLike[T] | None = None,
) -> Aggregator[bytes, V]:
    """Which values occurred, as a Bloom filter: ``might_hold(result, x)`` is true for all of them and, with up to
    ``items`` distinct values, for this share of the others by mistake."""
    name = named("bloom", of)
    if items < 1 or not 0 < false_positives < 1:
        raise TopologyError(
            f"aggregate {name!r}: items={items}, false_positives={false_positives}; give at least one item and a share "
            "between 0 and 1"
        )
    made = _library("rbloom", name).Bloom
    pick, serde = getter(of, name), _serde(value)

    def add(acc: bytes, row: Any, timestamp_ms: int) -> bytes:
        x = pick(row)
        if x is None:
            return acc
        held = made.load_bytes(acc, _hash)
        held.add(serde.serialize(x))
        return bytes(held.save_bytes())

    def merge(a: bytes, b: bytes) -> bytes:
        return bytes((made.load_bytes(a, _hash) | made.load_bytes(b, _hash)).save_bytes())

    return Aggregator(
        name=name,
        init=lambda: bytes(made(items, false_positives, _hash).save_bytes()),
        add=add,
        result=bytes,
        serde=BYTES,
        result_serde=BYTES,
        merge=merge,
        exact_merge=True,
    )


def might_hold(filter_: bytes, x: T, *, value: SerdeLike[T] | None = None) -> bool:
    """Whether ``x`` may have occurred, by the result of ``bloom`` with the same ``value``."""
    return _serde(value).serialize(x) in _library("rbloom", "bloom").Bloom.load_bytes(filter_, _hash)


def _hash(data: bytes) -> int:
    """128 bits, signed, the same in every process."""
    return int.from_bytes(blake2b(data, digest_size=16).digest(), "big", signed=True)
