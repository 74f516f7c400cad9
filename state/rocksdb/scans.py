"""Reads of a column family that end before they return, so that none leaves an iterator, which would keep the database
locked."""

from __future__ import annotations

from collections.abc import Iterable

from rocksdict import Rdict, ReadOptions

from penstock.state.rocksdb.entry_layout import USER_END


def first_key(family: Rdict, first: bytes, end: bytes) -> bytes | None:
    """The first key with ``first <= key < end``, as it is stored."""
    read_options = ReadOptions()
    read_options.set_iterate_upper_bound(end)
    it = family.iter(read_options)
    try:
        it.seek(first)
        found: bytes | None = it.key() if it.valid() else None
        it.status()
    finally:
        del it
    return found


def entries_of(family: Rdict, bounds: Iterable[tuple[bytes, bytes]]) -> list[list[tuple[bytes, bytes]]]:
    """The entries of each range of keys as they are stored, without the leading byte of theirs. One iterator for all of
    them costs less than one each."""
    out: list[list[tuple[bytes, bytes]]] = []
    read_options = ReadOptions()
    read_options.set_iterate_upper_bound(USER_END)
    it = family.iter(read_options)
    valid, key, value, advance, seek = it.valid, it.key, it.value, it.next, it.seek
    try:
        for first, end in bounds:
            found: list[tuple[bytes, bytes]] = []
            seek(first)
            while valid() and (at := key()) < end:
                found.append((at[1:], value()))
                advance()
            out.append(found)
            it.status()
    finally:
        del it, valid, key, value, advance, seek  # the traceback of an error must not keep the handle
    return out
