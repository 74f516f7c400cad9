"""Events of the Yahoo Streaming Benchmark sent by the clock, for ``benchmarks.yahoo_extended``, and their right counts."""

from __future__ import annotations

from collections import Counter

import numpy as np

from benchmarks import data
from benchmarks.live import Ints, new_producer, now_us, produce

SKEW_MS, LATE_MS, LATE_ONCE_IN = 50, 60_000, 100_000
Window = tuple[str, int]
"""Campaign and start in milliseconds."""


def draw(random: np.random.Generator, moments_us: Ints) -> tuple[Ints, Ints, Ints]:
    """Ad, type and time (ms) of the events that are due at these moments."""
    count = len(moments_us)
    ads, types = random.integers(0, data.ADS, count), random.integers(0, len(data.EVENT_TYPES), count)
    times = moments_us // 1000 + SKEW_MS - random.integers(0, 2 * SKEW_MS, count)
    late = random.integers(0, LATE_ONCE_IN, count) == 0
    return ads, types, times - np.where(late, random.integers(0, LATE_MS, count), 0)


class Live:
    """Sends events and keeps what they must lead to: views by window, and when the last of each was due (µs)."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.views: Counter[Window] = Counter()
        self.last_us: dict[Window, int] = {}
        self._topic, self._producer = topic, new_producer(bootstrap)
        self._random = np.random.default_rng(data.SEED)
        self._ads = [key.decode() for block in data.ads(data.ADS, 0) for key in block.keys or ()]
        self._campaigns = data.campaign_ids()

    def send(self, moments: Ints) -> None:
        """One event for each moment at which one is due."""
        for due_us, ad, kind, time_ms in zip(
            moments.tolist(), *(column.tolist() for column in draw(self._random, moments)), strict=True
        ):
            self._send(ad, kind, time_ms)
            if kind == data.VIEW:
                window = self._campaigns[ad % data.CAMPAIGNS], time_ms // data.WINDOW_MS * data.WINDOW_MS
                self.views[window] += 1
                self.last_us[window] = due_us
        self._producer.poll(0)

    def _send(self, ad: int, kind: int, time_ms: int) -> None:
        name = self._ads[ad]
        event = (
            f'{{"user_id":"{name}","page_id":"{name}","ad_id":"{name}","ad_type":"{data.AD_TYPES[ad % 5]}",'
            f'"event_type":"{data.EVENT_TYPES[kind]}","event_time":"{time_ms}","ip_address":"1.2.3.4"}}'
        )
        produce(self._producer, self._topic, name.encode(), event.encode(), time_ms)

    def warm(self, count: int) -> None:
        """Send clicks, which no window counts."""
        for ad in range(count):
            self._send(ad % data.ADS, 1, now_us() // 1000)
        self.flush()

    def flush(self) -> None:
        """Wait until all are with the broker."""
        self._producer.flush()
