"""Whose time is whose, and that a query is profiled without another answer."""

from __future__ import annotations

import pytest

from benchmarks.nexmark import STREAM
from benchmarks.nexmark_generator import records
from benchmarks.nexmark_profile import DRIVER, SHOWN, Function, profiled, room_of, seconds_by_room, table

HOME = "/somewhere/penstock/"


def test_functions_belong_to_the_room_of_their_file() -> None:
    assert room_of((f"{HOME}state/serdes/serde.py", 1, "serialize")) == "serdes"
    assert room_of((f"{HOME}state/stores/store_view.py", 1, "load")) == "state"
    assert room_of((f"{HOME}topologies/operators/joins/side_input.py", 1, "row")) == "operators"
    assert room_of((f"{HOME}streams/testing/test_driver.py", 1, "pipe")) == DRIVER
    assert room_of((f"{HOME}streams/task/batch_input.py", 1, "locate")) == DRIVER
    assert room_of(("<expression>", 1, "run")) == "expressions"
    assert room_of(("~", 0, "<built-in method len>")) is None


def test_time_of_the_library_is_its_callers() -> None:
    """By the callers' parts of it, over several calls; nothing is lost."""
    store: Function = (f"{HOME}state/stores/store_view.py", 1, "load")
    row: Function = (f"{HOME}topologies/operators/base/row_operator.py", 1, "row")
    ordered: Function = ("/site-packages/sortedcontainers/sortedlist.py", 1, "irange")
    bisect: Function = ("~", 0, "<bisect>")
    found = seconds_by_room(
        {
            store: (1, 1, 1.0, 9.0, {}),
            row: (1, 1, 2.0, 9.0, {}),
            ordered: (4, 4, 4.0, 6.0, {store: (3, 3, 3.0, 4.5), row: (1, 1, 1.0, 1.5)}),
            bisect: (2, 2, 2.0, 2.0, {ordered: (2, 2, 2.0, 2.0)}),
        }
    )
    assert found == pytest.approx({"state": 1 + 6 * 0.75, "operators": 2 + 6 * 0.25})


def test_what_the_driver_asks_of_the_engine_is_the_drivers() -> None:
    """By its part of the calls, over several of them."""
    causes: Function = (f"{HOME}streams/task/task.py", 1, "causes")
    each: Function = (f"{HOME}streams/task/task.py", 2, "<genexpr>")
    stride: Function = (f"{HOME}topologies/graph/lockstep_plan.py", 1, "stride")
    run: Function = (f"{HOME}streams/task/engine.py", 1, "run")
    found = seconds_by_room(
        {
            causes: (1, 1, 1.0, 9.0, {}),
            each: (4, 4, 2.0, 6.0, {causes: (4, 4, 2.0, 6.0)}),
            stride: (4, 4, 4.0, 4.0, {each: (3, 3, 3.0, 3.0), run: (1, 1, 1.0, 1.0)}),
            run: (1, 1, 5.0, 6.0, {}),
        }
    )
    assert found == pytest.approx({DRIVER: 1 + 2 + 3, "engine": 5 + 1})


def test_a_profiled_query_writes_what_it_writes_otherwise() -> None:
    found = profiled("q17", list(records(200, **STREAM)))
    assert found.equal
    assert found.written == 184
    assert sum(found.shares.values()) == pytest.approx(1)
    head, rows = table([found])
    assert len(head) == len(rows[0]) == len(SHOWN) + 4
