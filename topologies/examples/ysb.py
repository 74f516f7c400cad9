"""The pipeline of the Yahoo Streaming Benchmark: the number of views of each campaign in each ten seconds.

Events are keyed by their ad; a table maps each ad to its campaign. Only the type of an event is read, because the ad
is the key and the time is the record's. Views are joined with campaigns, rekeyed by campaign, and counted in windows
of 10 s that accept events up to an hour late. Events of unknown ads are dropped.
"""

from __future__ import annotations

import msgspec

from penstock.state.log import Windowed
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operator_api.operator import Emission
from penstock.topologies.windows import tumbling


class AdEvent(msgspec.Struct, frozen=True, gc=False):
    """The fields that are read of an event; others are skipped without being built."""

    event_type: str


class Ad(msgspec.Struct, frozen=True, gc=False):
    """A row of the table of ads."""

    campaign_id: str


def is_view(event: AdEvent) -> bool:
    """Whether the event counts."""
    return event.event_type == "view"


def campaign_of(event: AdEvent, ad: Ad) -> str:
    """The campaign that a view belongs to."""
    return ad.campaign_id


def under_campaign(ad_id: str, campaign_id: str) -> tuple[str, bytes]:
    """Only the key and the time matter from here on."""
    return campaign_id, b""


def window_name(window: Windowed, count: int) -> str:
    """``<campaign>@<window start in ms>``."""
    return f"{window.key}@{window.start_ms}"


def build(
    events: str = "events",
    ads: str = "ads",
    output: str = "campaign-views",
    *,
    window_ms: int = 10_000,
    emission: Emission = "every_update",
) -> Topology:
    """Counts as text, under ``<campaign>@<window start in ms>``."""
    builder = StreamsBuilder("ysb", key=str, emission=emission)
    campaigns = builder.table(ads, value=Ad)
    views = builder.stream(events, value=AdEvent).filter_values(is_view)
    by_campaign = views.join(campaigns, campaign_of, value=str).map(under_campaign, value=bytes).group_by_key()
    counts = by_campaign.windowed_by(tumbling(window_ms, grace="1h")).count(name="windows")
    counts.to_stream(window_name, key=str).map_values(str, value=str).to(output)
    return builder.build()
