"""Left, right and outer joins of streams by columns and by rows: the same results in the same order, the same late records,
counters, changelogs and stores, waiting records included."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.state import native
from penstock.state.log import Record
from penstock.topologies.columnar import column_parts
from penstock.topologies.expressions.functions import col, count, left, right, struct
from penstock.topologies.operators.base import timer_batches
from tests.properties.test_stream_join_columns import (
    BATCHES,
    CONDITIONS,
    Changing,
    Item,
    Priced,
    Shape,
    Step,
    answers,
    check,
    count_joins,
    live,
    random_steps,
    topology_of,
)

JOINERS: tuple[Any, ...] = (
    struct(one=left(), other=right()),
    struct(n=left("n"), m=right("n"), name=right("name")),
    struct(n=left("n") + right("n"), whole=right()),
    left(),
    right(),
    left("n") - right("n"),
    right("until").is_null(),
    lambda one, other: {
        "one": None if one is None else one.n,
        "other": other.name if other is not None else "nobody",
    },
)
shapes = st.builds(
    Shape,
    st.sampled_from([(Item, Item), (Item, Item), (Priced, Item), (Item, Changing), (Changing, Priced)]),
    st.sampled_from(CONDITIONS),
    st.sampled_from(JOINERS),
    st.integers(-3, 12),
    st.integers(-3, 12),
    st.integers(0, 10),
    st.sampled_from([None, 0, 3, 10]),
    st.sampled_from(["latest", "latest", "left", "right"]),
    st.sampled_from(["left_join", "right_join", "outer_join"]),
    st.sampled_from([False, False, False, True]),
).filter(lambda shape: shape.before + shape.after >= 0)


@pytest.fixture(scope="module")
def tried() -> Counter[bool]:
    """How often batches were joined by columns (true), or left to the rows."""
    return Counter()


@pytest.fixture(autouse=True)
def _counted(tried: Counter[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    count_joins(tried, monkeypatch)


@pytest.fixture(params=["roomy", "tight"], autouse=True)
def _timers_in_memory(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With little room, timers are read and held back in blocks of a few."""
    if request.param == "tight":
        for name, size in (("_HELD_MAX", 3), ("_KNOWN_MAX", 4), ("_BLOCK", 2), ("_PARTS_MAX", 2)):
            monkeypatch.setattr(timer_batches, name, size)


@settings(deadline=None, max_examples=100)
@given(shapes, st.integers(0, 2**32))
def test_the_same_by_columns_and_by_rows(shape: Shape, seed: int) -> None:
    check(shape, seed)


@settings(deadline=None, max_examples=40)
@given(shapes, st.integers(0, 2**32))
def test_rows_and_columns_take_turns(shape: Shape, seed: int) -> None:
    """Some batches are long enough for columns, others are not; and one side's may come as lists."""
    fewest = column_parts.FEWEST
    column_parts.FEWEST = 9
    try:
        check(shape, seed, most=60)
    finally:
        column_parts.FEWEST = fewest


@settings(deadline=None, max_examples=20)
@given(shapes, st.integers(0, 2**32))
def test_the_same_without_the_compiled_part(shape: Shape, seed: int) -> None:
    """Texts are then read and written one by one."""
    with native.without():
        check(shape, seed)


@settings(deadline=None, max_examples=40)
@given(shapes, st.integers(0, 2**32))
def test_the_same_where_changelogs_lose_what_waits(shape: Shape, seed: int) -> None:
    """The records of timers are gone, and counted. None comes again with the same key and time: it would be taken for the
    lost one, whose timer it finds."""
    rng = random.Random(seed)
    steps = [step._replace(then=rng.choice(("lose", "lose", ""))) for step in random_steps(rng, shape, most=25)]
    steps = without_names_of_before(steps + random_steps(rng, shape, most=25)[:1])
    expected = answers(topology_of(shape), steps, 7, columns=False)
    for size in BATCHES:
        assert answers(topology_of(shape), steps, size, columns=True) == expected, size


def without_names_of_before(steps: list[Step]) -> list[Step]:
    """The steps without records that have the side, key and time of one in an earlier step."""
    seen: set[tuple[str, bytes | None, int]] = set()
    found = []
    for step in steps:
        kept = {
            side: [record for record in records if (side, record.key, record.timestamp_ms) not in seen]
            for side, records in step.records.items()
        }
        seen.update((side, record.key, record.timestamp_ms) for side, records in kept.items() for record in records)
        found.append(step._replace(records=kept))
    return found


def least(stream: Any) -> Any:
    """Fields of fields, any of which may be null, aggregated."""
    found = stream.group_by_key().agg(best=col("other.n").max(), first=col("one.name").min(), times=count())
    return found.to_stream()


def chosen(stream: Any) -> Any:
    """Conditions, keys and values of fields of what may be null."""
    some = stream.filter_values(col("one.n").is_null() | col("other").is_null() | (col("one.n") <= col("other.n")))
    return some.select(n=col("one.n") + 1, until=col("other.until"), whole=col("one"))


def alone(stream: Any) -> Any:
    """One side, which may be null, as the value."""
    return stream.map_values(col("other")).map_values(col("name"))


@settings(deadline=None, max_examples=60)
@given(shapes, st.integers(0, 2**32), st.sampled_from([least, chosen, alone]), st.booleans())
def test_what_follows_gets_the_same(shape: Shape, seed: int, then: Any, per_commit: bool) -> None:
    emission = "per_commit" if per_commit else "every_update"
    check(shape._replace(joiner=struct(one=left(), other=right())), seed, then=then, emission=emission)


@pytest.mark.parametrize("seed", range(8))
def test_the_same_on_disk_with_little_memory(seed: int, tmp_path: Path) -> None:
    """Groups and timers are read from the disk again and again. Little memory means more commits, so changelogs are
    others, and so are the expired entries that stores still have."""
    rng = random.Random(seed)
    kind = ("left_join", "outer_join")[seed % 2]
    shape = Shape((Item, Item), CONDITIONS[seed % 6], JOINERS[0], 9, 9, 5, (None, 3)[seed // 2 % 2], "latest", kind)
    steps = [step._replace(then=rng.choice(("", "restart"))) for step in random_steps(rng, shape, most=60)]
    expected = answers(topology_of(shape), steps, 7, columns=False)
    for size in BATCHES:
        found = answers(topology_of(shape), steps, size, columns=True, path=tmp_path / str(size), cache=1)
        assert found[:2] == expected[:2], size
        assert live(found[3]) == live(expected[3]), size


def item(n: int) -> bytes:
    """A value."""
    return msgspec.json.encode(Item(n, "x"))


def test_what_is_due_stands_before_the_record_that_made_it_so() -> None:
    """Within one batch, the right side first, without its headers. The record that makes another due cannot join it."""
    shape = Shape((Item, Item), None, JOINERS[1], 5, 5, 0, None, "latest", "outer_join")
    lefts = [Record(b"b", item(1), 0), Record(b"a", item(2), 0), Record(b"z", item(3), 9), Record(b"z", item(4), 9)]
    rights = [Record(b"c", item(5), 0, (("h", b"1"),)), Record(b"a", item(6), 4), Record(b"b", item(7), 6)]
    steps = [Step({"left": lefts, "right": rights}, "")]
    for columns in (False, True):
        written, _, changelogs, _ = answers(topology_of(shape), steps, 100, columns=columns)
        assert [(r.key, r.timestamp_ms, r.headers) for r in written["out"]] == [
            (b"a", 4, ()),
            (b"c", 0, ()),
            (b"b", 0, ()),
        ], columns
        assert len(changelogs["test-pairs-unmatched-changelog"]) == 3, columns


@pytest.mark.parametrize("size", [1, 100])
def test_late_partners_come_behind_what_was_due(size: int) -> None:
    """A record that has met one is not emitted alone, though another comes after its time; one that has not, is."""
    shape = Shape((Item, Item), None, JOINERS[1], 5, 5, 0, None, "latest", "left_join")
    lefts = [Record(b"a", item(1), 0), Record(b"b", item(2), 0)]
    rights = [Record(b"a", item(3), 2), *(Record(key, item(4), ts) for key, ts in ((b"y", 8), (b"a", 3), (b"b", 3)))]
    steps = [Step({"left": lefts, "right": rights}, "")]
    for columns in (False, True):
        written = answers(topology_of(shape), steps, size, columns=columns)[0]["out"]
        assert [(r.key, r.timestamp_ms) for r in written] == [(b"a", 2), (b"b", 0), (b"a", 3), (b"b", 3)], columns


def test_most_batches_are_joined_by_columns(tried: Counter[bool]) -> None:
    """What the other tests compare is not rows with rows."""
    assert tried[True] > 2 * tried[False] > 0, tried
