"""The feed: the rule of the order, when it waits, what it notes, and that its cuts are enough to repeat it."""

from __future__ import annotations

import random

from penstock.streams.ports.chunk import Chunk
from penstock.streams.task.feed import Feed, Run, in_turns
from penstock.streams.task.journal import ClockFiring, Cut

Taken = list[tuple[str, int]]


def chunk(topic: str, first: int, times: list[int]) -> Chunk:
    offsets = list(range(first, first + len(times)))
    return Chunk(topic, 0, offsets, [None] * len(times), [None] * len(times), times)


def places(runs: list[Run]) -> Taken:
    return [(r.chunk.topic, offset) for r in in_turns(runs) for offset in r.chunk.offsets[r.start : r.stop]]


def drained(feed: Feed, batch: int = 100) -> Taken:
    out: Taken = []
    while True:
        runs = feed.take(batch)
        out += places(runs)
        if not runs and feed.next_scripted() is None:
            return out


def filled(logs: dict[str, list[int]], entries: list[Cut | ClockFiring] | None = None) -> Feed:
    """A feed that has everything and knows it."""
    feed = Feed(list(logs), dict.fromkeys(logs, 0), replay=entries or [])
    for topic, times in logs.items():
        feed.add(chunk(topic, 0, times), len(times))
        feed.set_end(topic, len(times))
    return feed


def by_running_maximum(logs: dict[str, list[int]]) -> Taken:
    keyed = []
    for topic, times in logs.items():
        highest = -1
        for offset, ts in enumerate(times):
            highest = max(highest, ts)
            keyed.append((highest, topic, offset))
    return [(topic, offset) for _, topic, offset in sorted(keyed)]


def test_lowest_head_first_ties_by_topic_then_offset() -> None:
    logs = {"b": [1, 5, 5], "a": [5, 2, 9]}
    assert drained(filled(logs)) == [("b", 0), ("a", 0), ("a", 1), ("b", 1), ("b", 2), ("a", 2)]


def test_a_fixed_range_is_sorted_by_running_maximum_whatever_the_batch() -> None:
    rng = random.Random(5)
    for _ in range(300):
        logs = {t: [rng.randint(0, 20) for _ in range(rng.randint(0, 12))] for t in ("a", "b", "c")}
        for batch in (1, 2, 7, 100):
            feed = filled(logs)
            assert drained(feed, batch) == by_running_maximum(logs)
            assert feed.cuts == []


def test_it_waits_for_a_partition_that_may_have_more() -> None:
    feed = Feed(["a", "b"], {"a": 0, "b": 0})
    feed.add(chunk("a", 0, [1, 2]), 2)
    assert feed.take(10) == []
    feed.set_end("b", 0)
    assert places(feed.take(10)) == [("a", 0), ("a", 1)]


def test_a_known_end_counts_only_until_the_position_reaches_it() -> None:
    feed = Feed(["a", "b"], {"a": 0, "b": 3})
    feed.add(chunk("a", 0, [1]), 1)
    feed.set_end("b", 5)
    assert places(feed.take(10)) == [("a", 0)], "an end that was read to without records is where b stands"
    assert feed.positions() == {"a": 1, "b": 5}


def test_control_records_behind_the_last_record_do_not_hold_the_others_up() -> None:
    feed = Feed(["a", "b"], {"a": 0, "b": 0})
    feed.add(chunk("b", 0, [1]), 1)
    feed.set_end("b", 3)  # offsets 1 and 2 are transaction markers
    feed.add(chunk("a", 0, [5]), 1)
    assert places(feed.take(10)) == [("b", 0), ("a", 0)]
    assert feed.positions() == {"a": 1, "b": 3}


def test_offset_gaps_move_the_position_to_where_the_chunk_goes_on() -> None:
    feed = Feed(["a"], {"a": 0})
    feed.add(Chunk("a", 0, [0, 4], [None] * 2, [None] * 2, [1, 2]), 7)
    assert places(feed.take(1)) == [("a", 0)]
    assert feed.positions() == {"a": 1}
    assert places(feed.take(1)) == [("a", 4)]
    assert feed.positions() == {"a": 7}


def test_idle_time_is_waited_once_until_the_partition_has_records_again() -> None:
    feed = Feed(["a", "b"], {"a": 0, "b": 0}, max_task_idle_ms=100)
    feed.set_end("b", 0)
    feed.add(chunk("a", 0, [1, 2, 3, 4]), 4)
    assert feed.take(1, now_ms=1_000) == []
    assert feed.take(1, now_ms=1_099) == []
    assert places(feed.take(1, now_ms=1_100)) == [("a", 0)]
    assert places(feed.take(1, now_ms=1_101)) == [("a", 1)]
    feed.add(chunk("b", 0, [3]), 1)
    assert places(feed.take(2, now_ms=1_102)) == [("a", 2), ("b", 0)]
    feed.set_end("b", 1)
    assert feed.take(1, now_ms=1_103) == [], "b was there in between: the wait starts anew"
    assert places(feed.take(1, now_ms=1_203)) == [("a", 3)]


def test_each_partition_is_waited_for_since_it_was_last_seen_with_records() -> None:
    feed = Feed(["a", "b"], {"a": 0, "b": 0}, max_task_idle_ms=100)
    feed.set_end("b", 0)
    feed.add(chunk("a", 0, [1]), 1)
    feed.set_end("a", 1)
    assert feed.take(9, now_ms=1_000) == []
    assert places(feed.take(9, now_ms=1_100)) == [("a", 0)]
    feed.add(chunk("b", 0, [2]), 1)
    feed.set_end("b", 1)
    assert feed.take(9, now_ms=1_150) == [], "a has been without records for 50 ms only"
    assert places(feed.take(9, now_ms=1_200)) == [("b", 0)]
    assert feed.take(9, now_ms=5_000) == []
    feed.add(chunk("a", 1, [3]), 2)
    feed.set_end("a", 2)
    assert places(feed.take(9, now_ms=6_000)) == [("a", 1)], "b was seen without records a second before"


def test_a_clock_that_is_set_back_makes_nobody_wait_longer() -> None:
    feed = Feed(["a", "b"], {"a": 0, "b": 0}, max_task_idle_ms=100)
    feed.set_end("b", 0)
    feed.add(chunk("a", 0, [1]), 1)
    assert feed.take(1, now_ms=3_600_000) == []
    assert feed.take(1, now_ms=1_000) == []
    assert places(feed.take(1, now_ms=1_100)) == [("a", 0)]


def test_a_record_that_came_too_late_for_its_place_is_noted_as_a_cut() -> None:
    feed = Feed(["a", "b"], {"a": 0, "b": 0})
    feed.add(chunk("a", 0, [10]), 1)
    feed.set_end("a", 1)
    feed.set_end("b", 0)
    assert places(feed.take(10)) == [("a", 0)]
    feed.add(chunk("b", 0, [5]), 1)
    feed.set_end("b", 1)
    assert places(feed.take(10)) == [("b", 0)]
    assert feed.cuts == [Cut({"a": 1, "b": 0})]


def test_a_single_input_needs_no_cuts() -> None:
    feed = Feed(["a"], {"a": 0})
    feed.add(chunk("a", 0, [9, 1, 5]), 3)
    feed.note_start()
    assert drained(feed) == [("a", 0), ("a", 1), ("a", 2)]
    assert feed.cuts == []


def test_the_script_stops_at_each_entry_once() -> None:
    entries: list[Cut | ClockFiring] = [Cut({"a": 1, "b": 0}), ClockFiring({"a": 1, "b": 1}, 0, 5)]
    feed = filled({"a": [10, 11], "b": [5]}, entries)
    assert places(feed.take(10)) == [("a", 0)]
    assert feed.take(10) == []
    assert feed.next_scripted() == entries[0]
    assert feed.next_scripted() is None, "b's record lies within the second range"
    assert places(feed.take(10)) == [("b", 0)]
    assert feed.next_scripted() == entries[1]
    assert places(feed.take(10)) == [("a", 1)]
    assert feed.next_scripted() is None


def live_order(rng: random.Random, logs: dict[str, list[int]]) -> tuple[Taken, list[Cut | ClockFiring]]:
    """The order of a feed to which records come piece by piece, ends known or not, with pauses in between."""
    feed = Feed(list(logs), dict.fromkeys(logs, 0))
    added = dict.fromkeys(logs, 0)
    out: Taken = []
    while any(added[t] < len(logs[t]) for t in logs):
        topic = rng.choice([t for t in logs if added[t] < len(logs[t])])
        piece = logs[topic][added[topic] :][: rng.randint(1, 3)]
        feed.add(chunk(topic, added[topic], piece), added[topic] + len(piece))
        added[topic] += len(piece)
        for t in logs:
            if rng.random() < 0.4:
                feed.set_end(t, added[t])
        out += places(feed.take(rng.choice((1, 3, 100))))
    for t in logs:
        feed.set_end(t, added[t])
    while runs := feed.take(100):
        out += places(runs)
    return out, feed.cuts


def test_cuts_repeat_the_live_order_of_2000_random_arrivals_and_a_plain_merge_does_not() -> None:
    rng = random.Random(20261121)
    differed = 0
    for number in range(2_000):
        now, logs = 0, {}
        for topic in ("a", "b", "c")[: rng.choice((2, 3))]:
            now = 0
            logs[topic] = [
                max(0, (now := now + rng.randint(0, 4)) - rng.choice((0, 0, 6))) for _ in range(rng.randint(0, 8))
            ]
        live, cuts = live_order(rng, logs)
        assert sorted(live) == sorted((t, i) for t, times in logs.items() for i in range(len(times)))
        assert drained(filled(logs, cuts), rng.choice((1, 2, 100))) == live, f"pattern {number}: {logs}, cuts {cuts}"
        differed += drained(filled(logs)) != live
    assert differed > 100, "arrivals were so tame that the cuts were not needed"
