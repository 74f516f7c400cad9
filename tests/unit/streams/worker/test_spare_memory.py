"""When a worker gives back what it has freed, and that the real memory shrinks."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from penstock.streams.worker.spare_memory import ARENAS, REST_S, WORTH_RECORDS, SpareMemory, trim


def test_once_when_a_busy_worker_comes_to_rest() -> None:
    given: list[float] = []
    now = 10.0
    spare = SpareMemory(lambda: given.append(now))
    for _ in range(3):
        spare.turn(now, WORTH_RECORDS)
    now += REST_S / 2
    spare.turn(now, 0)
    assert given == []
    now += REST_S
    spare.turn(now, 0)
    spare.turn(now + 60.0, 0)
    assert given == [now]
    spare.turn(now, WORTH_RECORDS)
    spare.turn(now + REST_S, 0)
    assert len(given) == 2


def test_not_before_the_commit() -> None:
    given: list[float] = []
    spare = SpareMemory(lambda: given.append(1.0))
    spare.turn(0.0, WORTH_RECORDS, uncommitted=True)
    spare.turn(REST_S, 0, uncommitted=True)
    assert given == []
    spare.turn(REST_S + 1.0, 0)
    assert given == [1.0]


def test_few_records_leave_little_behind() -> None:
    given: list[int] = []
    spare = SpareMemory(lambda: given.append(1))
    for second in range(100):
        spare.turn(float(second), 1)
        spare.turn(second + REST_S, 0)
    assert given == []


def test_without_the_means_nothing_happens() -> None:
    spare = SpareMemory(None)
    spare.turn(0.0, WORTH_RECORDS)
    spare.turn(10.0, 0)


@pytest.mark.skipif(trim() is None, reason="the C library cannot give back")
def test_freed_memory_goes_back_to_the_system() -> None:
    """Small blocks freed below one that stays: only a trim gives their pages back."""
    program = textwrap.dedent("""
        import ctypes
        from penstock.streams.worker.spare_memory import trim
        libc = ctypes.CDLL(None)
        libc.malloc.restype = ctypes.c_void_p
        libc.free.argtypes = [ctypes.c_void_p]
        def resident_mb():
            return int(open("/proc/self/statm").read().split()[1]) * 4096 >> 20
        size, before = 100_000, resident_mb()
        blocks = [libc.malloc(size) for _ in range(500)]
        for block in blocks:
            ctypes.memset(block, 1, size)
        top = libc.malloc(size)
        for block in blocks:
            libc.free(block)
        freed = resident_mb()
        trim()()
        print(freed - before, resident_mb() - before)
    """)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", program]
    said = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    freed_mb, trimmed_mb = map(int, said.split())
    assert freed_mb >= 40
    assert trimmed_mb <= 10


@pytest.mark.skipif(trim() is None, reason="not the C library that has arenas")
def test_threads_share_few_arenas() -> None:
    """In a process of its own: the library keeps to it from then on. Its report names every arena."""
    program = textwrap.dedent("""
        import ctypes, sys, threading
        from penstock.streams.worker.spare_memory import few_arenas
        if sys.argv[1] == "few":
            assert few_arenas()
        libc = ctypes.CDLL(None)
        libc.malloc.restype = ctypes.c_void_p
        all_there = threading.Barrier(8)
        def ask():
            all_there.wait()
            libc.malloc(1000)
            all_there.wait()
        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        libc.malloc_stats()
    """)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}

    def arenas(how: str) -> int:
        command = [sys.executable, "-c", program, how]
        return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stderr.count(
            "Arena "
        )

    assert arenas("few") <= ARENAS < arenas("many")
