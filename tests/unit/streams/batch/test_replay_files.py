"""The files of a replayed task hold what the task gave, as rows or as columns."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from penstock.state.log import TaskId
from penstock.state.serdes.partitioner import partition_for
from penstock.state.serdes.serde import BYTES
from penstock.state.stores.store import StoreSpec
from penstock.streams.batch.replay_files import ANY_PARTITION, OutputFiles, store_file
from penstock.streams.task.output import Output
from penstock.topologies.operator_api.columns import BytesColumn, CodedColumn, Column

TASK = TaskId(1, 2)
KEYS: list[bytes | None] = [b"a", None, b"bcd", b"a"]
VALUES: list[bytes | None] = [b"1", b"", None, b"22"]
TIMES = [5, 9, 7, 11]


def keys_of(form: str) -> list[bytes | None] | Column:
    coded = CodedColumn(np.array([0, 1, 2, 0], np.int32), [b"a", None, b"bcd"])
    return {"rows": KEYS, "bytes": BytesColumn.of(KEYS), "codes": coded}[form]


@pytest.mark.parametrize("form", ["rows", "bytes", "codes"])
@pytest.mark.parametrize("partition", [None, 3, [0, 1, -1, -1]])
def test_outputs_are_written_with_their_places(tmp_path: Path, form: str, partition: int | list[int] | None) -> None:
    files = OutputFiles(tmp_path, str(tmp_path / "made"), "run", TASK, {"out": 4})
    values: list[bytes | None] | Column = VALUES if form == "rows" else BytesColumn.of(VALUES)
    for shift in (0, 1):
        files.add(Output("out", keys_of(form), values, [ms - shift for ms in TIMES], None, partition))
    (file,) = files.finish()
    rows = pq.read_table(tmp_path / "made" / file.path).to_pylist()
    by_key = [ANY_PARTITION if k is None else partition_for(k, 4) for k in KEYS]
    placed = {None: by_key, 3: [3] * 4}[partition] if not isinstance(partition, list) else [0, 1, *by_key[2:]]
    assert [r["partition"] for r in rows] == placed * 2
    assert (file.rows, file.partitions) == (8, tuple(sorted(set(placed))))
    assert [(r["key"], r["value"]) for r in rows] == list(zip(KEYS, VALUES, strict=True)) * 2
    assert [r["timestamp_ms"] for r in rows] == [5, 9, 7, 11, 4, 8, 6, 10]
    assert [r["running_max_ms"] for r in rows] == [5, 9, 9, 11, 11, 11, 11, 11]
    assert [(r["subtopology"], r["task"], r["seq"]) for r in rows] == [(1, 2, i) for i in range(8)]


@pytest.mark.parametrize("kind", ["window", "key_value"])
@pytest.mark.parametrize("count", [0, 1, 4])
def test_entries_are_taken_apart(tmp_path: Path, kind: str, count: int) -> None:
    spec = StoreSpec("s", "window" if kind == "window" else "key_value", BYTES, BYTES, retention_ms=10)
    entries = [
        ((-i).to_bytes(8, "big", signed=True) + b"k", (7 * i).to_bytes(8, "big") + b"v" * i) for i in range(count)
    ]
    path, rows = store_file(tmp_path, str(tmp_path / "made"), "run", TASK, spec, entries)
    found = pq.read_table(tmp_path / "made" / path).to_pylist()
    assert rows == count
    assert [(r["store_key"], r["value"], r["timestamp_ms"]) for r in found] == [
        (entries[i][0], b"v" * i, 7 * i) for i in range(count)
    ]
    placed = [(r["key"], r["window_start_ms"]) for r in found]
    assert placed == [(b"k", -i) if kind == "window" else (entries[i][0], None) for i in range(count)]
