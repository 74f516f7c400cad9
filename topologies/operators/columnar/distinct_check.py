"""Distinct counts of partial aggregates on a small batch, for the check of compiled kernels."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from penstock.state import native
from penstock.state.serdes.serde import BYTES, INT
from penstock.state.serdes.tuple_lists import forms_with_bags
from penstock.state.stores.count_store import state_of
from penstock.state.stores.memory_backend import MemoryBackend
from penstock.state.stores.store import StoreSpec, StoreWrites
from penstock.state.stores.store_view import KeyValueStoreView
from penstock.topologies.aggregators.bag import EMPTY, Bag
from penstock.topologies.aggregators.encoding import BAGS, FLAT, PLAIN, joined
from penstock.topologies.columnar.column_parts import packed_values
from penstock.topologies.operator_api.columns import BytesColumn
from penstock.topologies.operators.base.member_store import MemberStore, members_of, numbered

_NUMBERS: Final = [5, -1, 300, 5, -(1 << 63), (1 << 63) - 1, 300, 128, 7, 5]
_TEXTS: Final = [b"", b"\xa1b", b"\xa1a" * 100, b"\x00"]
_GROUPS: Final = [0, 2, 0, 0, 1, 2, 0, 2, 2, 1]
_PARTS: Final = joined((BAGS, INT, BAGS, FLAT))
_STORE: Final[StoreSpec[Any]] = StoreSpec("counts", "window", BYTES, INT, window_size_ms=9, retention_ms=9)


def bags_written() -> Any:
    """Partial aggregates with values that came as numbers, by codes, and one by one."""
    codes = [group + place for place, group in enumerate(_GROUPS) if group < 2]
    of_codes = [group for group in _GROUPS if group < 2]
    codes = [code % len(_TEXTS) for code in codes]
    if (compiled := native.compiled()) is None:
        first, second = [EMPTY] * 3, [EMPTY] * 3
        for group, number in zip(_GROUPS, _NUMBERS, strict=True):
            first[group] = first[group].moved(PLAIN.serialize(number), 1)
        for group, code in zip(of_codes, codes, strict=True):
            second[group] = second[group].moved(_TEXTS[code], 1)
        first[1] = first[1].combined(Bag([(PLAIN.serialize(5), 3), (b"z", 1 << 40)]), 1)
        partials = [(first[g], 9 - g, second[g], (g, "x")) for g in (2, 0, 1)]
        return packed_values(partials, _PARTS).to_list(), first[1].pairs()
    bags, texts = compiled.Bags(), BytesColumn.of(_TEXTS)
    bags.add_numbers(0, np.array(_GROUPS, np.int64), np.array(_NUMBERS, np.int64))
    bags.add_coded(1, np.array(of_codes, np.int64), np.array(codes, np.int64), texts.data, texts.offsets)
    bags.add_pairs(0, 1, [(PLAIN.serialize(5), 3), (b"z", 1 << 40)])
    forms, groups = forms_with_bags(_PARTS.lists), [2, 0, 1]
    assert forms is not None and bags and bags.has_room(10, 10)
    written = bags.written([(EMPTY, 9 - g, EMPTY, (g, "x")) for g in groups], np.array(groups, np.int64), forms)
    return written and BytesColumn.of_raw(*written).to_list(), bags.pairs(1, 0)


def members_kept() -> Any:
    """Members of partial aggregates, of which the store has some: how many are new, what a commit writes and logs."""
    spec = members_of(_STORE, 9)
    backend = MemoryBackend([spec])
    entries = [0, 1, 0, 1]
    store_keys = [bytes(7) + b"\x09key", bytes(8) + b"other"]
    out: list[Any] = []
    state = state_of(spec, backend)
    members = MemberStore(state)
    for turn in range(2):
        for more in range(2):
            numbers = [Bag([(PLAIN.serialize(n), 1) for n in {*_NUMBERS[at : at + 4 + turn]}]) for at in range(4)]
            texts = [Bag([(text, 2) for text in _TEXTS[: at + more]]) for at in range(4)]
            rows = [(numbers[at], at, texts[at], ("x", at)) for at in range(4)]
            out.append(_found(members, rows, store_keys, entries))
        keys, values, logged = _next_commit(state)
        out.append((keys, values, logged))
        backend.commit([StoreWrites(spec.name, list(zip(keys, values, strict=True)), b"")])
        state.committed()
    return out


def _next_commit(state: KeyValueStoreView) -> tuple[Any, Any, Any]:
    """Return its keys and values, and the records of the changelog."""
    changes = state.packed_changes()
    if changes is None:
        keys, values, times = state.pending()
        return keys, values, ([key[8:] + key[:8] + bytes(4) for key in keys], [v and v[8:] for v in values], times)
    puts, columns = changes.puts.listed(), (changes.keys, changes.values)
    return list(puts.keys), list(puts.values), (*(BytesColumn(*c).to_list() for c in columns), changes.times.tolist())


def _found(members: MemberStore, rows: list[Any], store_keys: list[bytes], entries: list[int]) -> Any:
    """How many members of each row and count are new, and the tuples with these numbers."""
    compiled, forms = native.compiled(), forms_with_bags(_PARTS.lists)
    if compiled is not None and forms is not None:
        partials = packed_values(rows, _PARTS).raw()[:2]
        fresh = members.fresh(partials, forms, store_keys, np.array(entries, np.int64))
        if fresh is None or compiled.read_partials(*partials, forms, None) != []:
            return None
        members.keep()
        return compiled.read_partials(*partials, forms, np.ascontiguousarray(fresh))
    out = []
    for (first, number, second, flat), entry in zip(rows, entries, strict=True):
        counts = []
        for count, bag in enumerate((first, second)):
            keys = [members.head(store_keys[entry]) + numbered(count) + member for member, _ in bag]
            new = [key for key, absent in zip(keys, members.absent(keys), strict=True) if absent]
            members.put(new)
            counts.append(len(new))
        out.append((counts[0], number, counts[1], flat))
    return out
