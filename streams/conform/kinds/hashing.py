"""Kinds ``murmur2`` and ``partition``: the hash of keys, and the partition that it gives."""

from __future__ import annotations

from penstock.state.partitioner import murmur2, partition_for
from penstock.streams.conform.cases import Case


def judge(case: Case) -> list[str]:
    """Hash every key."""
    wrong = []
    for entry, expected in zip(case.input, case.expectations(), strict=True):
        key = entry["utf8"].encode()
        if case.kind == "murmur2":
            found = {"signed_int32": murmur2(key)}
        else:
            found = {"partition": partition_for(key, case.data["partitions"])}
        if found != expected:
            wrong.append(f"{entry['utf8']!r}: expected {expected}, actual {found}")
    return wrong
