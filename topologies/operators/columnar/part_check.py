"""Aggregates of whole numbers on a small batch, for the check of compiled kernels."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from penstock.state.serdes.serde import BYTES, INT
from penstock.state.stores.count_store import state_of
from penstock.state.stores.memory_backend import MemoryBackend
from penstock.state.stores.part_store import COUNT, GREATEST, LEAST, TOTAL, PartStoreView
from penstock.state.stores.store import StoreSpec, StoreWrites
from penstock.state.stores.store_view import KeyValueStoreView, window_key
from penstock.topologies.aggregators.encoding import FLAT, joined
from penstock.topologies.operator_api.columns import BytesColumn

_SERDE: Final = joined((INT, FLAT, FLAT, FLAT))
_PARTS: Final = COUNT + TOTAL + LEAST + GREATEST
_NUMBERS: Final = [5, -1, 300, 70_000, -33, -129, -40_000, 1 << 40, -(1 << 40), 0]
_KEYS: Final = [b"", b"a", b"a key of some length" * 3, b"a"]
_NOTHING: Final[Any] = (0, (0, 0), (), ())


def parts_tallied() -> Any:
    """Records and partial aggregates of windows and without them, over commits: what these write and log, and what is shown
    of it."""
    out: list[Any] = []
    for spec in (
        StoreSpec("windows", "window", BYTES, _SERDE, window_size_ms=9, retention_ms=90),
        StoreSpec("keys", "key_value", BYTES, _SERDE),
    ):
        backend = MemoryBackend([spec])
        state = state_of(spec, backend)
        if isinstance(state, PartStoreView):
            state.use(_PARTS)
        for turn in range(3):
            _records(state, turn)
            _partials(state, turn)
            out.append(_next_commit(state))
            keys, values, _ = out[-1][:3]
            backend.commit([StoreWrites(spec.name, list(zip(keys, values, strict=True)), b"")])
            state.committed()
    return out


def _rows(state: KeyValueStoreView, turn: int) -> tuple[list[bytes], Any, Any]:
    """Keys, starts of windows if there are any, and times."""
    count = len(_NUMBERS)
    keys = [_KEYS[(n + turn) % len(_KEYS)] for n in range(count)]
    starts = np.array([9 * (n % 2) for n in range(count)], np.int64) if state.spec.kind == "window" else None
    return keys, starts, np.array([(7 * n) % 10 - turn for n in range(count)], np.int64)


def _records(state: KeyValueStoreView, turn: int) -> None:
    keys, starts, times = _rows(state, turn)
    nulls = [n % 3 == turn for n in range(len(keys))]
    if isinstance(state, PartStoreView):
        column, flags, numbers = BytesColumn.of(keys), np.array(nulls).view(np.uint8), np.array(_NUMBERS, np.int64)
        columns: list[Any] = [(None, flags), (numbers, flags), (numbers, None), (numbers, flags)]
        assert state.take(column.data, column.offsets, starts, lambda tally: tally.fold(columns, times))
        return
    for row, number in enumerate(_NUMBERS):
        some = () if nulls[row] else (number,)
        _merge(state, keys[row], starts, times, row, (len(some), (len(some), sum(some)), (number,), some))


def _partials(state: KeyValueStoreView, turn: int) -> None:
    keys, starts, times = _rows(state, turn + 1)
    made: list[Any] = [(n, (2, n), (n,), (n - turn,)) if n % 2 else _NOTHING for n in _NUMBERS]
    if isinstance(state, PartStoreView):
        column, partials = BytesColumn.of(keys), BytesColumn.of(_SERDE.serialize_all(made))
        assert state.take(
            column.data, column.offsets, starts, lambda tally: tally.merge(partials.data, partials.offsets, times)
        )
        return
    for row, partial in enumerate(made):
        _merge(state, keys[row], starts, times, row, partial)


def _merge(state: KeyValueStoreView, key: bytes, starts: Any, times: Any, row: int, other: Any) -> None:
    name = key if starts is None else window_key(int(starts[row]), key)
    acc, latest = state.get(name) or (_NOTHING, int(times[row]))
    lows, highs = [x for part in (acc[2], other[2]) for x in part], [x for part in (acc[3], other[3]) for x in part]
    total = (acc[1][0] + other[1][0], acc[1][1] + other[1][1])
    made = (acc[0] + other[0], total, (min(lows),) if lows else (), (max(highs),) if highs else ())
    state.put(name, made, max(latest, int(times[row])))


def _next_commit(state: KeyValueStoreView) -> tuple[Any, ...]:
    """Its keys and values, the changelog's and their times, and the numbers of what is shown."""
    windows = state.spec.kind == "window"
    if isinstance(state, PartStoreView):
        shown, changes = state.tallied(), state.packed_changes()
        assert shown is not None and changes is not None
        puts = changes.puts.listed()
        starts = None if shown.starts is None else shown.starts.tolist()
        numbers = [starts, BytesColumn(*shown.names).to_list(), *(column.tolist() for column in shown.numbers)]
        logged = [BytesColumn(*column).to_list() for column in (changes.keys, changes.values)]
        return list(puts.keys), list(puts.values), logged, changes.times.tolist(), numbers
    keys, values, times = state.pending()
    accs = [state.entries[key][0] for key in keys]
    columns = [[acc[0] for acc in accs], *([acc[1][i] for acc in accs] for i in (0, 1))]
    for part in (2, 3):
        columns += [[int(bool(acc[part])) for acc in accs], [acc[part][0] if acc[part] else 0 for acc in accs]]
    starts = [int.from_bytes(key[:8], "big") for key in keys] if windows else None
    names = [key[8:] if windows else key for key in keys]
    logged_keys = [key[8:] + key[:8] + bytes(4) for key in keys] if windows else keys
    return keys, values, [logged_keys, [v and v[8:] for v in values]], times, [starts, names, *columns]
