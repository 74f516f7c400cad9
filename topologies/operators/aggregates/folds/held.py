"""Emitting what the store itself holds until the commit: shared by the folds that leave it there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from penstock.topologies.operator_api.batch import Batch, ColumnBatch


class HoldingStore(Protocol):
    """A store that holds what has changed until the commit."""

    settled: list[bytes]
    """Keys that it held since the last commit, and that are now in the entries."""
    shown: bool
    """Whether the changes since the last commit were emitted."""


def flush_held(
    state: HoldingStore,
    read: Callable[[bytes], Any],
    results: Callable[[], ColumnBatch | None],
    show: Callable[[Batch], None],
) -> dict[bytes, Any]:
    """See ``HeldFold.flush``. ``read``: reads the key of a store key. ``results``: what the store holds; ``None``:
    nothing, or nothing any more."""
    if state.shown:
        return {}
    found, settled = results(), {}
    if found is not None:
        show(found)
    elif state.settled:  # nothing had changed when the store began to hold them
        settled = {key: read(key) for key in state.settled}
    state.shown = found is not None or bool(settled)
    return settled
