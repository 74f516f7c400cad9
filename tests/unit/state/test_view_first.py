"""``first`` is the first of ``range``, either way, whatever is written, deleted or stored; lists count from their last."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.state.serdes.serde import BYTES
from penstock.state.stores.memory_backend import MemoryBackend
from penstock.state.stores.segmented_store import SegmentedState
from penstock.state.stores.store import StoreSpec, StoreWrites
from penstock.state.stores.store_view import KeyValueStoreView

KEYS = [b"", b"a", b"ab", b"b", b"ba", b"c"]
bounds = st.none() | st.sampled_from(KEYS)
changes = st.lists(st.tuples(st.sampled_from(KEYS), st.booleans(), st.booleans()), max_size=12)


def committed(state: KeyValueStoreView, backend: MemoryBackend) -> None:
    keys, values, _ = state.pending()
    backend.commit([StoreWrites(state.spec.name, list(zip(keys, values, strict=True)), b"")])
    state.committed()


@given(changes, changes, bounds, bounds, st.booleans())
def test_first_is_the_first_of_the_range(
    stored: list[tuple[bytes, bool, bool]],
    written: list[tuple[bytes, bool, bool]],
    low: bytes | None,
    high: bytes | None,
    reverse: bool,
) -> None:
    spec = StoreSpec("s", "key_value", BYTES, BYTES)
    backend = MemoryBackend([spec])
    state = KeyValueStoreView(spec, backend)
    for some in (stored, written):
        for key, there, _ in some:
            state.put(key, b"x" if there else None, 1)
            if state.first(low, high, reverse=reverse) != next(state.range(low, high, reverse=reverse), None):
                raise AssertionError(key)
        if some is stored:
            committed(state, backend)


@given(st.lists(st.tuples(st.sampled_from([b"", b"k", b"k\x00"]), st.integers(0, 2)), max_size=20), st.data())
def test_appended_entries_stand_in_their_order(rows: list[tuple[bytes, int]], data: st.DataObject) -> None:
    spec = StoreSpec("s", "list", BYTES, BYTES, retention_ms=10)
    backend = MemoryBackend([spec])
    view = KeyValueStoreView(spec, backend)
    state = SegmentedState(view)
    expected: dict[tuple[bytes, int], list[bytes]] = {}
    for i, (key, ms) in enumerate(rows):
        state.append(key, ms, b"%d" % i)
        expected.setdefault((key, ms), []).append(b"%d" % i)
        if data.draw(st.booleans()):
            committed(view, backend)
    for (key, ms), values in expected.items():
        assert [e.value for e in state.fetch(key, ms, ms)] == values
