"""The records of the shop, made from a seed: clicks, orders and payments of as many seconds as are wanted, users, products.

Ten users click in each millisecond, out of twenty thousand who are there; each stays for twenty seconds and comes back
after a thousand. Every tenth click becomes an order. An order is paid within a minute, one in four after failures. A last
record of each stream lies an hour later, so that all windows close in all systems.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

SEED = 20261128
USERS, PRODUCTS, CARDS = 1_000_000, 10_000, 50_000
PRESENT = 20_000
CLICKS_PER_MS = 10
ORDER_EVERY = 10
HOUR_MS = 3_600_000
COUNTRIES = ("AT", "BR", "CA", "DE", "ES", "FR", "GB", "IN", "IT", "JP", "NL", "US")
CATEGORIES = 40

Row = tuple[bytes | None, bytes | None, int]
Ints = NDArray[np.int64]


def _random(stream: int) -> np.random.Generator:
    return np.random.default_rng([SEED, stream])


def users(base_ms: int) -> Iterator[Row]:
    """A row for each user, an hour before the first click."""
    for user in range(USERS):
        value = b'{"name":"Customer %d","country":"%s"}' % (user, COUNTRIES[user * 7 % 12].encode())
        yield b"u%07d" % user, value, base_ms - HOUR_MS


def products(base_ms: int) -> Iterator[Row]:
    """A row for each product, an hour before the first click."""
    for product in range(PRODUCTS):
        facts = (product, product * 13 % CATEGORIES, 199 + product * 37 % 50_000)
        value = b'{"title":"Product %d","category":"c%02d","cents":%d}' % facts
        yield b"p%05d" % product, value, base_ms - HOUR_MS


def _drawn(clicks: int) -> tuple[Ints, Ints, Ints]:
    """Of each click: its user, its product, its millisecond. Products follow a power law."""
    at = np.arange(clicks) // CLICKS_PER_MS
    here = _random(1).integers(0, PRESENT, clicks)
    wanted = np.minimum(_random(2).pareto(0.8, clicks) * 10, PRODUCTS - 1).astype(np.int64)
    return (at + here) % USERS, wanted, at


def clicks(count: int, base_ms: int) -> Iterator[Row]:
    """This many clicks, then the last one."""
    for user, product, at in zip(*(column.tolist() for column in _drawn(count)), strict=True):
        name = b"u%07d" % user
        yield name, b'{"user":"%s","product":"p%05d"}' % (name, product), base_ms + at
    yield b"last", b'{"user":"last","product":"p00000"}', _end_ms(count, base_ms)


def orders(count: int, base_ms: int) -> Iterator[Row]:
    """The orders of this many clicks, then the last one."""
    quantities = _random(3).integers(1, 5, count // ORDER_EVERY + 1).tolist()
    rows = zip(*(column[::ORDER_EVERY].tolist() for column in _drawn(count)), quantities, strict=False)
    for number, (user, product, at, quantity) in enumerate(rows):
        name = b"u%07d" % user
        value = b'{"id":%d,"user":"%s","product":"p%05d","quantity":%d}' % (number, name, product, quantity)
        yield name, value, base_ms + at
    yield b"last", b'{"id":-1,"user":"last","product":"p00000","quantity":1}', _end_ms(count, base_ms)


def payments(count: int, base_ms: int) -> Iterator[Row]:
    """The payments of the orders of this many clicks by time, then the last one. No card pays twice at one time."""
    total = -(-count // ORDER_EVERY)
    placed = np.arange(total) * ORDER_EVERY // CLICKS_PER_MS
    failures = np.minimum(_random(4).geometric(0.75, total) - 1, 3)
    waits, cards = _random(5).integers(1_000, 15_000, total), _random(6).integers(0, CARDS, total)
    cents = _random(7).integers(199, 200_000, total)
    number = np.repeat(np.arange(total), failures + 1)
    attempt = np.arange(len(number)) - np.repeat(np.cumsum(failures + 1) - failures - 1, failures + 1)
    at = placed[number] + waits[number] * (attempt + 1)
    in_order = np.lexsort((number, at))
    last_ms = [-1] * CARDS
    columns = (number, cards[number], cents[number], attempt == failures[number], at)
    for order, card, amount, ok, wanted_ms in zip(*(c[in_order].tolist() for c in columns), strict=True):
        last_ms[card] = at_ms = max(wanted_ms, last_ms[card] + 1)
        facts = (order, card, amount, b"true" if ok else b"false")
        value = b'{"order":%d,"card":"k%05d","cents":%d,"ok":%s}' % facts
        yield b"k%05d" % card, value, base_ms + at_ms
    yield b"last", b'{"order":-2,"card":"last","cents":0,"ok":false}', _end_ms(count, base_ms)


def _end_ms(count: int, base_ms: int) -> int:
    return base_ms + count // CLICKS_PER_MS + HOUR_MS
