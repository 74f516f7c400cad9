"""The place of a pane among the panes of its window, in a header of each record that triggers emit."""

from __future__ import annotations

import dataclasses
from typing import Literal, cast, get_args

from penstock.state.errors import SerdeError
from penstock.state.log import Headers

HEADER = "penstock.pane"
Timing = Literal["EARLY", "ON_TIME", "LATE"]


@dataclasses.dataclass(frozen=True, slots=True)
class PaneInfo:
    """``timing``: before the watermark passed the window's end, when it passed, or after. ``index``: how many panes the
    window emitted before; ``nonspeculative_index``: the same without early panes, -1 for an early one. ``is_last``: no
    pane follows. It may be false for the last pane, since that is not always known. A window that results from merging
    starts counting from 0."""

    is_first: bool
    is_last: bool
    timing: Timing
    index: int
    nonspeculative_index: int

    @property
    def headers(self) -> Headers:
        """The record's headers."""
        return ((HEADER, encode(self)),)


def encode(pane: PaneInfo) -> bytes:
    """The header's value: ``timing;first;last;index;nonspeculative index``."""
    return f"{pane.timing};{pane.is_first:d};{pane.is_last:d};{pane.index};{pane.nonspeculative_index}".encode()


def decode(data: bytes) -> PaneInfo:
    """Decode what ``encode`` wrote. Raises ``SerdeError`` for anything else."""
    try:
        timing, first, last, index, nonspeculative = data.decode().split(";")
        if timing not in get_args(Timing) or not {first, last} <= {"0", "1"}:
            raise ValueError("unknown timing or flag")
        return PaneInfo(first == "1", last == "1", cast(Timing, timing), int(index), int(nonspeculative))
    except ValueError as exc:
        raise SerdeError(
            f"header {HEADER} holds {data!r:.100}, which is not a pane ({exc}); something else wrote it: rename that header"
        ) from exc


def pane_of(headers: Headers) -> PaneInfo | None:
    """The pane of a record with these headers, or ``None`` if a trigger did not emit it."""
    for name, value in headers:
        if name == HEADER and value is not None:
            return decode(value)
    return None
