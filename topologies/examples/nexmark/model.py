"""The schema of Nexmark. Fields have the benchmark's names, here and in JSON.

Ids are integers, prices cents, times (``dateTime``, ``expires``) milliseconds since 1970.
"""

from __future__ import annotations

import msgspec

PERSON, AUCTION, BID = 0, 1, 2
"""The kind of an event: its ``event_type``."""


class Person(msgspec.Struct, frozen=True, gc=False):
    """Somebody registers."""

    id: int
    name: str
    emailAddress: str
    creditCard: str
    city: str
    state: str
    dateTime: int
    extra: str


class Auction(msgspec.Struct, frozen=True, gc=False):
    """A person (``seller``) offers an item until ``expires``, inclusive."""

    id: int
    itemName: str
    description: str
    initialBid: int
    reserve: int
    dateTime: int
    expires: int
    seller: int
    category: int
    extra: str


class Bid(msgspec.Struct, frozen=True, gc=False):
    """A person (``bidder``) bids for an auction through a channel."""

    auction: int
    bidder: int
    price: int
    channel: str
    url: str
    dateTime: int
    extra: str


class NexmarkEvent(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One record of the stream: the field named by ``event_type`` is set, the others are null."""

    event_type: int
    person: Person | None = None
    auction: Auction | None = None
    bid: Bid | None = None

    @property
    def dateTime(self) -> int:
        """When it happened."""
        of = self.person or self.auction or self.bid
        assert of is not None
        return of.dateTime


class Offer(msgspec.Struct, frozen=True, gc=False):
    """A bid with its auction."""

    auction: Auction
    bid: Bid


class Listing(msgspec.Struct, frozen=True, gc=False):
    """The fields of an auction that the average price of a category needs."""

    category: int
    dateTime: int
    expires: int


class Price(msgspec.Struct, frozen=True, gc=False):
    """The fields of a bid that it needs."""

    price: int
    dateTime: int


class Counted(msgspec.Struct, frozen=True, gc=False):
    """An auction and how many bids it had in a window."""

    auction: int
    num: int
