"""Folders and URLs as every process of a job understands them."""

from __future__ import annotations

from pathlib import Path
from typing import overload


@overload
def absolute(place: str) -> str: ...
@overload
def absolute(place: None) -> None: ...
def absolute(place: str | None) -> str | None:
    """A folder from the root on, a URL as it is. An executor has a working folder of its own, where a relative path would
    be another place."""
    if place is None or "://" in place:
        return place
    return str(Path(place).expanduser().absolute())
