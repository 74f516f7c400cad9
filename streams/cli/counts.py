"""Counts in what commands print."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """Return ``1 record``, ``2 records``, ``1,000 records``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def unread(ends: int) -> str:
    """What to say behind a lag of the records in partitions without a position; nothing if there are none."""
    return f", and up to {ends:,} in partitions without a position" if ends else ""
