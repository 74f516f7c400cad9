"""The runs of a check, each in its own process, and the conclusions from their differences."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import msgspec

from penstock.state.errors import EnvironmentFault, SettingsError
from penstock.state.log import Record
from penstock.streams.determinism.trace import RunPlan, Trace
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operators.records.source_sink import SinkSpec, SourceSpec


@dataclasses.dataclass(frozen=True)
class RunVariant:
    """One way to run the same records: a hash seed, and the plan."""

    name: str
    hash_seed: int
    plan: RunPlan


@dataclasses.dataclass(frozen=True)
class Divergence:
    """An operator, and what is wrong with it."""

    operator: str
    problem: str


def variants(records: int) -> tuple[RunVariant, ...]:
    """The reference, watched, and what must give the same."""
    return (
        RunVariant("one record per batch", 0, RunPlan(1, 0, watch=True)),
        RunVariant("another hash seed", 1, RunPlan(1, 0)),
        RunVariant("batches of 1,000 records", 0, RunPlan(1_000, 0)),
        RunVariant("a second run in the same process", 0, RunPlan(1, 0, again=True)),
        RunVariant("batches of 7 records, a third hash seed and restarts", 2, RunPlan(7, max(records // 5, 1))),
    )


class RecordLine(msgspec.Struct):
    """One line of a file of records."""

    topic: str
    value: object = None
    key: object = None
    timestamp_ms: int = 0


def read_records(path: Path) -> list[tuple[str, Record]]:
    """JSON lines, in the order of processing. Raises ``SettingsError``."""
    found: list[tuple[str, Record]] = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as exc:
        raise SettingsError(f"the records {path} cannot be read: {exc.strerror}") from exc
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = msgspec.json.decode(line, type=RecordLine)
        except msgspec.MsgspecError as exc:
            raise SettingsError(
                f"{path}, line {number}: {exc}; a line is JSON with topic, value and, where wanted, key and timestamp_ms"
            ) from exc
        found.append((row.topic, Record(row.key, row.value, row.timestamp_ms)))
    if not found:
        raise SettingsError(f"{path} holds no records; give at least one")
    return found


def check(
    topology_ref: str, topology: Topology, records: Path, count: int, partitions: int
) -> tuple[list[Divergence], list[Trace]]:
    """Run every variant; what differs, and what the operators touched. Raises ``EnvironmentFault`` when a run fails."""
    chosen = variants(count)
    traces = [_run(topology_ref, records, variant, partitions) for variant in chosen]
    findings = [
        Divergence(operator, f"{touch}; take it from ctx, or ask by lookup(…), so that it can be replayed")
        for operator, touches in traces[0].touches.items()
        for touch in touches
    ]
    explained = set(traces[0].touches)
    for variant, trace in zip(chosen[1:], traces[1:], strict=True):
        found = _differences(topology, explained, traces[0], variant, trace)
        findings += found
        explained |= {f.operator for f in found}
    return findings, traces


def _differences(
    topology: Topology, explained: set[str], reference: Trace, variant: RunVariant, trace: Trace
) -> list[Divergence]:
    """The operators at which differences begin: what follows them only hands those on. ``explained``: those of which it
    is known why."""
    differing = {n for n in topology.operators if _of(reference.emitted, n) != _of(trace.emitted, n)}
    inherited = {child for n in differing for child in _fed_by(topology, n)}
    begun = [n for n in topology.operators if n in differing - inherited - explained]
    findings = [Divergence(n, f"gives another answer with {variant.name}: {_hint(variant)}") for n in begun]
    if not differing:
        findings += [
            Divergence(
                f"the sink of {topic}", f"writes other bytes with {variant.name}: its serde is not deterministic"
            )
            for topic in reference.written
            if reference.written[topic] != trace.written.get(topic)
        ]
    return findings


def _fed_by(topology: Topology, operator: str) -> set[str]:
    """The operators that take what this one emits, through repartition topics too."""
    fed: set[str] = set()
    for _, child, _ in topology.children(operator):
        fed.add(child)
        spec = topology.operators[child]
        if isinstance(spec, SinkSpec) and spec.internal:
            fed |= {n for n, s in topology.operators.items() if isinstance(s, SourceSpec) and s.topic == spec.topic}
    return fed


def _of(emitted: dict[str, str], operator: str) -> dict[str, str]:
    return {k: v for k, v in emitted.items() if k.rpartition("@")[0].rpartition(".")[0] == operator}


def _hint(variant: RunVariant) -> str:
    if variant.plan.again:
        return "it keeps something outside its stores"
    if variant.plan.restart_every:
        return "it keeps something outside its stores, or iterates a set"
    if variant.plan.batch_size > 1:
        return "it keeps something between records outside its stores, or changes a value that others see"
    return "it iterates a set, or uses hash() or id()"


def _run(topology_ref: str, records: Path, variant: RunVariant, partitions: int) -> Trace:
    plan = msgspec.json.encode(dataclasses.asdict(variant.plan)).decode()
    done = subprocess.run(
        [sys.executable, "-m", "penstock.streams.determinism.probe", topology_ref, str(records), plan, str(partitions)],
        env={**os.environ, "PYTHONHASHSEED": str(variant.hash_seed)},
        capture_output=True,
        check=False,
    )
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise EnvironmentFault(f"the run with {variant.name} failed: {said[-1] if said else 'without output'}")
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=Trace)
