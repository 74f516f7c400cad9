"""Every ready-made topology, with input that it has something to do for: the cases of ``test_ready_made``. As a program, a
worker of one of them."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import NamedTuple

from benchmarks import linear_road_generator, nexmark_generator
from benchmarks.linear_road_generator import Traffic
from penstock.state.serdes.serde import serde_of
from penstock.topologies.examples import (
    access_log,
    card_fraud,
    celsius,
    earthquake,
    enrich,
    event_counts,
    failed_logins,
    five_minutes,
    flights,
    keyed_count,
    moving_means,
    page_views,
    player_sessions,
    running_mean,
    search_clicks,
    telco_heatmap,
    temperature_ewma,
    threshold,
    traffic_speed,
    trending_keywords,
    windowed_word_count,
    word_count,
    ysb,
)
from penstock.topologies.examples.linear_road import topology as linear_road_topology
from penstock.topologies.examples.nexmark.suite import QUERIES
from penstock.topologies.graph.topology import Topology
from tests.integration.worker.process import main

SPAN_MS = 30 * 60_000
"""The event time that the input takes."""
WORDS = [f"word{i}" for i in range(2_000)]
long, double = serde_of(int).serialize, serde_of(float).serialize


class Fed(NamedTuple):
    """A record of an input topic."""

    topic: str
    key: bytes | None
    value: bytes
    timestamp_ms: int


class Draw(random.Random):
    """What is random in the input."""

    def below(self, n: int) -> int:
        """Evenly."""
        return int(self.random() * n)

    def skewed(self, n: int) -> int:
        """Small ones much more often."""
        return int(self.random() ** 3 * n)


Feed = Callable[[int, Draw, int], Iterator[Fed]]
"""The given number of records, from the given time on, with rows of tables besides."""


class Case(NamedTuple):
    """``build``: the topology, given when the input begins, in whole minutes of Unix time in milliseconds."""

    build: Callable[[int], Topology]
    feed: Feed


def times(count: int, draw: Draw, begin_ms: int, disorder_ms: int = 0) -> Iterator[tuple[int, int]]:
    """Number and time of each record. Times may be earlier than those before, most of them by little."""
    for i in range(count):
        yield i, begin_ms + i * SPAN_MS // count - int(disorder_ms * draw.random() ** 4)


# -- inputs ----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=16)
def _stamp(second: int) -> str:
    return f"{datetime.fromtimestamp(second, UTC):%d/%b/%Y:%H:%M:%S} +0000"


def log_lines(count: int, draw: Draw, begin_ms: int) -> Iterator[Fed]:
    for i, ms in times(count, draw, begin_ms):
        host, page, size = draw.skewed(300), draw.below(50), draw.below(9_000)
        line = f'10.0.0.{host} - - [{_stamp(ms // 1000)}] "GET /{page} HTTP/1.1" 200 {size}'
        yield Fed("other-log" if i % 3 == 0 else "access-log", b"%d" % (i % 64), line.encode(), ms)


def one_log(count: int, draw: Draw, begin_ms: int) -> Iterator[Fed]:
    return (fed._replace(topic="access-log") for fed in log_lines(count, draw, begin_ms))


def payments(count: int, draw: Draw, begin_ms: int) -> Iterator[Fed]:
    for i, ms in times(count, draw, begin_ms, 12_000):
        kind = draw.random()
        cents = draw.below(100) if kind < 0.05 else 50_000 + draw.below(9_000) if kind > 0.9 else draw.below(9_000)
        value = b'{"id":"%d","cents":%d,"shop":"s%d"}' % (i, cents, draw.below(90))
        yield Fed("payments", b"card%d" % draw.skewed(3_000), value, ms)


def phones(count: int, draw: Draw, begin_ms: int) -> Iterator[Fed]:
    for _, ms in times(count, draw, begin_ms, 3_500):
        phone = draw.below(200)
        shakes = ms // 5_000 % 4 == phone % 20 % 4 and draw.random() < 0.95
        value = b'{"phone":"p%d","cell":"c%d","acceleration":%.2f}'
        strength = 2.6 + draw.random() if shakes else 2.4 * draw.random()
        yield Fed("readings", b"p%d" % phone, value % (phone, phone % 20, strength), ms)


def clicks_and_users(count: int, draw: Draw, begin_ms: int) -> Iterator[Fed]:
    for i, ms in times(count, draw, begin_ms):
        user = b"u%d" % draw.skewed(5_000)
        if i % 50 == 0:
            yield Fed("users", user, b'{"name":"n%d"}' % i, ms)
        yield Fed("clicks", user, b'{"page":"/%d"}' % draw.below(500), ms)


def typed_events(count: int, draw: Draw, begin_ms: int) -> Iterator[Fed]:
    for i, ms in times(count, draw, begin_ms, 60_000):
        yield Fed("events", b"u%d" % draw.below(5_000), b'{"event_type":"t%d","n":%d}' % (draw.skewed(40), i), ms)


def logins(count: int, draw: Draw, begin_ms: int) -> Iterator[Fed]:
    for _, ms in times(count, draw, begin_ms, 40_000):
        user, good = draw.below(9_000), b"true" if draw.random() < 0.9 else b"false"
        value = b'{"address":"a%d","user":"u%d","success":%s}' % (draw.skewed(20_000), user, good)
        yield Fed("logins", b"u%d" % user, value, ms)


def sales(count: int, draw: Draw, begin_ms: int) -> Iterator[Fed]:
    for i, ms in times(count, draw, begin_ms, 60_000):
        yield Fed("sales", b"shop%d" % draw.below(400), long(draw.below(900)), ms - 7_200_000 * (i % 997 == 0))


def flights_and_weather(count: int, draw: Draw, begin_ms: int) -> Iterator[Fed]:
    for i, ms in times(count, draw, begin_ms):
        airport = b"A%d" % draw.below(300)
        if i % 20 == 0:
            yield Fed("airport-weather", airport, b'{"rain":%.1f}' % max(0.0, draw.random() - 0.7), ms)
        value = b'{"delay":null}' if draw.random() < 0.02 else b'{"delay":%d}' % (draw.skewed(120) - 5)
        yield Fed("departures", airport, value, ms)


def numbers(topic: str, keys: int, written: Callable[[Draw], bytes]) -> Feed:
    """One number a record."""

    def feed(count: int, draw: Draw, begin_ms: int) -> Iterator[Fed]:
        for _, ms in times(count, draw, begin_ms, 2_000):
            yield Fed(topic, b"k%d" % draw.skewed(keys), written(draw), ms)

    return feed


def views(count: int, draw: Draw, begin_ms: int) -> Iterator[Fed]:
    for _, ms in times(count, draw, begin_ms, 6_000):
        employer = draw.below(400)
        value = b'{"offer":%d,"employer":"e%d","seconds":%.1f}'
        user = draw.skewed(20) if draw.random() < 0.05 else draw.below(20_000)
        yield Fed("page-views", b"u%d" % user, value % (employer * 50 + draw.skewed(50), employer, draw.random()), ms)


def scores(count: int, draw: Draw, begin_ms: int) -> Iterator[Fed]:
    for i, ms in times(count, draw, begin_ms, 90_000):
        value = b'{"points":%d}' % draw.below(100)
        yield Fed("scores", b"p%d" % draw.below(60_000), value, ms - 7_200_000 * (i % 997 == 0))


def searches_and_clicks(count: int, draw: Draw, begin_ms: int) -> Iterator[Fed]:
    for i, ms in times(count, draw, begin_ms, 70_000):
        if i % 2 == 0 or draw.random() < 0.2:
            value = b'{"user":"u%d","query":"q%d","at_ms":%d}' % (draw.below(900), draw.below(5_000), ms)
            yield Fed("searches", b"s%d" % i, value, ms)
        else:
            searched = max(0, i - 1 - 2 * draw.skewed(count // 8))
            value = b'{"url":"/%d","position":%d,"at_ms":%d}' % (draw.below(900), draw.below(10), ms)
            yield Fed("clicks", b"s%d" % searched, value, ms)


def downloads(count: int, draw: Draw, begin_ms: int) -> Iterator[Fed]:
    for i, ms in times(count, draw, begin_ms, 12_000):
        subscriber = b"s%d" % draw.below(20_000)
        if i % 40 == 0:
            yield Fed("subscribers", subscriber, b'{"contract":"%s"}' % draw.choice((b"premium", b"basic")), ms)
        value = b'{"cell":"c%d","bytes":%d,"millis":%d}' % (draw.below(200), draw.below(1 << 20), 1 + draw.below(999))
        yield Fed("measurements", subscriber, value, ms)


def positions(count: int, draw: Draw, begin_ms: int) -> Iterator[Fed]:
    for i, ms in times(count, draw, begin_ms, 45_000):
        value = b'{"latitude":%.3f,"longitude":%.3f,"speed":%.1f}'
        place = 59 + draw.random() / 8, 10 + draw.random() / 8, 130 * draw.random()
        yield Fed("positions", b"c%d" % draw.below(5_000), value % place, ms - 7_200_000 * (i % 997 == 0))


def posts(count: int, draw: Draw, begin_ms: int) -> Iterator[Fed]:
    for _, ms in times(count, draw, begin_ms, 6_000):
        text = f"about #{WORDS[draw.skewed(300)]} and #{WORDS[draw.skewed(300)]}"
        yield Fed("posts", long(draw.below(10_000)), text.encode(), ms)


def lines(count: int, draw: Draw, begin_ms: int) -> Iterator[Fed]:
    for i, ms in times(count, draw, begin_ms, 2_500):
        text = " ".join(WORDS[draw.skewed(2_000)] for _ in range(4))
        yield Fed("lines", b"%d" % (i % 97), text.encode(), ms)


def ad_events(count: int, draw: Draw, begin_ms: int) -> Iterator[Fed]:
    for ad in range(1_000):
        yield Fed("ads", b"ad%d" % ad, b'{"campaign_id":"c%d"}' % (ad // 10), begin_ms)
    for _, ms in times(count, draw, begin_ms, 60_000):
        kind = draw.choice((b"view", b"click", b"purchase"))
        yield Fed("events", b"ad%d" % draw.below(1_010), b'{"event_type":"%s"}' % kind, ms)


def auctions(count: int, draw: Draw, begin_ms: int) -> Iterator[Fed]:
    for record in nexmark_generator.side_input():
        yield Fed("nexmark-side-input", record.key, record.value, begin_ms)
    for record in nexmark_generator.records(count, base_time_ms=begin_ms, out_of_order_group_size=100):
        yield Fed("nexmark", record.key, record.value, record.timestamp_ms)


def traffic(count: int, draw: Draw, begin_ms: int) -> Iterator[Fed]:
    minutes = 60
    made = Traffic(cars=count // 35, minutes=minutes, expressways=2)  # a car drives for some of the minutes
    for record in linear_road_generator.former_tolls(made):
        yield Fed("linear-road-former-tolls", record.key, record.value, begin_ms)
    for record in linear_road_generator.records(made):
        yield Fed("linear-road", record.key, record.value, begin_ms + record.timestamp_ms)


# -- the cases -------------------------------------------------------------------------------------------------------


def _case(build: Callable[..., Topology], feed: Feed, **how: object) -> Case:
    return Case(partial(_built, partial(build, **how)), feed)


def _built(build: Callable[[], Topology], began_ms: int) -> Topology:
    return build()


def _linear_road(began_ms: int) -> Topology:
    return linear_road_topology.build("linear-road", "linear-road-former-tolls", began_ms=began_ms)


CASES: dict[str, Case] = {
    "access_log.hits_per_ip": _case(access_log.hits_per_ip, one_log),
    "access_log.hits_by_count": _case(access_log.hits_by_count, one_log),
    "access_log.hits_of_both": _case(access_log.hits_of_both, log_lines),
    "access_log.hits_in_window": _case(access_log.hits_in_window, one_log),
    "access_log.hits_of_five_seconds": _case(access_log.hits_of_five_seconds, one_log),
    "access_log.bytes_of_five_seconds": _case(access_log.bytes_of_five_seconds, one_log),
    "access_log.total_hits": _case(access_log.total_hits, one_log),
    "card_fraud": _case(card_fraud.build, payments),
    "celsius": _case(celsius.build, numbers("celsius", 500, lambda draw: b"%.1f" % draw.uniform(-30, 40))),
    "earthquake": _case(earthquake.build, phones),
    "enrich": _case(enrich.build, clicks_and_users),
    "event_counts": _case(event_counts.build, typed_events),
    "failed_logins": _case(failed_logins.build, logins),
    "five_minutes": _case(five_minutes.build, sales),
    "flights": _case(flights.build, flights_and_weather),
    "keyed_count": _case(keyed_count.build, numbers("clicks", 50_000, lambda draw: b"v"), output="counts"),
    "linear_road": Case(_linear_road, traffic),
    "moving_means": _case(moving_means.build, numbers("measures", 2_000, lambda draw: long(draw.below(99)))),
    "page_views": _case(page_views.build, views),
    "player_sessions": _case(player_sessions.build, scores),
    "running_mean": _case(running_mean.build, numbers("avg", 2_000, lambda draw: b"%.2f" % draw.random())),
    "search_clicks": _case(search_clicks.build, searches_and_clicks),
    "telco_heatmap": _case(telco_heatmap.build, downloads),
    "temperature_ewma": _case(
        temperature_ewma.build, numbers("temperatures", 2_000, lambda draw: double(draw.uniform(-30, 110)))
    ),
    "threshold": _case(
        threshold.build, numbers("readings", 500, lambda draw: b'{"value":%.1f}' % draw.uniform(0, 200))
    ),
    "traffic_speed": _case(traffic_speed.build, positions),
    "trending_keywords": _case(trending_keywords.build, posts),
    "windowed_word_count.five_seconds": _case(windowed_word_count.five_seconds, lines),
    "windowed_word_count.five_minutes": _case(windowed_word_count.five_minutes, lines),
    "word_count": _case(word_count.build, lines),
    "ysb": _case(ysb.build, ad_events),
    **{f"nexmark.{name}": _case(build, auctions) for name, build in QUERIES.items()},
}


def topology_of(case: str, began_ms: int) -> Topology:
    """The topology of a case."""
    return CASES[case].build(began_ms)


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    main(given, topology_of(given["case"], given["began_ms"]))
