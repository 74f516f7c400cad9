"""``penstock state`` over the folder of a real worker, while it runs and after it has stopped."""

from __future__ import annotations

import uuid
from pathlib import Path

import orjson
import pytest

from penstock.streams.cli.main import main
from penstock.streams.kafka.console import NewRecord, produce_records
from penstock.streams.kafka.topics import Topics
from penstock.streams.topology_loading import load_topology
from penstock.streams.worker.load_settings import load_settings
from penstock.streams.worker.worker import Worker
from tests.integration.worker.application import until

TOPOLOGY = """
import penstock as ps

builder = ps.StreamsBuilder(key=str, value=str)
views = builder.stream("{name}").group_by_key()
views.count(name="counts")
views.windowed_by(ps.tumbling("1m", grace="1h")).count(name="minutes")
views.windowed_by(ps.session("10s", grace="1h")).count(name="visits")
topology = builder.build()
"""
MINUTE = 60_000


def test_stores_are_read_while_the_worker_runs_and_afterwards(
    kafka: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"look-{uuid.uuid4().hex[:8]}"
    module, state = tmp_path / "views.py", tmp_path / "state"
    module.write_text(TOPOLOGY.format(name=name))
    Topics(kafka, {}).create(name, partitions=1, replication_factor=1, configs={})
    times = [1_000, 2_000, MINUTE + 1_000]
    produce_records(kafka, {}, name, [NewRecord(b"ann", b"v", at) for at in times])
    given = {"application_id": name, "bootstrap_servers": kafka, "state_dir": str(state)}

    def got(*words: str) -> list[dict[str, object]]:
        capsys.readouterr()
        main(
            ["state", words[0], str(module), *words[1:], "--json", "--application-id", name, "--state-dir", str(state)]
        )
        return [orjson.loads(line) for line in capsys.readouterr().out.splitlines()]

    settings = load_settings(env={}, state_flush_interval_ms=500, commit_interval_ms=200, **given)
    worker = Worker(load_topology(str(module)), settings).start()
    try:
        until("the count is written out", lambda: [e["value"] for e in got("get", "counts", "ann")] == [3])
        assert worker.running
    finally:
        worker.stop()
    windows = [(e["start"], e["end"], e["value"]) for e in got("get", "minutes", "ann")]
    assert windows == [(0, MINUTE, 2), (MINUTE, 2 * MINUTE, 1)]
    visits = [(e["start"], e["end"], e["value"]) for e in got("scan", "visits")]
    assert visits == [(1_000, 2_000, 2), (MINUTE + 1_000, MINUTE + 1_000, 1)]
    assert main(["state", "list", str(module), "--application-id", name, "--state-dir", str(state)]) == 0
    listed = [line.split()[:3] for line in capsys.readouterr().out.splitlines()[1:]]
    assert listed == [["counts", "key_value", "0"], ["minutes", "window", "0"], ["visits", "session", "0"]]
