"""Counts in what commands print."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """Return ``1 record``, ``2 records``, ``1,000 records``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def unread(ends: int) -> str:
    """Return what a lag leaves out, to stand behind it: the records in partitions without a position, if there are any."""
    return f", and up to {ends:,} in partitions without a position" if ends else ""
