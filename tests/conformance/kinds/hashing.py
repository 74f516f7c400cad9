"""Kinds ``murmur2`` and ``partition``: the hash of keys, and the partition that it gives."""

from __future__ import annotations

from penstock.state.serdes.partitioner import murmur2, partition_for
from tests.conformance.case_format import Case


def judge(case: Case) -> list[str]:
    """Hash every key."""
    wrong = []
    for entry, expected in zip(case.input, case.expectations(), strict=True):
        key = bytes.fromhex(entry["hex"]) if "hex" in entry else entry["utf8"].encode()
        signed = murmur2(key)
        found = {"signed_int32": signed, "unsigned_int32": signed & 0xFFFFFFFF, "positive_int32": signed & 0x7FFFFFFF}
        if case.kind == "partition":
            found["partition"] = partition_for(key, case.data["partitions"])
        for name, value in expected.items():
            if found.get(name) != value:
                wrong.append(f"{key!r}: {name}: expected {value}, actual {found.get(name)}")
    return wrong
