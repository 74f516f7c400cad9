"""What a process has freed is given back to the machine."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import sys, threading
from pathlib import Path
from penstock.state.machine.freed_memory import allocate_from_one_arena, give_back

def resident_mb():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6

if sys.argv[1] == "one arena":
    allocate_from_one_arena()
kept, all_full = [], threading.Barrier(4)
def fill():  # small pieces, of which one in a hundred stays: what is free lies between what is not
    pieces = [bytearray(1000) for _ in range(30_000)]
    kept.extend(pieces[::100])
    all_full.wait()
before = resident_mb()
threads = [threading.Thread(target=fill) for _ in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
freed = resident_mb()
give_back()
print(before, freed, resident_mb())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators give back by themselves")
@pytest.mark.parametrize("how", ["arenas", "one arena"])
def test_freed_memory_is_given_back(how: str) -> None:
    said = subprocess.run([sys.executable, "-c", PROGRAM, how], check=True, capture_output=True, text=True).stdout
    before, freed, after = map(float, said.split())
    assert freed - before > 40, "the allocator keeps what was freed"
    assert after - before < (freed - before) / 2
