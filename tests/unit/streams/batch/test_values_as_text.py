"""Keys and values as people read them, and when two values count as the same."""

from __future__ import annotations

import math

import msgspec
import pytest

from penstock.state.serdes.serde import FLOAT, STRING, serde_of
from penstock.state.stores.store import StoreSpec
from penstock.streams.batch.values_as_text import StoredForm, Tolerance, entry_key, forms_of
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.windows import SessionWindows, TumblingWindows


class Mean(msgspec.Struct):
    of: str
    mean: float


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (1.0, 1.0 + 1e-12, True),
        (1.0, 1.001, False),
        (1e-12, -1e-12, True),
        (math.nan, math.nan, True),
        (math.nan, 1.0, False),
        (1, 1.0, True),
        (True, 1.0, False),
        (10**12, 10**12 + 1, False),
        ("1.0", "1.0000000001", False),
        ({"a": [1.0, 2.0]}, {"a": [1.0, 2.0 + 1e-12]}, True),
        ({"a": [1.0, 2.0]}, {"a": [1.0]}, False),
        ({"a": 1.0}, {"b": 1.0}, False),
    ],
)
def test_numbers_are_close_and_the_rest_is_equal(one: object, other: object, same: bool) -> None:
    tolerance = Tolerance(relative=1e-9, absolute=1e-9)
    assert tolerance.close(one, other) is same and tolerance.close(other, one) is same


def test_stored_values_are_compared_without_their_timestamps_and_by_their_fields() -> None:
    spec = StoreSpec("means", "key_value", STRING, serde_of(Mean))
    form = StoredForm(STRING, serde_of(Mean), spec)
    one, other = (bytes(8) + serde_of(Mean).serialize(Mean("a", m)) for m in (0.1 + 0.2, 0.3))
    assert one != other and form.close(one, other, Tolerance(relative=1e-9))
    assert not form.close(one, other, Tolerance(absolute=1e-18)) and not form.close(one, None, Tolerance(1.0))
    assert not form.close(one, bytes(8) + b"no JSON", Tolerance(1.0))
    assert form.value_text(other) == '{"of": "a", "mean": 0.3}' and form.value_text(None) is None
    assert StoredForm(STRING, FLOAT).value_text(b"short") == "b'short'"


def test_keys_of_every_kind_of_store_show_what_they_are_of() -> None:
    b = StreamsBuilder("kinds", key=str, value=str)
    stream = b.stream("in").group_by_key()
    stream.count(name="plain")
    stream.windowed_by(TumblingWindows(100)).count(name="windows")
    stream.windowed_by(SessionWindows(50)).count(name="sessions")
    topology = b.build()
    forms = forms_of(topology, "app")
    shown = {}
    with TopologyTestDriver(topology) as driver:
        driver.pipe("in", "oslo", "x", timestamp_ms=230)
        driver.pipe("in", "oslo", "x", timestamp_ms=250)
        for spec in topology.stores:
            backend = next(t.backend for t in driver.tasks.values() if spec.name in t.stores)
            ((key, value),) = backend.range(spec.name, None, None)
            form = forms["store", spec.name]
            shown[spec.name] = (form.key_text(key), form.value_text(value), entry_key(spec, key)[0])
    assert shown == {
        "plain": ('"oslo"', "2", b"oslo"),
        "windows": ('"oslo" window_start=200', "2", b"oslo"),
        "sessions": ('"oslo" window_start=230 window_end=250', "2", b"oslo"),
    }
