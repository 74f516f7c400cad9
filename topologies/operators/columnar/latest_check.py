"""The check of the compiled latest values, for ``kernel_check``."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.state.serdes.serde import BYTES
from penstock.state.stores.count_store import state_of
from penstock.state.stores.latest_view import TIMED, LatestStoreView
from penstock.state.stores.memory_backend import MemoryBackend
from penstock.state.stores.store import StoreSpec, StoreWrites
from penstock.topologies.operator_api.columns import BytesColumn


def latest_kept() -> Any:
    """The writes of three commits, of the latest values and of the earliest."""
    keys = [b"", b"a", b"\xff" * 70, *(b"%d" % (n * 7 % 40) for n in range(300))]
    texts = [b"text" * (n * 11 % 31) for n in range(len(keys))]
    times = (np.arange(len(keys), dtype=np.int64) * 5 % 17 - 3) << 40
    out: list[Any] = []
    for later in (True, False):
        spec = StoreSpec("latest", "key_value", BYTES, TIMED)
        backend = MemoryBackend([spec])
        state = state_of(spec, backend)
        for start in (250, 0, 40):
            records = list(zip(keys[start:], times[start:].tolist(), texts[start:], strict=True))
            columns = [BytesColumn.of(part) for part in (keys[start:], texts[start:])]
            of_keys, of_texts = ((column.data, column.offsets) for column in columns)
            if not isinstance(state, LatestStoreView) or not state.keep(of_keys, of_texts, times[start:], later=later):
                for key, time, text in records:
                    (kept, highest) = state.get(key) or ((), time)
                    new = not kept or (time >= kept[0] if later else time < kept[0])
                    state.put(key, (time, text) if new else kept, max(highest, time))
            changes = state.packed_changes()
            written = state.pending() if changes is None else (*changes.puts.listed(), changes.times.tolist())
            out.append([*map(list, written)])
            backend.commit([StoreWrites(spec.name, list(zip(*written[:2], strict=True)), b"")])
            state.committed()
    return out
