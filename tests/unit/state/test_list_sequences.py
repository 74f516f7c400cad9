"""The sequence numbers of a list store: what a view gives is what a new one of the same state gives."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from penstock.state.serdes.serde import BYTES, Serde
from penstock.state.stores.list_store import ListStoreView
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


@example(steps=[("append", b"a", 0), ("commit", b"", 0), ("delete", b"a", 0), ("append", b"a", 0)])
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
            expected = fresh._last_sequence(fresh._store_key(key, time_ms, b""), time_ms) + 1
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


WIDE_MS = [0, 1, 59_999, 60_000, 61_000, 10_000_000, 50_000_000]
MUTABLE: Serde[bytes] = Serde("mutable", bytes, bytes)
APPENDS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.sampled_from([b"", b"a", b"ab"]), st.sampled_from(WIDE_MS)),
        st.tuples(st.sampled_from(["commit", "discard", "reopen"]), st.just(b""), st.just(0)),
        st.tuples(st.just("trim"), st.just(b""), st.sampled_from([0, 1_500, 6_000])),
        st.tuples(st.just("expire"), st.just(b""), st.sampled_from(WIDE_MS)),
    ),
    max_size=30,
)


@example(steps=[("append", b"a", 10_000_000), ("append", b"a", 0)], ranges=[], value=BYTES)
@given(
    steps=APPENDS,
    ranges=st.lists(st.tuples(st.sampled_from(WIDE_MS), st.sampled_from(WIDE_MS)), max_size=3),
    value=st.sampled_from([BYTES, MUTABLE]),
)
def test_a_store_that_is_only_appended_to_reads_as_any_other(
    steps: list[tuple[str, bytes, int]], ranges: list[tuple[int, int]], value: Serde[bytes]
) -> None:
    """What is known of its keys and numbers never hides an entry, after expiry, discards, restarts and a lack of memory
    too."""
    spec = StoreSpec("s", "list", BYTES, value, retention_ms=1_000_000)
    backend = MemoryBackend([spec])
    state = ListStoreView(spec, backend)
    lasting = SegmentedState(state, only_appends=True)
    floor_ms = 0
    for number, (what, key, time_ms) in enumerate(steps):
        if what == "append":
            fresh = SegmentedState(state)
            fresh.expire_before(floor_ms)
            expected = fresh._last_sequence(fresh._store_key(key, time_ms, b""), time_ms) + 1
            assert lasting.append(key, time_ms, b"%d" % number) == expected.to_bytes(4, "big")
        elif what == "commit":
            keys, values, _ = state.pending()
            backend.commit([StoreWrites("s", list(zip(keys, values, strict=True)), b"at", state.drop_below)])
            state.committed()
        elif what == "discard":
            state.discard()
        elif what == "trim":
            state.trim(time_ms, remeasure=True)
        elif what == "reopen":
            state = ListStoreView(spec, backend)
            lasting = SegmentedState(state, only_appends=True)
            lasting.expire_before(floor_ms)
        else:
            floor_ms = max(floor_ms, time_ms)
            lasting.expire_before(time_ms)
        plain = SegmentedState(state)
        plain.expire_before(floor_ms)
        for low, high in [*ranges, (0, WIDE_MS[-1])]:
            for of in (b"", b"a", b"ab"):
                assert list(lasting.fetch(of, low, high)) == list(plain.fetch(of, low, high))
                assert list(lasting.fetch(of, low, high, reverse=True)) == list(
                    plain.fetch(of, low, high, reverse=True)
                )
