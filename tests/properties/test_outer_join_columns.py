"""Left, right and outer joins of streams by columns and by rows: the same results in the same order, the same late records,
counters, changelogs and stores, waiting records included."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
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
from penstock.topologies.operators.columnar.stream_join import StreamJoinColumns
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
    join: Callable[..., Any] = StreamJoinColumns.join

    def counting(self: StreamJoinColumns, *args: Any) -> Any:
        found = join(self, *args)
        tried[found is not None] += 1
        return found

    monkeypatch.setattr(StreamJoinColumns, "join", counting)


@settings(deadline=None, max_examples=400)
@given(shapes, st.integers(0, 2**32))
def test_the_same_by_columns_and_by_rows(shape: Shape, seed: int) -> None:
    check(shape, seed)
