"""The content of a store of any kind, as records."""

from __future__ import annotations

from penstock.state.log import Record, Windowed
from penstock.state.stores.segmented_store import SegmentedState
from penstock.state.stores.store import SEGMENTED
from penstock.state.stores.store_view import KeyValueStoreView
from penstock.streams.testing.test_driver import TopologyTestDriver
from tests.conformance.case_format import CaseError

_FOREVER = (1 << 62) - 1


def records_of(driver: TopologyTestDriver, name: str) -> list[Record]:
    """What a store holds in all its tasks, uncommitted writes included; windowed keys are ``Windowed``. Of a versioned
    store the latest version of each row."""
    states = [task.stores[name] for task in driver.tasks.values() if name in task.stores]
    if not states:
        known = ", ".join(s.name for s in driver.topology.stores) or "none"
        raise CaseError(f"the topology has no store {name!r}; there are: {known}")
    return [record for state in states for record in records_in(state)]


def records_in(state: KeyValueStoreView) -> list[Record]:
    """What one task's store holds."""
    spec = state.spec
    read = spec.key_serde.deserialize
    if spec.kind in SEGMENTED:
        return _segmented(state)
    if spec.kind == "window":
        size = spec.window_size_ms or 0
        starts = [(k[8:], int.from_bytes(k[:8], "big"), v, ts) for k, v, ts in state.range()]
        return [Record(Windowed(read(key), start, start + size), v, ts) for key, start, v, ts in starts]
    if spec.kind == "versioned":
        # ascending by key, then by time: the last version of each key stays; a version may be that the row is gone
        latest = {key[:-8]: (version[0], ts) for key, version, ts in state.range()}
        return [Record(read(key), value, ts) for key, (value, ts) in latest.items() if value is not None]
    return [Record(read(key), value, ts) for key, value, ts in state.range()]


def _segmented(state: KeyValueStoreView) -> list[Record]:
    spec = state.spec
    found = []
    for entry in SegmentedState(state).scan(0, _FOREVER):
        key = spec.key_serde.deserialize(entry.key)
        if spec.kind == "session":
            window = Windowed(key, int.from_bytes(entry.suffix, "big"), entry.time_ms)
        else:
            window = Windowed(key, entry.time_ms, entry.time_ms + (spec.window_size_ms or 0))
        found.append(Record(window, entry.value, entry.timestamp_ms))
    return found
