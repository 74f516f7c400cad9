"""Folders and URLs in a form that every process of a job understands."""

from __future__ import annotations

from pathlib import Path
from typing import overload


@overload
def absolute(place: str) -> str: ...
@overload
def absolute(place: None) -> None: ...
def absolute(place: str | None) -> str | None:
    """An absolute folder, or a URL unchanged. An executor has a working folder of its own, where a relative path
    would be another place."""
    if place is None or "://" in place:
        return place
    return str(Path(place).expanduser().absolute())
