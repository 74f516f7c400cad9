"""Flink SQL, planned by Flink and run in the harness of Flink's own tests, as the system that Penstock is compared with."""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from random import Random
from typing import Any

import msgspec

from penstock.state.log import Record
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.dsl.ktable import KTable
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operator_api.watermark_strategies import END_OF_TIME_MS, punctuated
from tests.differential.inputs import Entry, Run
from tests.differential.judge import System
from tests.differential.kinds.queries import QUERIES, Query
from tests.differential.known_queries import DEPARTURES, PENDING
from tests.differential.outcomes import Outcome, Step
from tests.differential.penstock_side import TOPOLOGIES_KEPT

TABLE_ROWS_MAX = 8
MARK = "watermark"
HISTORY = "1h"
TEXTS = ("", "a", "b", "ab", "abc", "Ab c", " ab ", "a.b", "a/b/c", "(a)", "12", "-7", "1.5", "x12y", "äß", "[a]", "ba")
DOUBLES = (0.0, 0.5, -0.5, 2.5, -2.25, 3.0, 0.1, 7.75, 1e6, 0.25)
DECIMALS = ("0.00", "1.50", "-1.50", "12.34", "0.05", "-0.15", "99.99", "2.25")


class Columns(msgspec.Struct, frozen=True):
    """A row of a stream; ``kinds.queries.STREAM`` lists the same columns."""

    id: int
    k: str | None
    n: int | None
    m: int | None
    s: str | None
    x: float | None
    b: bool | None
    d: Decimal | None


class Named(msgspec.Struct, frozen=True):
    """A row of the table."""

    name: str | None
    n: int | None


# -- input ---------------------------------------------------------------------------------------------------------


def runs_of(kind: str, seeds: range) -> list[Run]:
    """The runs of a kind."""
    return [_random_run(QUERIES[kind], kind, seed) for seed in seeds]


def _random_run(query: Query, kind: str, seed: int) -> Run:
    rng = Random(f"{kind} {seed}")
    node = query.drawn(rng)
    return Run(kind, seed, [node], _random_input(query, node["inputs"], rng))


def _random_input(query: Query, inputs: list[str], rng: Random) -> list[Entry]:
    """Rows and watermarks; the table's rows before those of the streams, as one of them sees it as it stands when it comes;
    the end of time last."""
    null = rng.choice((0.0, 0.1, 0.3)) if query.nulls else 0.0
    step_ms, disorder_ms = rng.choice((0, 250, 1000, 2000)), rng.choice((0, 0, 2000))
    marks, keys = rng.choice((0.1, 0.3, 1.0)), "abc"[: rng.choice((1, 2, 3))]
    entries = list(_table_rows(keys, rng)) if "named" in inputs else []
    streams = [name for name in inputs if name != "named"]
    now = watermark = query.start_ms
    for number in range(rng.randint(1, query.rows_max)):
        now += rng.randint(0, step_ms)
        ts = max(now - rng.randint(0, disorder_ms), query.start_ms)
        if not query.late:
            ts = max(ts, watermark + 1)
        row = _row(number, keys, null, rng)
        entries.append({"topic": rng.choice(streams), "k": row["k"], "v": row, "ts": ts})
        if rng.random() < marks:
            watermark = max(watermark, now - rng.choice((0, 1, 1000, 2000)))
            entries.append({"event": MARK, "ts": watermark})
    return [*entries, {"event": MARK, "ts": "max"}]


def _row(number: int, keys: str, null: float, rng: Random) -> dict[str, Any]:
    values = {
        "k": rng.choice(keys),
        "n": rng.randint(-4, 12),
        "m": rng.randint(1, 3),
        "s": rng.choice(TEXTS),
        "x": rng.choice(DOUBLES),
        "b": rng.random() < 0.5,
        "d": rng.choice(DECIMALS),
    }
    return {"id": number, **{name: None if rng.random() < null else value for name, value in values.items()}}


def _table_rows(keys: str, rng: Random) -> Iterator[Entry]:
    """In order of time, and without deletions: Flink reads the updates of a table as they come, and gives a deletion the
    time of the row that it deletes."""
    ts = 0
    for _ in range(rng.randint(0, TABLE_ROWS_MAX)):
        ts += rng.randint(1, 4000)
        row = {"name": rng.choice((*"pqr", None)), "n": rng.choice((1, 2, None))}
        yield {"topic": "named", "k": rng.choice(keys), "v": row, "ts": ts}


# -- Penstock ------------------------------------------------------------------------------------------------------


def play(run: Run) -> Outcome:
    """Penstock's answer, in the test driver, one row at a time."""
    node = run.nodes[0]
    try:
        topology = _built(node["query"], tuple(node["inputs"]))
        options = TaskOptions(batch_max_records=1, wall_resolution_ms=1)
        driver = TopologyTestDriver(topology, options=options, arrival_order=True)
    except Exception as exc:  # a query that is refused is an answer, too
        return Outcome([], f"{type(exc).__name__}: {exc}")
    steps: list[Step] = []
    state: dict[str, Any] = {}
    try:
        for entry in run.input:
            driver.pipe_sequence([(topic, record) for topic, record in _records(node["inputs"], entry)])
            found = driver.read("out")
            if node["grouped"]:
                state |= {repr(r.key): r.value for r in found}
                steps.append(_table([v for v in state.values() if v is not None]))
            else:
                steps.append(_rows([r.value for r in found]))
    except Exception as exc:  # whatever processing raises is this side's answer
        return Outcome(steps, f"{type(exc).__name__}: {exc}")
    finally:
        driver.release()
    return Outcome(steps)


@functools.lru_cache(TOPOLOGIES_KEPT)
def _built(query: str, inputs: tuple[str, ...]) -> Topology:
    builder = StreamsBuilder("differential")
    rows = builder.sql(query, **{name: _input(builder, name) for name in inputs})
    (rows.to_stream() if isinstance(rows, KTable) else rows).to("out")
    return builder.build()


def _input(builder: StreamsBuilder, name: str) -> Any:
    if name == "named":
        return builder.table("named", key=str, value=Named, history=HISTORY)
    stream = builder.stream(name, key=str, value=Columns, watermark=punctuated(_watermark_of))
    return stream.filter(lambda key, value: value is not None)


def _watermark_of(record: Record) -> int | None:
    return next((int(value or b"0") for name, value in record.headers if name == MARK), None)


def _records(inputs: list[str], entry: Entry) -> Iterator[tuple[str, Record]]:
    if entry.get("event") != MARK:
        columns = Named if entry["topic"] == "named" else Columns
        value = None if entry["v"] is None else msgspec.convert(entry["v"], columns)
        yield entry["topic"], Record(entry["k"], value, entry["ts"])
        return
    watermark = END_OF_TIME_MS if entry["ts"] == "max" else entry["ts"]
    for name in inputs:
        if name != "named":
            yield name, Record(None, None, 0, ((MARK, str(watermark).encode()),))


# -- answers -------------------------------------------------------------------------------------------------------


def read(run: Run, answer: Outcome) -> Outcome:
    """Flink's changes, as both sides' answers are compared: rows as they come, or the table that they make."""
    state: Counter[str] = Counter()
    steps: list[Step] = []
    for step in answer.steps:
        changes = step.get("out", [])
        if run.nodes[0]["grouped"]:
            for change in changes:
                state[json.dumps(_plain(change["v"]))] += 1 if change["k"] in ("+I", "+U") else -1
            steps.append(_table([json.loads(text) for text in state.elements()]))
        elif all(change["k"] == "+I" for change in changes):
            steps.append(_rows([change["v"] for change in changes]))
        else:
            return Outcome(steps, "the query was to put out rows, and it changed them")
    return Outcome(steps, answer.error)


def _rows(values: list[Any]) -> Step:
    """Rows in the one order in which they are compared: neither side promises another."""
    return {"out": _sorted(values)} if values else {}


def _table(values: list[Any]) -> Step:
    """All rows of a table."""
    return {"table": _sorted(values)} if values else {}


def _sorted(values: list[Any]) -> list[dict[str, Any]]:
    return [{"v": value, "ts": 0} for value in sorted(map(_plain, values), key=json.dumps)]


def _plain(value: Any) -> Any:
    """A value as both sides write it: decimals by their number, whatever their scale."""
    if isinstance(value, msgspec.Struct):
        return _plain(msgspec.structs.asdict(value))
    if isinstance(value, dict):
        if set(value) == {"decimal"}:
            return _plain(Decimal(value["decimal"]))
        return {name: _plain(of) for name, of in value.items()}
    if isinstance(value, Decimal):
        return {"decimal": f"{value.normalize() + 0:f}"}
    return value


def case_of(run: Run, theirs: Outcome) -> dict[str, Any]:
    """A run and what Flink put out. The conformance format has no queries: this is for the eye."""
    return {"query": run.nodes[0]["query"], "input": run.input, "expected": theirs.steps}


FLINK_SQL = System(
    name="Flink SQL",
    project="flink_sql",
    kinds=tuple(QUERIES),
    runs_of=runs_of,
    question=lambda run: {"query": run.nodes[0]["theirs"], "input": run.input},
    play=play,
    read=read,
    case=case_of,
    departures=DEPARTURES,
    pending=PENDING,
    tail=1,
)
