"""Random programs on random input: every batch size, chunking and commit placement gives the oracle's answer, with input
in lists, in columns, and in both."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from penstock.state.log import TopicPartition
from tests.properties import programs as p
from tests.properties.oracle import Input, Oracle, Written, merged
from tests.properties.running import (
    APP,
    LETTERS,
    Log,
    Result,
    Runner,
    as_inputs,
    chunk_of,
    cut_up,
    random_log,
    resolved,
)

BATCHES = (1, 2, 7, 10_000)
SEEDS = 420
BLOCKS = 12


def connected_parts(program: p.Program) -> list[list[p.Node]]:
    """Connected nodes (by edges, stores, tables), in order of declaration: what must run as one task."""
    root = {n.name: n.name for n in program.nodes}

    def find(name: str) -> str:
        while root[name] != name:
            name = root[name]
        return name

    owner: dict[str, str] = {}
    for n in program.nodes:
        for upstream, _ in n.inputs:
            root[find(n.name)] = find(upstream)
        shared = [n.args["table"]] if n.kind == "join" else []
        shared += [n.args["store"]] if "store" in n.args else []
        for store in shared:
            other = store if store in root else owner.setdefault(store, n.name)
            root[find(n.name)] = find(other)
    groups: dict[str, list[p.Node]] = {}
    for n in program.nodes:
        groups.setdefault(find(n.name), []).append(n)
    return list(groups.values())


def split_by_connection(program: p.Program) -> p.Program:
    """The same program with parts renumbered so that each is connected."""
    nodes = {n.name: i for i, group in enumerate(connected_parts(program)) for n in group}
    renumbered = [p.Node(n.name, n.kind, n.inputs, nodes[n.name], n.args) for n in program.nodes]
    return p.Program(renumbered, len(set(nodes.values())))


def run_engine(seed: int, program: p.Program, log: Log, partitions: int, batch: int) -> dict[tuple[int, int], Result]:
    """All tasks over the log, parts in order, repartition topics carried over."""
    rng = random.Random(f"{seed}/{batch}")
    topology = p.topology_of(program)
    log = dict(log)
    results: dict[tuple[int, int], Result] = {}
    for part in range(program.parts):
        number = next(
            s.number
            for s in topology.subtopologies
            if {n.name for n in program.nodes if n.part == part} & set(s.operators)
        )
        for at in range(partitions):
            runner = Runner(
                topology, number, partition=at, partitions=partitions, cache_bytes=rng.choice((1 << 26, 1 << 26, 1))
            )
            results[part, at] = run_task(rng, runner, log, batch)
        for topic in {t for (q, _), r in results.items() if q == part for t in r.outputs if t.endswith("-repartition")}:
            for at in range(partitions):
                rows = [
                    row
                    for source in range(partitions)
                    if topic in results[part, source].outputs
                    for row, to in zip(
                        results[part, source].outputs[topic],
                        resolved(results[part, source], topic, partitions),
                        strict=True,
                    )
                    if to == at
                ]
                log[TopicPartition(topic, at)] = as_inputs(topic, rows)
    return results


def run_task(rng: random.Random, runner: Runner, log: Log, batch: int) -> Result:
    """One task over its whole log: chunks arrive in random pieces, between batches and commits."""
    waiting: dict[str, list[list[Input]]] = {}
    for topic in runner.task.topics:
        rows = log.get(TopicPartition(topic, runner.id.partition), [])
        waiting[topic] = cut_up(rng, rows)
    single = len(waiting) == 1
    restarts = rng.random() < 0.5
    columns = rng.choice((0.0, 0.5, 1.0))
    log_left = {t: sum(map(len, c)) for t, c in waiting.items()}
    for topic, count in log_left.items():
        if not count:
            runner.task.feed.set_end(topic, 0)
    while any(waiting.values()):
        topic = rng.choice([t for t in sorted(waiting) if waiting[t]])
        rows = waiting[topic].pop(0)
        chunk = chunk_of(rows, runner.id.partition)
        runner.task.add(chunk.in_columns() if rng.random() < columns else chunk, rows[-1].offset + 1)
        if not waiting[topic]:
            runner.task.feed.set_end(topic, rows[-1].offset + 1)
        if rng.random() < 0.5:
            runner.process(batch)
        if rng.random() < 0.2:
            runner.commit()
            if single and restarts and not runner.task.feed.buffered(topic):
                runner.result.dropped += runner.task.dropped
                runner.result.failures += runner.task.failures.counts
                runner.open()
                if not waiting[topic]:
                    runner.task.feed.set_end(topic, rows[-1].offset + 1)
    runner.drain(batch)
    return runner.finish()


def run_oracle(program: p.Program, log: Log, partitions: int) -> dict[tuple[int, int], Oracle]:
    """The same by the oracle."""
    log = dict(log)
    tasks: dict[tuple[int, int], Oracle] = {}
    for part in range(program.parts):
        for at in range(partitions):
            oracle = tasks[part, at] = Oracle(program, part)
            topics = {n.args["topic"] for n in oracle.nodes if n.kind in ("stream", "table")}
            rows = [r for tp, some in log.items() if tp.partition == at for r in some]
            for record in merged([r for r in rows if r.topic in topics]):
                oracle.feed(record)
        for topic in {t for (q, _), o in tasks.items() if q == part for t in o.written if t.endswith("-repartition")}:
            for at in range(partitions):
                arrived = [
                    row
                    for source in range(partitions)
                    for row in tasks[part, source].written.get(topic, [])
                    if destination(row, source, partitions) == at
                ]
                log[TopicPartition(topic, at)] = as_inputs(topic, arrived)
    return tasks


def destination(row: Written, producer: int, partitions: int) -> int:
    """Where a repartition topic takes a record: by key, nulls to the producer's own partition."""
    from penstock.state.serdes.partitioner import partition_for

    return producer % partitions if row[0] is None else partition_for(row[0], partitions)


def as_sent(expected: list[Written], found: list[Written]) -> list[Written]:
    """The rows of a topic, without values where none was sent, because those behind it only count. Had they needed any, what
    they write would show it."""
    if any(row[1] for row in found):
        return expected
    return [(key, value if value is None else b"", ts, headers) for key, value, ts, headers in expected]


def check_same(result: Result, oracle: Oracle) -> None:
    """Outputs in order, stores, counters and dead letters."""
    outputs = {t.removeprefix(f"{APP}-"): rows for t, rows in result.outputs.items() if t != LETTERS}
    assert outputs == {t: as_sent(rows, outputs.get(t, [])) for t, rows in oracle.written.items()}
    assert {n: stored(n, s) for n, s in result.stores.items()} == {
        n: {k: (s.get(k)) for k in s.rows} for n, s in oracle.stores.items()
    }
    assert +result.dropped == +oracle.dropped
    assert sum(result.failures.values()) == oracle.failures
    check_letters(result, oracle)


def check_letters(result: Result, oracle: Oracle) -> None:
    """The dead letters: original bytes and time, and the operator that failed."""
    letters = result.outputs.get(LETTERS, [])
    assert len(letters) == oracle.failures
    assert Counter((r[0], r[1], r[2], dict(r[3])["penstock.operator"]) for r in letters) == Counter(
        (i.key, i.value, i.timestamp_ms, operator.encode()) for i, operator in oracle.letters
    )


def stored(name: str, rows: dict[bytes, bytes]) -> dict[bytes, object]:
    """A backend's rows decoded: value and timestamp."""
    import orjson

    def value(raw: bytes) -> object:
        if "sum" in name:
            import struct

            return struct.unpack(">d", raw)[0]
        return int.from_bytes(raw, "big") if "count" in name else orjson.loads(raw)

    return {k: (value(v[8:]), int.from_bytes(v[:8], "big")) for k, v in rows.items()}


@pytest.mark.parametrize("block", range(BLOCKS))
def test_every_batch_size_gives_the_oracles_answer(block: int) -> None:
    for seed in range(block, SEEDS, BLOCKS):
        check_seed(seed)


def check_seed(seed: int) -> None:
    """One program at every batch size."""
    rng = random.Random(seed)
    program = split_by_connection(p.random_program(rng))
    partitions = rng.choice((1, 1, 2))
    log = random_log(rng, program, partitions)
    try:
        tasks = run_oracle(program, log, partitions)
        first: dict[tuple[int, int], Result] = {}
        for batch in BATCHES:
            results = run_engine(seed, program, log, partitions, batch)
            for at, oracle in tasks.items():
                check_same(results[at], oracle)
                assert results[at].outputs == first.setdefault(at, results[at]).outputs
                assert results[at].stores == first[at].stores
    except BaseException as exc:
        exc.add_note(f"seed {seed}, partitions {partitions}\n{program}")
        raise
