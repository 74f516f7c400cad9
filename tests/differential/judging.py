"""Kinds judged in several processes, each with the other system beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from multiprocessing import get_context
from multiprocessing.util import Finalize
from pathlib import Path

from tests.differential.beam_side import BEAM, BEAM_RUNNER
from tests.differential.flink_cep_side import FLINK_CEP
from tests.differential.flink_sql_side import FLINK_SQL
from tests.differential.judge import System, Verdict, judged
from tests.differential.kafka_streams_side import KAFKA_STREAMS
from tests.differential.other_side import OtherSide, command_of, scratch_folder

SYSTEMS: dict[str, System] = {system.id: system for system in (KAFKA_STREAMS, FLINK_CEP, FLINK_SQL, BEAM, BEAM_RUNNER)}
"""By their names in commands."""
_SIDES: dict[str, OtherSide] = {}
"""This process's other sides, by system."""


def verdict_of(name: str, kind: str, seeds: range, folder: Path) -> Verdict:
    """Judge one kind, with this process's other side."""
    system = SYSTEMS[name]
    if name not in _SIDES:
        side = _SIDES[name] = OtherSide(system.project, folder)
        Finalize(side, side.end, exitpriority=1)  # a pool's processes end without atexit
    return judged(system, _SIDES[name], kind, system.runs_of(kind, seeds))


def verdicts_of(system: System, kinds: Sequence[str], seeds: range, workers: int) -> Iterator[Verdict]:
    """Judge kinds in several processes, each with an other side of its own; in the order of the kinds."""
    command_of(system.project)  # built once, before all of them ask
    # Not forked from this process: one that has run clients or Spark has threads that no fork survives. They are forked
    # from one that has done nothing but import this module, once for all systems.
    clean = get_context("forkserver")
    clean.set_forkserver_preload([__name__])
    with scratch_folder() as folder, ProcessPoolExecutor(workers, mp_context=clean) as pool:
        yield from pool.map(verdict_of, repeat(system.id), kinds, repeat(seeds), repeat(Path(folder)))
