"""The event generator of Nexmark: a pure function of its parameters.

Kinds, ids and times of events follow from their numbers alone, by the arithmetic of nexmark/nexmark. What is random is drawn
from SplitMix64, seeded anew with the id of every event, so that any part of the stream can be made alone. Extra text is a
piece of one fixed text of random letters, and a channel has one url for good.

    driver.pipe_raw({"nexmark": list(records(10_000, event_rate=100))})

A stream is split among k generators by ``generators=k`` and a ``first_event_id`` for each, k consecutive ranges.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator
from typing import Any

import msgspec

from penstock.state.log import Record
from penstock.state.serdes.serde import INT
from penstock.topologies.examples.nexmark.model import AUCTION, BID, PERSON, Auction, Bid, NexmarkEvent, Person

FIRST_PERSON_ID = FIRST_AUCTION_ID = 1000
FIRST_CATEGORY_ID, CATEGORIES = 10, 5
HOT_BATCH = 100
"""Every so many persons or auctions another one is hot."""
LEAD = 10
"""Ids are drawn from up to so many persons or auctions that are still to come."""

_FIRST_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
_LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
_CITIES = (
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
)
_STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
_HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parameters:
    """The benchmark's defaults. ``event_rate`` is per second, ``out_of_order_group_size`` the number of events within
    which their order is shaken (1: in order), sizes are in bytes."""

    person_proportion: int = 1
    auction_proportion: int = 3
    bid_proportion: int = 46
    event_rate: int = 10_000
    generators: int = 1
    out_of_order_group_size: int = 1
    in_flight_auctions: int = 100
    active_people: int = 1000
    hot_auction_ratio: int = 2
    hot_sellers_ratio: int = 4
    hot_bidders_ratio: int = 4
    hot_channels_ratio: int = 2
    channels: int = 10_000
    avg_person_size: int = 200
    avg_auction_size: int = 500
    avg_bid_size: int = 100
    first_event_id: int = 0
    first_event_number: int = 0
    base_time_ms: int = 1_436_918_400_000
    seed: int = 0

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            low = 0 if field.name in ("first_event_id", "first_event_number", "base_time_ms", "seed") else 1
            if getattr(self, field.name) < low:
                raise ValueError(f"{field.name}={getattr(self, field.name)} of Nexmark; give {low} or more")

    @property
    def total_proportion(self) -> int:
        """The events after which kinds repeat."""
        return self.person_proportion + self.auction_proportion + self.bid_proportion

    def adjusted(self, number: int) -> int:
        """The number whose event comes at this place of the stream."""
        group = self.out_of_order_group_size
        return number // group * group + number * 953 % group

    def time_ms(self, number: int) -> int:
        """When the event of this number happens."""
        delay_us = 1e6 / self.event_rate * self.generators
        return self.base_time_ms + int(number * delay_us) // 1000

    def last_person(self, event: int) -> int:
        """How many persons came before the last one that registered up to this event."""
        epoch, offset = divmod(event, self.total_proportion)
        return epoch * self.person_proportion + min(offset, self.person_proportion - 1)

    def last_auction(self, event: int) -> int:
        """The same of auctions; -1: there was none."""
        epoch, offset = divmod(event, self.total_proportion)
        passed = min(offset - self.person_proportion, self.auction_proportion - 1)
        return epoch * self.auction_proportion + max(passed, -1)


class SplitMix:
    """SplitMix64: draws that follow from a seed of 64 bits."""

    __slots__ = ("_state",)

    def __init__(self, seed: int) -> None:
        self._state = seed

    def bits(self) -> int:
        """64 random bits."""
        self._state = z = (self._state + 0x9E3779B97F4A7C15) & _64
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _64
        z = (z ^ z >> 27) * 0x94D049BB133111EB & _64
        return z ^ z >> 31

    def below(self, bound: int) -> int:
        """An integer of [0, bound)."""
        return self.bits() * bound >> 64

    def price(self) -> int:
        """100 to 100,000,000, the logarithm uniform."""
        return math.floor(10 ** (6 * (self.bits() >> 11) / 2**53) * 100 + 0.5)

    def text(self, longest: int, separator: str = " ") -> str:
        """At least three characters and less than ``longest``; one of 13 is a separator, at the ends left out."""
        count = 3 + self.below(longest - 3)
        drawn = [separator if self.below(13) == 0 else chr(97 + self.below(26)) for _ in range(count)]
        return "".join(drawn).strip()

    def extra(self, size: int, wanted: int) -> str:
        """Letters that bring what has ``size`` bytes to about ``wanted``."""
        if size > wanted:
            return ""
        missing = wanted - size
        spread = math.floor(missing * 0.2 + 0.5)
        length = missing - spread + (self.below(2 * spread) if spread else 0)
        letters = _letters()
        at = self.below(len(letters))
        while len(letters) < at + length:
            letters += letters
        return letters[at : at + length]


_64 = (1 << 64) - 1


@functools.cache
def _letters() -> str:
    draws = SplitMix(0)
    return "".join([chr(97 + draws.below(26)) for _ in range(1 << 16)])


def events(count: int, **parameters: Any) -> Iterator[NexmarkEvent]:
    """So many events in the order in which they arrive. ``parameters``: fields of ``Parameters``."""
    return (event for _, event in _numbered(count, Parameters(**parameters)))


def records(count: int, **parameters: Any) -> Iterator[Record]:
    """The same as records of the topic: JSON under the event's id (a long), at the event's time."""
    encode = msgspec.json.Encoder().encode
    for number, event in _numbered(count, Parameters(**parameters)):
        yield Record(INT.serialize(number), encode(event), event.dateTime)


def side_input(count: int = 10_000) -> Iterator[Record]:
    """The records of the table that query 13 joins: the text of each number under the number (a long), of time 0."""
    return (Record(INT.serialize(i), str(i).encode(), 0) for i in range(count))


def _numbered(count: int, of: Parameters) -> Iterator[tuple[int, NexmarkEvent]]:
    base = SplitMix(of.seed).bits()
    for number in range(of.first_event_number, of.first_event_number + count):
        at = of.adjusted(number)
        event_id = of.first_event_id + at
        draws = SplitMix(base + event_id & _64)
        kind = event_id % of.total_proportion
        if kind < of.person_proportion:
            yield event_id, NexmarkEvent(PERSON, person=_person(of, draws, event_id, of.time_ms(at)))
        elif kind < of.person_proportion + of.auction_proportion:
            yield event_id, NexmarkEvent(AUCTION, auction=_auction(of, draws, event_id, at))
        else:
            yield event_id, NexmarkEvent(BID, bid=_bid(of, draws, event_id, of.time_ms(at)))


def _any_person(of: Parameters, draws: SplitMix, event: int) -> int:
    known = of.last_person(event) + 1
    active = min(known, of.active_people)
    return known - active + draws.below(active + LEAD)


def _any_auction(of: Parameters, draws: SplitMix, event: int) -> int:
    last = of.last_auction(event)
    low = max(last - of.in_flight_auctions, 0)
    return low + draws.below(last - low + 1 + LEAD)


def _person(of: Parameters, draws: SplitMix, event: int, time_ms: int) -> Person:
    first, last = _FIRST_NAMES[draws.below(11)], _LAST_NAMES[draws.below(9)]
    name = f"{first} {last}"
    email = f"{draws.text(7)}@{draws.text(5)}.com"
    card = " ".join([f"{draws.below(10_000):04d}" for _ in range(4)])
    city, state = _CITIES[draws.below(10)], _STATES[draws.below(6)]
    size = 8 + len(name) + len(email) + len(card) + len(city) + len(state)
    person_id = FIRST_PERSON_ID + of.last_person(event)
    return Person(person_id, name, email, card, city, state, time_ms, draws.extra(size, of.avg_person_size))


def _auction(of: Parameters, draws: SplitMix, event: int, number: int) -> Auction:
    time_ms = of.time_ms(number)
    if draws.below(of.hot_sellers_ratio) > 0:
        seller = of.last_person(event) // HOT_BATCH * HOT_BATCH
    else:
        seller = _any_person(of, draws, event)
    category = FIRST_CATEGORY_ID + draws.below(CATEGORIES)
    initial = draws.price()
    horizon = number + of.in_flight_auctions * of.total_proportion // of.auction_proportion
    expires = time_ms + 1 + draws.below(max(2 * (of.time_ms(horizon) - time_ms), 1))
    item, description = draws.text(20), draws.text(100)
    reserve = initial + draws.price()
    extra = draws.extra(8 + len(item) + len(description) + 40, of.avg_auction_size)
    auction_id = FIRST_AUCTION_ID + of.last_auction(event)
    seller += FIRST_PERSON_ID
    return Auction(auction_id, item, description, initial, reserve, time_ms, expires, seller, category, extra)


def _bid(of: Parameters, draws: SplitMix, event: int, time_ms: int) -> Bid:
    if draws.below(of.hot_auction_ratio) > 0:
        auction = of.last_auction(event) // HOT_BATCH * HOT_BATCH
    else:
        auction = _any_auction(of, draws, event)
    if draws.below(of.hot_bidders_ratio) > 0:
        bidder = of.last_person(event) // HOT_BATCH * HOT_BATCH + 1
    else:
        bidder = _any_person(of, draws, event)
    price = draws.price()
    hot = draws.below(of.hot_channels_ratio) > 0
    channel = -1 - draws.below(len(_HOT_CHANNELS)) if hot else draws.below(of.channels)
    name = _HOT_CHANNELS[-1 - channel] if hot else f"channel-{channel}"
    extra = draws.extra(32, of.avg_bid_size)
    return Bid(
        FIRST_AUCTION_ID + auction, FIRST_PERSON_ID + bidder, price, name, _url(of.seed, channel), time_ms, extra
    )


@functools.lru_cache(maxsize=1 << 16)
def _url(seed: int, channel: int) -> str:
    """A channel's url. Of those that are not hot (numbers from 0 on), nine of ten name their channel by a number of their
    own: the bits of theirs in reverse order, as a signed integer, without the sign."""
    draws = SplitMix(SplitMix(seed ^ _64).bits() + channel & _64)
    folders = "/".join([draws.text(5, "_") for _ in range(3)])
    url = f"https://www.nexmark.com/{folders}/item.htm?query=1"
    if channel < 0 or draws.below(10) == 0:
        return url
    reverse = int(f"{channel:032b}"[::-1], 2)
    return f"{url}&channel_id={reverse if reverse < 1 << 31 else (1 << 32) - reverse}"
