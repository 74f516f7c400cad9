"""``python -m tests.conformance``: what it prints, and its exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conformance.command import main


def write(path: Path, *signed: int) -> str:
    lines = [
        {
            "id": f"hash.{i}",
            "group": "partitioner",
            "kind": "murmur2",
            "portability": "portable",
            "input": [{"utf8": "abc"}],
            "expected": [{"signed_int32": value}],
        }
        for i, value in enumerate(signed)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def test_all_passed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([write(tmp_path / "f.jsonl", 479470107)]) == 0
    assert capsys.readouterr().out == "1 passed, 0 failed\n"


def test_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-v", "--batch-size", "7", write(tmp_path / "f.jsonl", 479470107, 5)]) == 1
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "passed hash.0"
    assert out[1:3] == ["FAILED hash.1 [partitioner]", "  batches of 7:"]
    assert out[-1] == "1 passed, 1 failed"


def test_only_some(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "hash.0", write(tmp_path / "f.jsonl", 479470107, 5)]) == 0
    assert capsys.readouterr().out == "1 passed, 0 failed\n"


@pytest.mark.parametrize("arguments", [["--only", "nothing"], ["--batch-size", "0"]])
def test_what_cannot_be_done_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert main([*arguments, write(tmp_path / "f.jsonl", 1)]) == 2
    assert capsys.readouterr().err.startswith("penstock: ")
    assert main([str(tmp_path / "absent.jsonl")]) == 2
    assert "cannot be read" in capsys.readouterr().err
