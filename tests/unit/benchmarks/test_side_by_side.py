"""Which program runs where when two checkouts are compared, and what a process has used when it is stopped."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest

from benchmarks.bench import Bench
from benchmarks.processes import stop
from benchmarks.side_by_side import of_checkout, on
from benchmarks.systems import PENSTOCK, ROOT
from benchmarks.topics import Log


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """One that starts nothing, so that it needs no log."""
    return Bench(cast(Log, None), None, tmp_path, tmp_path, tmp_path / "results.jsonl")


def test_each_checkout_runs_its_own_code_in_one_benchmark(bench: Bench, tmp_path: Path) -> None:
    here, one, other = PENSTOCK, of_checkout(tmp_path / "one"), of_checkout(tmp_path / "other")
    commands = [bench.command(system, "ysb") for system in (here, one, other, on([3], one))]
    assert commands[0][0] == sys.executable
    assert str(tmp_path / "one" / ".venv" / "bin" / "python") in commands[1]
    assert str(tmp_path / "other" / ".venv" / "bin" / "python") in commands[2]
    assert commands[3] == ["taskset", "--cpu-list", "3", *commands[1]]


def test_settings_of_one_system_share_its_program(bench: Bench) -> None:
    made: list[Path] = []

    def make_ready(work: Path, peers: Path) -> list[str]:
        made.append(work)
        return ["python"]

    plain = dataclasses.replace(PENSTOCK, make_ready=make_ready)
    for system in (plain, dataclasses.replace(plain, name="tuned", environment={"LINGER_MS": "50"})):
        assert bench.command(system, "ysb") == ["python", "ysb"]
    assert len(made) == 1


def test_processors_are_shared_out() -> None:
    """In a process of its own: what it starts inherits them."""
    program = (
        "import json, os\nfrom benchmarks.side_by_side import share_out_processors\nall = sorted(os.sched_getaffinity(0))\n"
        "print(json.dumps([all, share_out_processors(), sorted(os.sched_getaffinity(0))]))"
    )
    found = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    had, programs, ours = json.loads(found.stdout)
    assert programs == had[-1:]
    assert ours == (had[:-1] or had)


def test_a_stopped_process_tells_what_it_used_to_its_end() -> None:
    """It works on after SIGTERM: that counts too, and what another process uses does not."""
    work = "import time\nbegan = time.process_time()\nwhile time.process_time() - began < 0.5: pass\n"
    late = f"import signal, sys\ndef end(*_):\n    exec({work!r}, {{}})\n    sys.exit()\n"
    program = f"{late}signal.signal(signal.SIGTERM, end)\nprint('up', flush=True)\nsignal.pause()\n"
    other = subprocess.Popen([sys.executable, "-c", work])
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    other.wait()
    used_s = stop(process)
    process.stdout.close()
    assert 0.5 <= used_s < 0.95
    assert process.returncode == 0
    assert stop(process) == 0.0
