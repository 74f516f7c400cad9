"""What a pane is among the panes of its window: carried in a header of each record that triggers emit."""

from __future__ import annotations

import dataclasses
from typing import Literal, cast, get_args

from penstock.state.errors import SerdeError
from penstock.state.log import Headers

HEADER = "penstock.pane"
Timing = Literal["EARLY", "ON_TIME", "LATE"]


@dataclasses.dataclass(frozen=True, slots=True)
class PaneInfo:
    """``timing``: before the watermark passed the window's end, when it did, or after. ``index``: how many panes the
    window emitted before; ``nonspeculative_index``: the same without early ones, -1 for those. ``is_last``: none
    follows, which is not always known: a later pane may never come although it is false. A window that was made by
    merging counts anew."""

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
    """What ``encode`` wrote. Raises ``SerdeError`` for anything else."""
    try:
        timing, first, last, index, nonspeculative = data.decode().split(";")
        if timing not in get_args(Timing) or not {first, last} <= {"0", "1"}:
            raise ValueError("no such timing or flag")
        return PaneInfo(first == "1", last == "1", cast(Timing, timing), int(index), int(nonspeculative))
    except ValueError as exc:
        raise SerdeError(
            f"header {HEADER} holds {data!r:.100}, which is no pane ({exc}); something else wrote it: rename that header"
        ) from exc


def pane_of(headers: Headers) -> PaneInfo | None:
    """The pane that a record with these headers is, or ``None`` when it was not emitted by a trigger."""
    for name, value in headers:
        if name == HEADER and value is not None:
            return decode(value)
    return None
