"""What each workload must have answered, counted from the numbers behind the data sets, and the comparison.

Pure: answers come as the records of a topic, ``(key, value)`` in the order of each partition. An answer that differs
makes its run void.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple
from zlib import crc32

import numpy as np
import orjson

from benchmarks import data

Answer = Iterable[tuple[bytes | None, bytes | None]]
ENRICHED = (
    b'{"profile":{"age":%d,"city":"city-%04d","name":"User Number %07d","since":"2020-01-01","tier":"gold"},'
    b'"ts":%d,"url":"/page/%05d","user":"u%07d"}'
)
"""An enriched click: age and city of the profile, its user; time and page of the click, its user."""


class Verdict(NamedTuple):
    """Whether the answer is right, and what was compared or where it differs first."""

    right: bool
    reason: str


def views_per_window(records: int, base_ms: int, window_ms: int = data.WINDOW_MS) -> dict[str, int]:
    """``<campaign>@<window start in ms>`` to its views."""
    campaigns = data.campaign_ids()
    counts: dict[str, int] = {}
    for block, start, count in data.blocks(records):
        ads, types, _, _ = data.draw_events(block, count)
        times = base_ms + (start + np.arange(count)) // data.RECORDS_PER_MS
        viewed = types == data.VIEW
        windows = times[viewed] // window_ms
        pairs = np.stack([ads[viewed] % data.CAMPAIGNS, windows])
        for (campaign, window), views in zip(*_tally(pairs), strict=True):
            name = f"{campaigns[campaign]}@{window * window_ms}"
            counts[name] = counts.get(name, 0) + views
    return counts


def _tally(columns: data.Ints) -> tuple[list[list[int]], list[int]]:
    different, counts = np.unique(columns, axis=1, return_counts=True)
    return different.T.tolist(), counts.tolist()


def uses_per_word(lines: int) -> dict[str, int]:
    """How often each word occurs."""
    likely = data.zipf()
    counts = np.zeros(data.VOCABULARY, np.int64)
    for block, _, count in data.blocks(lines):
        counts += np.bincount(data.draw_lines(block, count, likely).ravel(), minlength=data.VOCABULARY)
    words = data.vocabulary()
    return {words[place]: int(counts[place]) for place in counts.nonzero()[0]}


def clicks_per_user(records: int, users: int = data.USERS) -> dict[str, int]:
    """Clicks of every user that has any."""
    counts = np.zeros(users, np.int64)
    for block, _, count in data.blocks(records):
        counts += np.bincount(data.draw_clicks(block, count, users)[0], minlength=users)
    return {data.user_key(int(user)).decode(): int(counts[user]) for user in counts.nonzero()[0]}


# -- reading answers -----------------------------------------------------------------------------------------------


def text_key(key: bytes) -> str:
    """A key as its text; Faust writes it as JSON."""
    return key.decode().strip('"')


def piped_key(key: bytes) -> str:
    """Quix keeps a state under ``<key as JSON>|<name of the state>``."""
    return text_key(key.split(b"|")[0])


def big_endian(value: bytes) -> int:
    """A long in Java's encoding; a timestamp may stand before it."""
    return int.from_bytes(value[-8:], "big", signed=True)


def json_count(value: bytes) -> int:
    """A number, or the number ``n`` of an object."""
    parsed = json.loads(value)
    return int(parsed["n"] if isinstance(parsed, dict) else parsed)


def last_counts(
    answer: Answer, key: Callable[[bytes], str] = text_key, count: Callable[[bytes], int] = json_count
) -> dict[str, int]:
    """The last value of each key; a key whose last value is a tombstone is absent."""
    last = dict(answer)
    return {key(k): count(v) for k, v in last.items() if k is not None and v is not None}


# -- records that go through one by one ---------------------------------------------------------------------------


class Tally(NamedTuple):
    """A set of records without their order: how many, and the sum of their digests."""

    records: int
    digests: int


def as_it_is(value: bytes) -> bytes:
    """The bytes."""
    return value


def as_json(value: bytes) -> bytes:
    """The same bytes for every spelling of a JSON value: fields by name, no blanks."""
    return orjson.dumps(orjson.loads(value), option=orjson.OPT_SORT_KEYS)


def tally(answer: Answer, canonical: Callable[[bytes], bytes] = as_json) -> Tally:
    """Keys and values belong together in a digest, so that values under each other's keys are told."""
    count = digests = 0
    for key, value in answer:
        count += 1
        digests += crc32(canonical(value or b"null"), crc32(key or b""))
    return Tally(count, digests)


def passed(records: int, base_ms: int) -> Answer:
    """Every event, as ``pass-through`` writes it."""
    for block in data.events(records, base_ms):
        yield from zip(block.keys or (), block.values, strict=True)


def viewed(records: int, base_ms: int) -> Answer:
    """The events that are views, as ``filter`` writes them."""
    for (number, _, count), block in zip(data.blocks(records), data.events(records, base_ms), strict=True):
        types = data.draw_events(number, count)[1]
        for place in np.flatnonzero(types == data.VIEW).tolist():
            yield (block.keys or [])[place], block.values[place]


def projected(records: int, base_ms: int) -> Answer:
    """Ad and time of every event, as ``project`` writes them."""
    for block in data.events(records, base_ms):
        for key, time in zip(block.keys or (), block.timestamps, strict=True):
            yield key, b'{"ad_id":"%b","event_time":%d}' % (key, time)


def enriched(records: int, base_ms: int, users: int = data.USERS) -> Answer:
    """Every click with its own user's profile, as ``enrich`` writes it, in the spelling of ``as_json``."""
    drawn = [data.draw_users(block, count) for block, _, count in data.blocks(users)]
    ages, cities = (np.concatenate(columns) for columns in zip(*drawn, strict=True))
    for block, start, count in data.blocks(records):
        who, pages = data.draw_clicks(block, count, users)
        times = base_ms + (start + np.arange(count)) // data.RECORDS_PER_MS
        columns = (column.tolist() for column in (ages[who], cities[who], who, times, pages, who))
        for row in zip(*columns, strict=True):
            yield data.user_key(row[-1]), ENRICHED % row


def compare_tallies(expected: Tally, found: Tally) -> Verdict:
    """As many records, with the same sum of digests."""
    if expected == found:
        return Verdict(True, f"{expected.records:,} records, sum of digests {expected.digests:x}: equal")
    if expected.records != found.records:
        return Verdict(False, f"{found.records:,} records, {expected.records:,} expected")
    return Verdict(False, f"{found.records:,} records as expected, but not the same ones: the sums of digests differ")


# -- comparing -----------------------------------------------------------------------------------------------------


def compare_counts(expected: Mapping[str, int], found: Mapping[str, int]) -> Verdict:
    """Equal keys with equal counts."""
    if expected == found:
        return Verdict(True, f"{len(expected):,} keys, sum {sum(expected.values()):,}: equal")
    wrong = sorted(key for key in expected.keys() | found.keys() if expected.get(key) != found.get(key))
    first = wrong[0]
    return Verdict(
        False,
        f"{len(wrong):,} keys differ (expected {len(expected):,}, sum {sum(expected.values()):,}; found "
        f"{len(found):,}, sum {sum(found.values()):,}), first {first!r}: {expected.get(first)} expected, "
        f"{found.get(first)} found",
    )
