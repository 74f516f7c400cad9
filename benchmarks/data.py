"""The data sets: made from seeds alone, so that what a run must answer is known without reading Kafka.

A data set of n records is a prefix of every longer one. Records come in blocks of ``BLOCK``, each from its own
random stream, drawn in whole blocks and cut to size: a last, shorter block holds the same records as the whole one.
The ``draw_*`` functions return the numbers behind the records of one block; the oracle counts those, never the bytes.

| data set | key | value |
| --- | --- | --- |
| ``ads`` | ad (UUID) | its campaign, JSON |
| ``events`` | ad (UUID) | an advertising event of the Yahoo Streaming Benchmark, JSON of about 240 bytes |
| ``lines`` | none | eight words, chosen by Zipf's law from a vocabulary of 50,000 |
| ``users`` | ``u0000000`` … | a profile, JSON of about 90 bytes |
| ``clicks`` | user | a page view, JSON of about 58 bytes |

Timestamps begin at ``base_ms`` and pass at 10 records a millisecond; those of tables lie one hour before.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

SEED = 20261121
BLOCK = 50_000
ADS, CAMPAIGNS = 1_000, 100
VOCABULARY, WORDS_PER_LINE = 50_000, 8
USERS = 1_000_000
RECORDS_PER_MS = 10
WINDOW_MS = 10_000
VIEW = 0
EVENT_TYPES = ("view", "click", "purchase")
AD_TYPES = ("banner", "modal", "sponsored-search", "mail", "mobile")

# One number per random stream; to change one is to make another data set.
_AD_IDS, _CAMPAIGN_IDS, _EVENTS, _EVENT_USERS, _PAGES, _WORDS, _LINES, _USERS, _CLICKS = range(1, 10)


class Records(NamedTuple):
    """Records in the order in which they are produced; ``keys`` is ``None`` when none has a key."""

    keys: list[bytes] | None
    values: list[bytes]
    timestamps: list[int]


def blocks(records: int) -> Iterator[tuple[int, int, int]]:
    """Of each block of a data set: its number, the place of its first record, how many it holds."""
    for start in range(0, records, BLOCK):
        yield start // BLOCK, start, min(BLOCK, records - start)


def _random(stream: int, block: int = 0) -> np.random.Generator:
    return np.random.default_rng([SEED, stream, block])


def _uuids(stream: int, count: int) -> list[str]:
    random = _random(stream)
    return [str(uuid.UUID(bytes=random.bytes(16), version=4)) for _ in range(count)]


def _times(base_ms: int, start: int, count: int) -> list[int]:
    return [base_ms + place // RECORDS_PER_MS for place in range(start, start + count)]


# -- advertising events --------------------------------------------------------------------------------------------


def campaign_ids() -> list[str]:
    """The campaigns; ad i belongs to campaign i modulo their number."""
    return _uuids(_CAMPAIGN_IDS, CAMPAIGNS)


def draw_events(block: int, count: int) -> tuple[Ints, Ints, Ints, Ints]:
    """Ad, event type, user and page of each event, as places in their lists."""
    random = _random(_EVENTS, block)
    ads, types, users, pages = (random.integers(0, high, BLOCK)[:count] for high in (ADS, 3, 100, 100))
    return ads, types, users, pages


def ads(records: int, base_ms: int) -> Iterator[Records]:
    """The table from ad to campaign."""
    campaigns = campaign_ids()
    keys = [ad.encode() for ad in _uuids(_AD_IDS, ADS)][:records]
    values = [f'{{"campaign_id":"{campaigns[i % CAMPAIGNS]}"}}'.encode() for i in range(len(keys))]
    yield Records(keys, values, [base_ms - 3_600_000] * len(keys))


def events(records: int, base_ms: int) -> Iterator[Records]:
    """Views, clicks and purchases, a third each."""
    ad_ids, users, pages = _uuids(_AD_IDS, ADS), _uuids(_EVENT_USERS, 100), _uuids(_PAGES, 100)
    keys = [ad.encode() for ad in ad_ids]
    for block, start, count in blocks(records):
        times = _times(base_ms, start, count)
        columns = (column.tolist() for column in draw_events(block, count))
        values = [
            (
                f'{{"user_id":"{users[user]}","page_id":"{pages[page]}","ad_id":"{ad_ids[ad]}",'
                f'"ad_type":"{AD_TYPES[ad % 5]}","event_type":"{EVENT_TYPES[kind]}",'
                f'"event_time":{time},"ip_address":"1.2.3.4"}}'
            ).encode()
            for ad, kind, user, page, time in zip(*columns, times, strict=True)
        ]
        yield Records([keys[ad] for ad in draw_events(block, count)[0].tolist()], values, times)


# -- lines of words ------------------------------------------------------------------------------------------------


@cache
def vocabulary() -> tuple[str, ...]:
    """Different pseudo-words of 3 to 10 small letters, the most frequent first."""
    random = _random(_WORDS)
    words: dict[str, None] = {}
    while len(words) < VOCABULARY:
        length = int(random.integers(3, 11))
        words["".join(chr(97 + letter) for letter in random.integers(0, 26, length))] = None
    return tuple(words)


def zipf() -> NDArray[np.float64]:
    """How likely a word is among the first i + 1 of the vocabulary."""
    weights = 1.0 / np.arange(1, VOCABULARY + 1)
    likely: NDArray[np.float64] = np.cumsum(weights) / weights.sum()
    return likely


def draw_lines(block: int, count: int, likely: NDArray[np.float64]) -> Ints:
    """Of each line its words, as places in the vocabulary; one row per line. ``likely`` is ``zipf()``."""
    points = _random(_LINES, block).random((BLOCK, WORDS_PER_LINE))[:count]
    places: Ints = np.searchsorted(likely, points).clip(0, VOCABULARY - 1)
    return places


def lines(records: int, base_ms: int) -> Iterator[Records]:
    """Words with one blank between them."""
    words, likely = vocabulary(), zipf()
    for block, start, count in blocks(records):
        rows = draw_lines(block, count, likely).tolist()
        values = [" ".join([words[place] for place in row]).encode() for row in rows]
        yield Records(None, values, _times(base_ms, start, count))


# -- users and their clicks ----------------------------------------------------------------------------------------


def user_key(user: int) -> bytes:
    """The key of a user's records."""
    return b"u%07d" % user


def draw_users(block: int, count: int) -> tuple[Ints, Ints]:
    """Age and city of each user."""
    random = _random(_USERS, block)
    return random.integers(18, 90, BLOCK)[:count], random.integers(0, 5000, BLOCK)[:count]


def users(records: int, base_ms: int) -> Iterator[Records]:
    """The table of profiles."""
    for block, start, count in blocks(records):
        ages, cities = (column.tolist() for column in draw_users(block, count))
        values = [
            b'{"name":"User Number %07d","age":%d,"city":"city-%04d","tier":"gold","since":"2020-01-01"}'
            % (start + i, ages[i], cities[i])
            for i in range(count)
        ]
        yield Records([user_key(start + i) for i in range(count)], values, [base_ms - 3_600_000] * count)


def draw_clicks(block: int, count: int, users: int = USERS) -> tuple[Ints, Ints]:
    """User and page of each click."""
    random = _random(_CLICKS, block)
    return random.integers(0, users, BLOCK)[:count], random.integers(0, 10_000, BLOCK)[:count]


def clicks(records: int, base_ms: int, users: int = USERS) -> Iterator[Records]:
    """Page views of so many users (at most ten million), chosen evenly."""
    for block, start, count in blocks(records):
        who, pages = (column.tolist() for column in draw_clicks(block, count, users))
        times = _times(base_ms, start, count)
        values = [b'{"user":"u%07d","url":"/page/%05d","ts":%d}' % row for row in zip(who, pages, times, strict=True)]
        yield Records([user_key(user) for user in who], values, times)


DATA_SETS: dict[str, Callable[..., Iterator[Records]]] = {
    "ads": ads,
    "events": events,
    "lines": lines,
    "users": users,
    "clicks": clicks,
}
"""Each takes the number of records and ``base_ms``; those in ``KEYED`` the number of different keys too."""
KEYED = ("clicks",)
