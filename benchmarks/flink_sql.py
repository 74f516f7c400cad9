"""Flink SQL as a peer: how a query and its answer are declared, compared and started.

Flink has mini-batches, which emit the last value of a key per batch as ``per_commit`` does, so updated results are compared
as tables: the last row of every key. Others are compared row by row, in any order.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any

from benchmarks.bench import Bench
from benchmarks.live import start_program
from benchmarks.systems import System

Pair = tuple[bytes | None, bytes | None]
Row = tuple[Any, ...]
SEPARATOR = "\n----\n"
TIMES = ("starttime", "endtime")
"""Columns that Flink writes as text and we as milliseconds."""


def read(key: bytes, value: bytes) -> dict[str, Any]:
    """The columns of a record whose value is a JSON object."""
    return dict(json.loads(value))


@dataclasses.dataclass(frozen=True)
class FlinkQuery:
    """One query. ``columns`` of its result with their types; ``key`` of an updated one; ``select`` its text; ``ours`` turns
    a record of ours into columns."""

    columns: Mapping[str, str]
    select: str
    key: tuple[str, ...] = ()
    ours: Callable[[bytes, bytes], dict[str, Any]] = read

    def row(self, of: Mapping[str, Any]) -> Row:
        """The columns in their order, each in the form in which both are equal."""
        return tuple(_plain(of[name], name in TIMES, sql_type) for name, sql_type in self.columns.items())

    def answer(self, rows: Iterable[Row]) -> Any:
        """All rows, or the last of each key."""
        if not self.key:
            return Counter(rows)
        places = [list(self.columns).index(name) for name in self.key]
        return {tuple(row[i] for i in places): row for row in rows}


def _plain(value: Any, is_time: bool, sql_type: str) -> Any:
    if is_time and isinstance(value, str):
        at = datetime.datetime.fromisoformat(value).replace(tzinfo=datetime.UTC)
        return round(at.timestamp() * 1000)
    return Decimal(str(value)).normalize() if sql_type.startswith("DECIMAL") else value


def of_ours(query: FlinkQuery, pairs: Iterable[Pair]) -> Any:
    """The answer in records of ours."""
    return query.answer(query.row(query.ours(key or b"", value)) for key, value in pairs if value is not None)


def of_flinks(query: FlinkQuery, pairs: Iterable[Pair]) -> Any:
    """The answer in records of Flink's."""
    return query.answer(query.row(json.loads(value, parse_float=Decimal)) for _, value in pairs if value is not None)


def verdict(query: FlinkQuery, ours: Any, theirs: Any) -> str:
    """How Flink's answer compares with ours."""
    if ours == theirs:
        return "equal tables" if query.key else "equal"
    if query.key:
        differ = sum(1 for k in ours.keys() | theirs.keys() if ours.get(k) != theirs.get(k))
        return f"differs: {differ:,} of {len(ours):,} keys"
    missing, more = (ours - theirs).total(), (theirs - ours).total()
    return f"differs: {missing:,} of {ours.total():,} rows are missing, {more:,} are not ours"


def sink(
    topic: str, bootstrap: str, columns: Mapping[str, str], key: tuple[str, ...] = (), name: str = "answer"
) -> str:
    """The statement that makes the table which writes JSON to a topic; under a key if there is one."""
    listed = ", ".join(f"`{column}` {sql_type}" for column, sql_type in columns.items())
    options = f"""'properties.bootstrap.servers' = '{bootstrap}', 'sink.delivery-guarantee' = 'at-least-once',
'properties.compression.type' = 'lz4', 'properties.linger.ms' = '100', 'properties.batch.size' = '262144'"""
    connector = "'connector' = 'kafka', 'format' = 'json'"
    if key:
        listed += f", PRIMARY KEY ({', '.join(f'`{column}`' for column in key)}) NOT ENFORCED"
        connector = "'connector' = 'upsert-kafka', 'key.format' = 'json', 'value.format' = 'json'"
    return f"CREATE TABLE {name} ({listed}) WITH ('topic' = '{topic}', {connector}, {options})"


def start(bench: Bench, system: System, application: str, statements: str, more: str = "") -> subprocess.Popen[bytes]:
    """Start Flink with these statements, and with lines of ``more`` settings. Raises ``UnavailableError``."""
    command, folder = system.make_ready(bench.work, bench.peers), bench.state_folder(application)
    (folder / "tmp").mkdir(parents=True)
    (folder / "query.sql").write_text(statements)
    flinks = f"{settings(str(folder), system.environment['FLINK_BACKEND'], 1000)}\n{more}"
    orders = {**system.environment, "FLINK_SETTINGS": flinks}
    return start_program(bench, [*command, str(folder / "query.sql")], application, "ALO", orders)


def settings(state_folder: str, backend: str, commit_ms: int) -> str:
    """Flink's settings: those that nexmark/nexmark publishes for mini-batches and distinct counts; checkpoints, and with
    them committed positions, as often as Penstock commits."""
    found = {
        "state.backend.type": backend,
        "execution.checkpointing.incremental": "true",
        "execution.checkpointing.interval": f"{commit_ms} ms",
        "execution.checkpointing.mode": "AT_LEAST_ONCE",
        "execution.checkpointing.storage": "filesystem",
        "execution.checkpointing.dir": f"file://{state_folder}/checkpoints",
        "state.backend.rocksdb.localdir": f"{state_folder}/rocksdb",
        "io.tmp.dirs": f"{state_folder}/tmp",
        "taskmanager.memory.managed.size": "768m",
        "pipeline.object-reuse": "true",
        "rest.port": "0",
        "table.local-time-zone": "UTC",
        "table.exec.mini-batch.enabled": "true",
        "table.exec.mini-batch.allow-latency": "2 s",
        "table.exec.mini-batch.size": "50000",
        "table.optimizer.distinct-agg.split.enabled": "true",
    }
    return "\n".join(f"{name}: {value}" for name, value in found.items())
