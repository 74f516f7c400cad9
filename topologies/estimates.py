"""Estimates of what a whole stream would have given, from a sample of it whose rate each record bears.

Every record was kept with a known probability p, its rate, independently of the others (Poisson sampling). Each stands for
1/p of the whole (Horvitz and Thompson): a total is the sum of x/p, its variance the sum of x² (1 - p)/p². The mean is the
ratio of two such totals (variance by linearisation). Distinct values follow Charikar's guaranteed-error estimator: those
seen once stand for the square root of 1/p, those seen more often for themselves; its bounds are what was seen and what
would be there if every value seen once stood for 1/p. Quantiles are those of the values weighted by 1/p, with the bounds
of order statistics at the effective sample size. Of more than 2,048 values some are kept: those whose hashes lie below a
bound, which falls as values come. Each had the same chance, whenever it came, and stands for that many more. Intervals are
for 95 %, by the normal approximation; without shedding they have no width, but for quantiles of a part of the values.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any, TypedDict

import orjson

Z_95 = 1.959963984540054
KEPT_VALUES = 1_024
"""Values that are kept for quantiles, at least: of more, those whose hashes lie below a bound."""
HASHES = 1 << 56


class Estimate(TypedDict):
    """A number and the ends of its interval."""

    value: float
    low: float
    high: float


def interval(value: float, variance: float, floor: float = -math.inf) -> Estimate:
    """The normal interval around a value; nothing below ``floor`` is possible."""
    half = Z_95 * math.sqrt(max(variance, 0.0))
    return {"value": value, "low": max(value - half, floor), "high": value + half}


class Totals(TypedDict):
    """What is remembered of the records: numbers only, so that it can be stored as JSON. ``seen`` counts by value, as
    JSON text; ``kept`` holds ``[hash, value, weight]`` of every record so far whose hash lies below ``bound``."""

    n: int
    weight: float
    weight_variance: float
    total: float
    total_variance: float
    covariance: float
    seen: dict[str, list[float]]
    kept: list[list[Any]]
    bound: int


def nothing() -> Totals:
    """No record yet."""
    return {
        "n": 0,
        "weight": 0.0,
        "weight_variance": 0.0,
        "total": 0.0,
        "total_variance": 0.0,
        "covariance": 0.0,
        "seen": {},
        "kept": [],
        "bound": HASHES,
    }


def added(totals: Totals, number: float | None, what: Any, rate: float, place: bytes) -> Totals:
    """One more record: its number for sums, means and quantiles (``None``: none), its value for distinct counts
    (``None``: not counted), its rate, and bytes that identify it."""
    weight = 1.0 / rate
    spread = weight * (weight - 1.0)
    totals["n"] += 1
    totals["weight"] += weight
    totals["weight_variance"] += spread
    if number is not None:
        totals["total"] += weight * number
        totals["total_variance"] += spread * number * number
        totals["covariance"] += spread * number
        _keep(totals, number, weight, place)
    if what is not None:
        text = orjson.dumps(what, option=orjson.OPT_SORT_KEYS).decode()
        count, most = totals["seen"].get(text, (0, 0.0))
        totals["seen"][text] = [count + 1, max(most, weight)]
    return totals


def _keep(totals: Totals, number: float, weight: float, place: bytes) -> None:
    mark = int.from_bytes(blake2b(place, digest_size=7).digest(), "big")
    if mark >= totals.setdefault("bound", HASHES):
        return
    kept = totals["kept"]
    kept.append([mark, number, weight])
    if len(kept) > 2 * KEPT_VALUES:
        kept.sort()
        bound = totals["bound"] = kept[KEPT_VALUES][0]
        totals["kept"] = [row for row in kept[:KEPT_VALUES] if row[0] < bound]


def count(totals: Totals) -> Estimate:
    """How many records there were."""
    return interval(totals["weight"], totals["weight_variance"], floor=totals["n"])


def total(totals: Totals) -> Estimate:
    """Their sum."""
    return interval(totals["total"], totals["total_variance"])


def mean(totals: Totals) -> Estimate | None:
    """Their mean; ``None`` without records."""
    size = totals["weight"]
    if not size:
        return None
    value = totals["total"] / size
    variance = totals["total_variance"] - 2 * value * totals["covariance"] + value * value * totals["weight_variance"]
    return interval(value, variance / (size * size))


def distinct(totals: Totals) -> Estimate:
    """How many different values there were."""
    once = [weight for seen, weight in totals["seen"].values() if seen == 1]
    more = len(totals["seen"]) - len(once)
    return {
        "value": more + sum(math.sqrt(w) for w in once),
        "low": float(len(totals["seen"])),
        "high": more + math.fsum(once),
    }


def quantiles(totals: Totals, wanted: Sequence[float]) -> dict[str, Estimate]:
    """The quantiles, by their names (``"0.5"``)."""
    share = HASHES / totals.get("bound", HASHES)
    rows = sorted((number, weight * share) for _, number, weight in totals["kept"])
    if not rows:
        return {}
    weights = [w for _, w in rows]
    size = sum(weights)
    effective = size * size / sum(w * w for w in weights)
    sampled = any(w > 1.0 for w in weights)
    found: dict[str, Estimate] = {}
    for q in wanted:
        half = Z_95 * math.sqrt(q * (1 - q) / effective) if sampled else 0.0
        low, value, high = (_at(rows, min(max(p, 0.0), 1.0) * size) for p in (q - half, q, q + half))
        found[str(q)] = {"value": value, "low": low, "high": high}
    return found


def _at(rows: Iterable[tuple[float, float]], reached: float) -> float:
    passed = value = 0.0
    for value, weight in rows:
        passed += weight
        if passed >= reached:
            return value
    return value
