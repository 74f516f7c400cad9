"""The common input of Nexmark's queries: one topic of events, and the streams of their three kinds."""

from __future__ import annotations

from functools import cached_property

from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.dsl.kstream import KStream
from penstock.topologies.dsl.ktable import KTable
from penstock.topologies.examples.nexmark.model import AUCTION, BID, PERSON, Auction, Bid, NexmarkEvent, Offer, Person
from penstock.topologies.expressions.functions import col, left, right, struct
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operator_api.operator import Emission
from penstock.topologies.operator_api.watermark_strategies import bounded_out_of_orderness

HORIZON = "1h"
"""The longest time between an auction and a bid for it, and the longest life of an auction. In the stream both are
the time in which some hundreds of auctions appear: a second at its usual rate."""


class Nexmark:
    """The inputs of one query. Events are at most 4 s late. Each kind is a stream of its own type, under the event's id.
    ``emission``: when results that are kept up to date are written."""

    def __init__(self, query: str, emission: Emission = "every_update") -> None:
        self.query = query
        self.builder = StreamsBuilder(query, emission=emission)
        late = bounded_out_of_orderness("4s")
        self._events = self.builder.stream("nexmark", key=int, value=NexmarkEvent, watermark=late)

    @cached_property
    def persons(self) -> KStream[int, Person]:
        """Persons who register."""
        return self._events.filter_values(col("event_type") == PERSON).map_values(col("person"), name="persons")

    @cached_property
    def auctions(self) -> KStream[int, Auction]:
        """Auctions that open."""
        return self._events.filter_values(col("event_type") == AUCTION).map_values(col("auction"), name="auctions")

    @cached_property
    def bids(self) -> KStream[int, Bid]:
        """Bids."""
        return self._events.filter_values(col("event_type") == BID).map_values(col("bid"), name="bids")

    @cached_property
    def actions(self) -> KStream[int, NexmarkEvent]:
        """Persons who register, and auctions that open."""
        return self._events.filter_values(col("event_type") != BID)

    @cached_property
    def offers(self) -> KStream[int, Offer]:
        """Each bid that arrived while its auction was open, under the auction's id."""
        auctions, bids = self.auctions.select_key(col("id")), self.bids.select_key(col("auction"))
        in_time = right("dateTime").between(left("dateTime"), left("expires"))
        both = struct(auction=left(), bid=right())
        return auctions.join(
            bids, both, before=0, after=HORIZON, grace=0, condition=in_time, value=Offer, name="offers"
        )

    def topology(self, result: KStream | KTable) -> Topology:
        """The query, whose result goes to the topic with its name."""
        result.to(self.query)
        return self.builder.build()
