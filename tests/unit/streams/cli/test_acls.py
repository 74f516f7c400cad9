"""The least rights of an application, and how ``penstock acls`` prints them."""

from __future__ import annotations

import shlex
from pathlib import Path

import orjson
import pytest

import penstock as ps
from penstock.streams.cli.acls import rights_of, script
from penstock.streams.cli.main import main
from penstock.streams.runtime.least_rights import least_rights
from penstock.streams.runtime.own_topics import own_topics
from penstock.streams.worker.settings import WorkerSettings
from penstock.topologies.graph.topology import Topology


@pytest.fixture(scope="module")
def topology() -> Topology:
    """A table, a repartition topic, a store that expires, and an output."""
    builder = ps.StreamsBuilder(key=str, value=str)
    joined = builder.stream("orders").join(builder.table("users"), lambda order, user: user)
    windows = joined.group_by(lambda key, city: city).windowed_by(ps.tumbling("1m", grace=0)).count(name="minutes")
    windows.to_stream(lambda window, count: window.key, key=str).to("totals", value=int)
    return builder.build()


def granted(topology: Topology, **options: object) -> dict[str, set[str]]:
    """The operations by name."""
    settings: dict[str, object] = {"guarantee": "exactly_once", **options}
    return {r.name: set(r.operations) for r in least_rights(topology, "shop", **settings)}  # type: ignore[arg-type]  # options by name


def test_users_topics_are_not_created_changed_or_deleted(topology: Topology) -> None:
    found = granted(topology)
    assert found["orders"] == {"READ", "DESCRIBE_CONFIGS"}, "the journal lives as long as its inputs"
    assert found["users"] == {"READ", "DESCRIBE_CONFIGS"}
    assert found["totals"] == {"WRITE"}


def test_every_topic_of_the_application_may_be_created(topology: Topology) -> None:
    found = granted(topology)
    made = {name for name, operations in found.items() if "CREATE" in operations}
    assert made == set(own_topics(topology, "shop")) - {"shop-1-journal"}, "one input needs no journal"


def test_records_are_deleted_only_where_a_worker_deletes(topology: Topology) -> None:
    deleted = {name for name, operations in granted(topology).items() if "DELETE" in operations}
    assert deleted == {"shop-minutes-changelog"}
    purged = {name for name, operations in granted(topology, purges=True).items() if "DELETE" in operations}
    assert len(purged - deleted) == 1
    assert all(name.endswith("-repartition") for name in purged - deleted)


def test_transactions_are_for_who_commits_in_them(topology: Topology) -> None:
    assert granted(topology)["shop-"] == {"WRITE"}
    assert "shop-" not in granted(topology, guarantee="at_least_once")
    assert granted(topology, guarantee="at_least_once", fixed=True)["shop-"] == {"WRITE"}


def test_settings_add_the_dead_letter_topic(topology: Topology) -> None:
    policies = ps.Policies(processing="dead_letter", dead_letter_topic="dead")
    names = {
        r.name: r.operations for r in rights_of(topology, WorkerSettings(application_id="shop", policies=policies))
    }
    assert names["dead"] == ("WRITE",)


def test_script_grants_each_right_once(topology: Topology) -> None:
    rights = least_rights(topology, "shop", "exactly_once")
    lines = [shlex.split(line, comments=True) for line in script(rights, "User:me", "b:9092").splitlines()]
    grants = [words[1:] for words in lines if words[:1] == ["$acls"]]
    assert len(grants) == len(rights)
    for right, words in zip(rights, grants, strict=True):
        assert words[:3] == ["--add", "--allow-principal", "User:me"]
        asked = [words[i + 1].upper() for i, word in enumerate(words) if word == "--operation"]
        assert asked == [operation.replace("_", "") for operation in right.operations]
        assert words[words.index(f"--{right.kind}") + 1] == right.name
        assert ("prefixed" in words) == right.prefixed


def test_command_takes_the_principal_from_the_application(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["acls", "penstock.topologies.examples.word_count:build", "--application-id", "wc"]
    assert main([*command, "--json"]) == 0
    assert {right["principal"] for right in orjson.loads(capsys.readouterr().out)} == {"User:wc"}
    assert main(command) == 0
    assert capsys.readouterr().out.startswith("resource")


def test_an_ingestion_has_rights_of_its_own(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "feeds.py").write_text(
        "from penstock import connectors\n"
        'source = connectors.CsvSource("in/*.csv")\n'
        'orders = connectors.Ingestion("orders-in", source, "orders", value=dict)\n'
    )
    monkeypatch.chdir(tmp_path)
    assert main(["acls", "feeds.py:orders", "--json"]) == 0
    found = {(r["kind"], r["name"]): r for r in orjson.loads(capsys.readouterr().out)}
    assert {place: right["operations"] for place, right in found.items()} == {
        ("topic", "orders"): ["WRITE"],
        ("topic", "orders-in-positions"): ["CREATE", "READ", "WRITE"],
        ("transactional-id", "orders-in-ingestion"): ["WRITE"],
    }
    assert {right["principal"] for right in found.values()} == {"User:orders-in"}
    assert not any(right["prefixed"] for right in found.values())
    assert main(["acls", "feeds.py:orders", "--script", "--bootstrap-server", "b:9092"]) == 0
    assert "--transactional-id orders-in-ingestion" in capsys.readouterr().out
    assert main(["acls", "feeds.py:source", "--application-id", "x"]) == 2
    assert "gives a CsvSource" in capsys.readouterr().err
