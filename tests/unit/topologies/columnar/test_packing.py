"""Many records in one: what is packed comes back, and nothing else is taken for it."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.state.errors import SerdeError
from penstock.topologies.columnar.packing import pack, unpack
from penstock.topologies.operator_api.columns import BytesColumn


def packed(keys: list[bytes], values: list[bytes], times: list[int]) -> bytes:
    return pack(BytesColumn.of(keys), BytesColumn.of(values), np.array(times, np.int64))


ONE = packed([b"a"], [b"b"], [1])


def test_rows_come_back_in_order() -> None:
    for keys, values, times in (
        ([b"a", b"", b"a", b"\xff" * 300], [b"", b"x", b"yy", b"z"], [3, 1 << 60, 0, 2]),
        ([], [], []),
        ([b""], [b""], [7]),
    ):
        found = unpack(packed(keys, values, times))
        assert (found.keys.to_list(), found.values.to_list(), found.times.tolist()) == (keys, values, times)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (None, "null"),
        (b"", "requires a buffer"),
        (b"\x02" + ONE[1:], "version is 2"),
        (ONE + b"!", "bytes, not"),
        (ONE[:-1], "bytes, not"),
        (b"\x01\x00\x00\x00\xff", "buffer"),
        (b"\x01\x00\x00\x00\x01" + b"\x00" * 9, "buffer"),
    ],
)
def test_anything_else_is_refused(data: bytes | None, why: str) -> None:
    with pytest.raises(SerdeError, match=why):
        unpack(data)
