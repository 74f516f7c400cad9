"""A changed topology: what it changes is named before any topic is made, also on a machine without the state folder."""

from __future__ import annotations

import uuid
from pathlib import Path

import orjson
import pytest

from penstock.state.errors import IncompatibleError
from penstock.streams.cli.main import main
from penstock.streams.events.facts import Fact, TopologyChanged
from penstock.streams.events.measurements import Measurement
from penstock.streams.kafka.console import NewRecord, produce_records
from penstock.streams.kafka.topics import Topics
from penstock.streams.topology_loading import load_topology
from penstock.streams.worker.load_settings import load_settings
from penstock.streams.worker.worker import Worker
from tests.integration.worker.application import until

TOPOLOGY = """
import penstock as ps

builder = ps.StreamsBuilder(key={key}, value=str)
builder.stream("{topic}").group_by_key().count(name="{store}")
topology = builder.build()
"""


class Facts:
    """Keeps what a worker reports."""

    def __init__(self) -> None:
        self.facts: list[Fact] = []

    def emit(self, fact: Fact) -> None:
        self.facts.append(fact)

    def measure(self, measurement: Measurement) -> None: ...


class Application:
    """One application whose topology can be written again."""

    def __init__(self, kafka: str, folder: Path) -> None:
        self.name, self.kafka, self.folder = f"chg-{uuid.uuid4().hex[:8]}", kafka, folder
        self.topics = Topics(kafka, {})
        self.topics.create(self.name, partitions=1, replication_factor=1, configs={})
        self.produce()

    def produce(self) -> None:
        """Write one record for the next worker to process."""
        produce_records(self.kafka, {}, self.name, [NewRecord(b"k", b"v")])

    def module(self, store: str, key: str = "str") -> str:
        path = self.folder / f"{store}_{key}.py"
        path.write_text(TOPOLOGY.format(topic=self.name, store=store, key=key))
        return str(path)

    def run(self, module: str, state: str) -> list[Fact]:
        """Run until the record was counted and committed; what the worker said."""
        settings = load_settings(
            env={}, application_id=self.name, bootstrap_servers=self.kafka, state_dir=str(self.folder / state)
        )
        heard = Facts()
        worker = Worker(load_topology(module), settings, events=heard).start()
        try:
            until("it has committed", lambda: main(["lag", self.name, "--bootstrap-server", self.kafka]) == 0)
        finally:
            worker.stop()
        return heard.facts

    def diff(self, module: str) -> int:
        return main(["diff", module, "--application-id", self.name, "--bootstrap-server", self.kafka])

    def own(self) -> set[str]:
        return {t.name for t in self.topics.list() if t.name.startswith(f"{self.name}-")}


def test_changes_are_named_before_anything_is_made(
    kafka: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    app = Application(kafka, tmp_path)
    first = app.module("n")
    assert app.diff(first) == 0
    assert "has no record of a topology" in capsys.readouterr().out
    app.run(first, "state")
    assert app.diff(first) == 0
    assert "nothing that application" in capsys.readouterr().out
    before = app.own()
    assert before == {f"{app.name}-n-changelog", f"{app.name}-topology"}

    typed = app.module("n", key="int")
    assert app.diff(typed) == 1
    assert "key_value of string to int" in capsys.readouterr().out
    for state in ("state", "elsewhere"):
        with pytest.raises(
            IncompatibleError,
            match=r"does not fit what application .* was key_value of string to int and is now key_value of int to int",
        ):
            app.run(typed, state)

    renamed = app.module("m")
    assert main(["diff", renamed, "--application-id", app.name, "--bootstrap-server", kafka, "--json"]) == 1
    (change,) = orjson.loads(capsys.readouterr().out)
    assert (change["was"], change["becomes"], change["outcome"]) == ("called n", "called m", "begins empty")
    with pytest.raises(IncompatibleError, match="What changed: store n was called n and is now called m: begins empty"):
        app.run(renamed, "state")
    assert app.own() == before, "a start that is refused makes no topic"
    app.produce()
    said = [fact for fact in app.run(renamed, "elsewhere") if isinstance(fact, TopologyChanged)]
    assert len(said) == 1
    assert "begins empty" in said[0].changes
    assert app.diff(renamed) == 0


def test_positions_whose_changelog_is_gone_are_refused(kafka: str, tmp_path: Path) -> None:
    app = Application(kafka, tmp_path)
    module = app.module("n")
    app.run(module, "state")
    app.topics.delete(f"{app.name}-n-changelog")
    with pytest.raises(
        IncompatibleError, match=f"topic {app.name}-n-changelog does not exist, but group {app.name} has"
    ):
        app.run(module, "elsewhere")
    assert f"{app.name}-n-changelog" not in app.own()
    assert app.diff(module) == 2
