"""Where executors keep their temporary folders, and what they leave of memory."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from penstock.streams.spark.executor import use_local_dirs


@pytest.mark.parametrize(
    "name, separator", [("LOCAL_DIRS", ","), ("SPARK_EXECUTOR_DIRS", os.pathsep), ("SPARK_LOCAL_DIRS", ",")]
)
def test_the_first_folder_that_the_cluster_gave_is_used(
    name: str, separator: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", None)
    use_local_dirs({name: separator.join([str(tmp_path / "gone"), str(tmp_path), "/"])})
    with tempfile.TemporaryDirectory() as folder:
        assert Path(folder).parent == tmp_path


def test_without_one_nothing_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    use_local_dirs({"SPARK_LOCAL_DIRS": "", "LOCAL_DIRS": str(tmp_path / "gone")})
    assert tempfile.tempdir == str(tmp_path)
