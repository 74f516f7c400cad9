"""When a worker gives back what it has freed, and that the real memory shrinks."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from penstock.streams.worker.spare_memory import ARENAS, REST_S, WORTH_RECORDS, SpareMemory, trim


def test_when_a_busy_worker_comes_to_rest_and_ever_more_rarely_then() -> None:
    given: list[float] = []
    spare = SpareMemory(lambda: given.append(now))
    for tenth in range(-3, 2_000):
        now = tenth / 10
        spare.turn(now, WORTH_RECORDS if tenth <= 0 else 0)
    assert given == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0]


def test_few_records_after_many_move_the_rest_and_do_not_begin_again() -> None:
    given: list[float] = []
    spare = SpareMemory(lambda: given.append(now))
    for now, records in ((0.0, WORTH_RECORDS), (REST_S, 0), (0.8, 1), (1.7, 0), (1.8, 0), (2.7, 0), (2.9, 0)):
        spare.turn(now, records)
    assert given == [REST_S, 1.8, 2.9]


def test_after_a_long_pause_it_is_done_once() -> None:
    given: list[float] = []
    spare = SpareMemory(lambda: given.append(now))
    for now, records in ((0.0, WORTH_RECORDS), (1_000.0, 0), (1_000.1, 0), (1_001.0, WORTH_RECORDS), (1_001.6, 0)):
        spare.turn(now, records)
    assert given == [1_000.0, 1_001.6]


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
