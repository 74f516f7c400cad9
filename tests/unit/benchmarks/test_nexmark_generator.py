"""The generator of Nexmark, held to what its arithmetic says."""

from __future__ import annotations

from collections import Counter
from itertools import islice

import msgspec
import pytest

from benchmarks.nexmark_generator import Parameters, SplitMix, events, records, side_input
from penstock.state.serdes.serde import INT
from penstock.topologies.examples.nexmark.model import AUCTION, BID, PERSON, NexmarkEvent
from tests.unit.topologies.examples.nexmark.oracle import auctions_of, bids_of, persons_of

BASE_MS = Parameters().base_time_ms


def test_draws_are_those_of_splitmix64() -> None:
    """The numbers that are published for the seed 1234567."""
    draws = SplitMix(1234567)
    assert [draws.bits() for _ in range(3)] == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_the_same_parameters_give_the_same_events_and_another_seed_gives_others() -> None:
    first = list(events(500))
    assert first == list(events(500)) == list(islice(events(1000), 500))
    other = list(events(500, seed=1))
    assert [e.event_type for e in first] == [e.event_type for e in other]
    assert [b.price for b in bids_of(first)] != [b.price for b in bids_of(other)]


@pytest.mark.parametrize("count", [0, 1, 2, 4, 5, 50, 51, 53, 1000, 1023])
def test_proportions(count: int) -> None:
    kinds = Counter(e.event_type for e in events(count))
    persons = -(-count // 50)
    auctions = sum(min(max(count - 50 * i - 1, 0), 3) for i in range(persons))
    assert kinds == Counter({PERSON: persons, AUCTION: auctions, BID: count - persons - auctions})


def test_ids_and_kinds_follow_from_the_number() -> None:
    for number, event in enumerate(events(500)):
        epoch, place = divmod(number, 50)
        if place == 0:
            assert event.person is not None and event.person.id == 1000 + epoch
        elif place <= 3:
            assert event.auction is not None and event.auction.id == 1000 + 3 * epoch + place - 1
        else:
            assert event.bid is not None


def test_ten_events_share_a_millisecond_by_default() -> None:
    assert [e.dateTime for e in events(35)] == [BASE_MS + i // 10 for i in range(35)]
    assert [e.dateTime for e in events(3, event_rate=3)] == [BASE_MS, BASE_MS + 333, BASE_MS + 666]


def test_groups_shake_the_order_and_lose_nothing() -> None:
    straight = {e.dateTime: e for e in events(1000, event_rate=1000)}
    shaken = list(events(1000, event_rate=1000, out_of_order_group_size=100))
    assert [e.dateTime - BASE_MS for e in shaken[:3]] == [0, 53, 6]
    assert {e.dateTime: e for e in shaken} == straight
    for i in range(0, 1000, 100):
        assert {e.dateTime - BASE_MS for e in shaken[i : i + 100]} == set(range(i, i + 100))


def test_a_stream_is_split_by_ranges_of_ids() -> None:
    whole = list(events(1000))
    parts = [e for first in (0, 500) for e in events(500, first_event_id=first, generators=2)]
    assert [_without_times(e) for e in parts] == [_without_times(e) for e in whole]
    assert [e.dateTime for e in parts[:500]] == [e.dateTime for e in parts[500:]]
    assert parts[499].dateTime == BASE_MS + 99


def _without_times(event: NexmarkEvent) -> object:
    """What does not depend on the delay between events."""
    of = event.person or event.auction or event.bid
    return msgspec.to_builtins(of) | {"dateTime": 0, "expires": 0}


def test_values_lie_where_they_should() -> None:
    made = list(events(20_000))
    bids, auctions, persons = bids_of(made), auctions_of(made), persons_of(made)
    assert all(100 <= b.price <= 10**8 for b in bids)
    assert 0.3 < sum(b.price < 10_000 for b in bids) / len(bids) < 0.37
    assert {a.category for a in auctions} == set(range(10, 15))
    assert all(1 <= a.expires - a.dateTime <= 332 for a in auctions)
    assert all(a.seller <= 1000 + (a.id - 1000) // 3 + 10 for a in auctions)
    assert all(a.reserve >= a.initialBid + 100 for a in auctions)
    assert {p.state for p in persons} == {"AZ", "CA", "ID", "OR", "WA", "WY"}
    for name, wanted in (("person", 200), ("auction", 500), ("bid", 100)):
        sizes = [len(getattr(e, name).extra) for e in made if getattr(e, name) is not None]
        assert 0 < min(sizes) < max(sizes) < 1.2 * wanted


def test_half_of_the_bids_are_for_the_hot_auction() -> None:
    """And a little more, as others draw it too; of sellers and bidders three quarters are the hot one."""
    made = list(events(20_000))
    bids, auctions = bids_of(made), auctions_of(made)
    assert 0.48 < sum(b.auction % 100 == 0 for b in bids) / len(bids) < 0.54
    assert 0.73 < sum(b.bidder % 100 == 1 for b in bids) / len(bids) < 0.78
    assert 0.73 < sum(a.seller % 100 == 0 for a in auctions) / len(auctions) < 0.79
    known = sum(b.channel in ("Google", "Facebook", "Baidu", "Apple") for b in bids)
    assert 0.48 < known / len(bids) < 0.52


def test_a_channel_has_one_url() -> None:
    bids = bids_of(events(20_000, channels=50))
    urls = {b.channel: b.url for b in bids}
    assert len(urls) == 54
    assert all(urls[b.channel] == b.url for b in bids)
    assert all(url.startswith("https://www.nexmark.com/") and len(url.split("/")) == 7 for url in urls.values())
    numbered = {int(c[8:]): u.split("&channel_id=")[1] for c, u in urls.items() if "&channel_id=" in u}
    assert 40 < len(numbered) < 50
    for channel, shown in numbered.items():
        reverse = sum(1 << (31 - i) for i in range(32) if channel >> i & 1)
        assert int(shown) == abs(reverse - (1 << 32 if reverse >> 31 else 0))


def test_records_hold_the_events_as_json() -> None:
    made = list(records(200, out_of_order_group_size=100))
    decode = msgspec.json.Decoder(NexmarkEvent).decode
    assert [decode(r.value or b"") for r in made] == list(events(200, out_of_order_group_size=100))
    assert sorted(INT.deserialize(r.key or b"") for r in made) == list(range(200))
    assert [r.timestamp_ms for r in made] == [e.dateTime for e in events(200, out_of_order_group_size=100)]


def test_the_side_input_has_each_number_under_itself() -> None:
    rows = list(side_input())
    assert len(rows) == 10_000
    assert all(INT.deserialize(r.key or b"") == int(r.value or b"") for r in rows)


def test_parameters_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match=r"event_rate=0 of Nexmark; give 1 or more"):
        Parameters(event_rate=0)
