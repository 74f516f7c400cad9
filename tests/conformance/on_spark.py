"""Spark as the runner of cases: a worker plays the case on real Kafka, then Spark replays what is in the log, journal
included. What Spark wrote is judged."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

from penstock.state.log import Record
from penstock.streams.batch.published import Replay
from penstock.streams.spark.connection import Connection
from penstock.streams.spark.replay_job import replay
from penstock.streams.task.task_options import TaskOptions
from penstock.topologies.graph.topology import Topology
from tests.conformance.case_format import Case, read_cases
from tests.conformance.live import WorkerPlayer, decoded
from tests.conformance.scenario import Played, Scenario, Setting
from tests.conformance.suite import scenario_of


class SparkPlayer:
    """Plays scenarios through a worker and a replay. ``spark``: a session that runs. An output of Spark is attributed to
    the entry that the worker's output at the same place was attributed to; stores are those of the replay's end, so that
    cases which look into stores before the end are judged by the worker's."""

    def __init__(self, bootstrap_servers: str, folder: Path, spark: Any) -> None:
        self._live = WorkerPlayer(bootstrap_servers, folder)
        self.live = Played()
        """What came of the worker's run of the last scenario."""
        self._spark = spark
        self._case: Case | None = None
        self._setting = Setting()

    def setting(self, case: Case) -> Setting:
        """The worker's."""
        self._case, self._setting = case, self._live.setting(case)
        return self._setting

    def __call__(self, scenario: Scenario) -> Played:
        """Play, replay, and give what the replay wrote."""
        live = self.live = self._live(scenario)
        if live.error is not None or self._case is None:
            return live
        output = str(self._live.folder / f"{self._live.application_id}-replay")
        line = json.dumps(self._case.data)
        done = replay(
            partial(rebuilt, line, self._setting.prefix, self._setting.around_ms),
            application_id=self._live.application_id,
            connection=Connection(self._live.bootstrap_servers),
            output=output,
            options=TaskOptions(policies=self._live.policies),
        ).replay
        played = Played(stores=live.stores, dropped=live.dropped)
        for sink, topic in scenario.sinks.items():
            rows = decoded(scenario, topic, self._records(output, done, topic))
            indices = [index for index, _ in live.outputs[sink]]
            if len(rows) != len(indices):
                played.error = (0, f"Spark wrote {len(rows)} records to {sink}, the worker {len(indices)}")
            # with another number of records the case has failed already; what there is, is shown
            padded = indices + [len(self._case.input)] * len(rows)
            played.outputs[sink] = [(i, scenario.row(sink, r)) for i, r in zip(padded, rows, strict=False)]
            played.headers[sink] = [r.headers for r in rows]
        return played

    def _records(self, output: str, done: Replay, topic: str) -> list[Record]:
        found: list[Record] = []
        for file in sorted(done.output_files(topic), key=lambda f: (f.subtopology, f.task)):
            for row in self._spark.read.parquet(f"{output}/{file.path}").orderBy("seq").collect():
                key, value = (None if row[c] is None else bytes(row[c]) for c in ("key", "value"))
                pairs = [(h["key"], None if h["value"] is None else bytes(h["value"])) for h in row["headers"] or ()]
                found.append(Record(key, value, row["timestamp_ms"], tuple(pairs)))
        return found


def rebuilt(line: str, prefix: str, around_ms: int) -> Topology:
    """The case's topology, in driver and executors."""
    (case,) = read_cases([line], "the replayed case")
    return scenario_of(case, Setting(prefix, around_ms)).topology
