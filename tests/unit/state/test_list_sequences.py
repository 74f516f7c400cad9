"""The sequence numbers of a list store: what a view gives is what a new one of the same state gives."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.state.serdes.serde import BYTES
from penstock.state.stores.memory_backend import MemoryBackend
from penstock.state.stores.segmented_store import SegmentedState
from penstock.state.stores.store import StoreSpec, StoreWrites
from penstock.state.stores.store_view import KeyValueStoreView

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.sampled_from([b"", b"a", b"ab"]), st.integers(0, 3)),
        st.tuples(st.just("delete"), st.sampled_from([b"", b"a", b"ab"]), st.integers(0, 3)),
        st.tuples(st.sampled_from(["commit", "discard"]), st.just(b""), st.just(0)),
        st.tuples(st.just("expire"), st.just(b""), st.integers(0, 3)),
    ),
    max_size=40,
)


@given(steps=STEPS)
def test_no_number_depends_on_what_the_view_remembers(steps: list[tuple[str, bytes, int]]) -> None:
    spec = StoreSpec("s", "list", BYTES, BYTES, retention_ms=10)
    backend = MemoryBackend([spec])
    state = KeyValueStoreView(spec, backend)
    lasting = SegmentedState(state)
    floor_ms = 0
    for what, key, time_ms in steps:
        if what == "append":
            fresh = SegmentedState(state)
            fresh.expire_before(floor_ms)
            expected = fresh._last_sequence(key, time_ms) + 1
            assert lasting.append(key, time_ms, b"v") == expected.to_bytes(4, "big")
        elif what == "delete":
            for entry in list(lasting.fetch(key, time_ms, time_ms))[-1:]:
                lasting.delete(key, entry.time_ms, entry.suffix, entry.time_ms)
        elif what == "commit":
            keys, values, _ = state.pending()
            backend.commit([StoreWrites("s", list(zip(keys, values, strict=True)), b"at", state.drop_below)])
            state.committed()
        elif what == "discard":
            state.discard()
        else:
            floor_ms = max(floor_ms, time_ms)
            lasting.expire_before(time_ms)
