"""Advertising events as in the Yahoo Streaming Benchmark, made from a seed, and the count of their views.

A thousand ads belong to a hundred campaigns, ten each. Events are keyed by ad, a third of each type, ten of them per
millisecond of event time. They are drawn in blocks of ``BLOCK``, each from a random stream of its own, so any range can
be made without those before it. ``answer`` counts what was drawn; it never sees a record.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from demo.records import Answer, Rows

EVENTS_TOPIC, ADS_TOPIC, OUTPUT_TOPIC = "events", "ads", "campaign-views"
ADS, CAMPAIGNS, PEOPLE, PAGES = 1_000, 100, 100, 100
EVENT_TYPES = ("view", "click", "purchase")
AD_TYPES = ("banner", "modal", "sponsored-search", "mail", "mobile")
EVENTS_PER_MS = 10
WINDOW_MS = 10_000
BLOCK = 50_000
SEED = 7
_HOUR_MS = 3_600_000
_AD_IDS, _CAMPAIGN_IDS, _PEOPLE_IDS, _PAGE_IDS, _EVENTS = range(5)


@dataclasses.dataclass(frozen=True)
class Events:
    """``size`` events from ``base_ms`` on."""

    size: int
    base_ms: int
    seed: int = SEED

    def rows(self, start: int, stop: int) -> Iterator[Rows]:
        """The table of ads comes before the first event, and is an hour older."""
        ads = self._names(_AD_IDS, ADS)
        if start == 0:
            campaigns = self.campaigns()
            rows = [f'{{"campaign_id":"{campaigns[ad % CAMPAIGNS]}"}}'.encode() for ad in range(ADS)]
            yield Rows(ADS_TOPIC, [ad.encode() for ad in ads], rows, [self.base_ms - _HOUR_MS] * ADS)
        people, pages = self._names(_PEOPLE_IDS, PEOPLE), self._names(_PAGE_IDS, PAGES)
        keys = [ad.encode() for ad in ads]
        heads = [f'","ad_id":"{ad}","ad_type":"{AD_TYPES[i % 5]}","event_type":"' for i, ad in enumerate(ads)]
        for first, drawn in self._blocks(start, stop):
            times = [self.base_ms + place // EVENTS_PER_MS for place in range(first, first + drawn.shape[1])]
            columns = [column.tolist() for column in drawn]
            values = [
                f'{{"user_id":"{people[who]}","page_id":"{pages[page]}{heads[ad]}{EVENT_TYPES[kind]}"'
                f',"event_time":"{time}","ip_address":"1.2.3.4"}}'.encode()
                for ad, kind, who, page, time in zip(*columns, times, strict=True)
            ]
            yield Rows(EVENTS_TOPIC, [keys[ad] for ad in columns[0]], values, times)

    def answer(self, stop: int) -> Answer:
        """``<campaign>@<window start in ms>`` to its views."""
        campaigns = self.campaigns()
        counts: dict[str, int] = {}
        for first, drawn in self._blocks(0, stop):
            viewed = drawn[1] == EVENT_TYPES.index("view")
            times = self.base_ms + (first + np.arange(drawn.shape[1])) // EVENTS_PER_MS
            windows = times[viewed] // WINDOW_MS
            pairs, views = np.unique(windows * CAMPAIGNS + drawn[0][viewed] % CAMPAIGNS, return_counts=True)
            for pair, count in zip(pairs.tolist(), views.tolist(), strict=True):
                name = f"{campaigns[pair % CAMPAIGNS]}@{pair // CAMPAIGNS * WINDOW_MS}"
                counts[name] = counts.get(name, 0) + count
        return Answer(counts, counts)

    def campaigns(self) -> list[str]:
        """The campaigns' ids; ad i belongs to campaign i modulo their number."""
        return self._names(_CAMPAIGN_IDS, CAMPAIGNS)

    def _names(self, stream: int, count: int) -> list[str]:
        random = np.random.default_rng([self.seed, stream])
        return [str(uuid.UUID(bytes=random.bytes(16), version=4)) for _ in range(count)]

    def _blocks(self, start: int, stop: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """The place of the first event of each run, and its ads, types, people and pages as rows."""
        for block in range(start // BLOCK, -(-stop // BLOCK)):
            random = np.random.default_rng([self.seed, _EVENTS, block])
            drawn = np.stack([random.integers(0, high, BLOCK) for high in (ADS, len(EVENT_TYPES), PEOPLE, PAGES)])
            origin = block * BLOCK
            first, last = max(start, origin), min(stop, origin + BLOCK)
            yield first, drawn[:, first - origin : last - origin]
