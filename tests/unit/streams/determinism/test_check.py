"""``penstock check-determinism`` names each operator at fault, and nobody else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.streams.cli.main import main

BAD = Path(__file__).parent / "bad.py"


@pytest.fixture
def records(tmp_path: Path) -> Path:
    """Thirty records of one topic."""
    path = tmp_path / "records.jsonl"
    lines = ({"topic": "in", "key": "k", "value": f"v{i % 4}", "timestamp_ms": i} for i in range(30))
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


def test_every_fault_is_named(records: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With what is wrong; operators that only hand a difference on are not."""
    assert main(["check-determinism", f"{BAD}:build", str(records)]) == 1
    said = dict(line.split(": ", 1) for line in capsys.readouterr().out.splitlines())
    assert said["clock"].startswith("reads the clock (time.time)")
    assert said["now"].startswith("reads the clock (datetime.now)")
    assert said["dice"].startswith("takes randomness (random.random)")
    assert said["ids"].startswith("takes randomness (os.urandom)")
    assert said["file"].startswith("opens the file")
    assert "iterates a set" in said["unordered"]
    assert "iterates a set, or uses hash()" in said["hashed"]
    assert "outside its stores" in said["keeps"]
    assert set(said) == {"clock", "now", "dice", "ids", "file", "unordered", "hashed", "keeps"}


def test_a_good_topology_passes(records: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Over several partitions, too."""
    assert main(["check-determinism", f"{BAD}:build_good", str(records), "--partitions", "3"]) == 0
    assert "deterministic" in capsys.readouterr().out


def test_records_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Are refused with their line."""
    path = tmp_path / "records.jsonl"
    path.write_text('{"topic": "in", "value": "v"}\nnonsense\n')
    assert main(["check-determinism", f"{BAD}:build_good", str(path)]) == 2
    assert "line 2" in capsys.readouterr().err
