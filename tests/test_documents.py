"""The documents' Python is run as it stands: what a reader copies works, and what it writes can be read back."""

from __future__ import annotations

import dataclasses
import re
import textwrap
from pathlib import Path
from typing import Any

import msgspec
import pytest

import penstock as ps
from penstock import col
from penstock.state.errors import SettingsError
from penstock.state.rocksdb.tuning import RocksDBOptions
from penstock.streams.cli.main import build_parser
from penstock.streams.events import metric_names
from penstock.streams.events.facts import ProcessEnded, WorkerStopped
from penstock.streams.events.sentences import line_of
from penstock.streams.kafka.client_config import admin_config, producer_config
from penstock.streams.runtime import metric_values
from penstock.streams.task.error_policies import Policies
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.streams.worker.load_settings import load_settings
from penstock.streams.worker.settings import WorkerSettings
from tests.fact_samples import KINDS, SAMPLES

ROOT = Path(__file__).parents[1]


class Order(msgspec.Struct, frozen=True):
    amount: int


class User(msgspec.Struct, frozen=True):
    city: str


class Enriched(msgspec.Struct, frozen=True):
    amount: int
    city: str


def enriched(order: Order, user: User) -> Enriched:
    return Enriched(order.amount, user.city)


def blocks(document: str, language: str) -> list[str]:
    """The fenced blocks of one language in a document of the project, in their order."""
    return re.findall(rf"^```{language}\n(.*?)^```", (ROOT / document).read_text(), re.MULTILINE | re.DOTALL)


def run(document: str, number: int, names: dict[str, Any]) -> dict[str, Any]:
    """Run one Python block of a document; ``names`` are those that it presumes, and get those that it makes."""
    exec(compile(blocks(document, "python")[number], f"{document}, Python block {number}", "exec"), names)
    return names


def test_the_first_sample_of_the_readme_writes_what_its_test_says() -> None:
    names = run("README.md", 0, {})
    run("README.md", 1, names)
    with TopologyTestDriver(names["topology"]) as driver:
        driver.pipe("users", "u1", {"city": "Oslo"})
        for at_ms, kind in ((5_000, "view"), (6_000, "click"), (7_000, "view"), (61_000, "view")):
            driver.pipe("events", "u1", {"type": kind}, timestamp_ms=at_ms)
        assert [(r.key, r.value) for r in driver.read("views")][-2:] == [("Oslo@0", 2), ("Oslo@60000", 1)]


def test_every_block_of_the_readme_is_run() -> None:
    assert len(blocks("README.md", "python")) == 2


def test_the_commands_on_spark_are_ones_and_verify_compares_outputs() -> None:
    lines = [line.split("#")[0].split() for d in ("README.md", "OPERATING.md") for line in indented(d)]
    given = [words[1:] for words in lines if words[:1] == ["penstock"] and "topology" in str(words[2:3])]
    parsed = {words[0]: build_parser(words).parse_args(words) for words in given}
    assert {"worker", "compact", "replay", "verify", "lake"} <= set(parsed)
    assert parsed["verify"].guarantee == "exactly_once", "at least once, only stores are compared"


def indented(document: str) -> list[str]:
    """The indented lines of a document of the project."""
    return [line.strip() for line in (ROOT / document).read_text().splitlines() if line.startswith("    ")]


def test_the_sample_of_the_language_writes_its_totals() -> None:
    names = {"Order": Order, "User": User, "Enriched": Enriched, "enriched": enriched}
    builder = run("LANGUAGE.md", 0, names)["builder"]
    with TopologyTestDriver(builder.build()) as driver:
        driver.pipe("users", "u1", User("Oslo"), timestamp_ms=0)
        for at_ms, amount in ((5_000, 150), (5_000, 50), (6_000, 250), (200_000, 300)):
            driver.pipe("orders", "u1", Order(amount), timestamp_ms=at_ms)
        (total,) = driver.read("totals")
    assert (total.key.key, total.key.start_ms, total.value) == ("Oslo", 0, {"total": 400, "n": 2})


@pytest.mark.parametrize("group", [WorkerSettings, Policies, RocksDBOptions])
def test_every_setting_stands_with_its_default(group: Any) -> None:
    table = re.search(
        rf"^\| `{group.__name__}` \| default \| meaning \|\n\| --- .*\n((?:\| .*\n)+)", operating(), re.MULTILINE
    )
    assert table is not None
    rows = [[cell.strip() for cell in row.strip("|").split(" | ")] for row in table[1].splitlines()]
    expected = [[f"`{field.name}`", default_of(field)] for field in dataclasses.fields(group)]
    assert sorted(row[:2] for row in rows) == sorted(expected)
    assert all(len(row) == 3 and row[2] for row in rows)


def default_of(field: dataclasses.Field[Any]) -> str:
    """A field's default as the tables write it."""
    if field.default is not dataclasses.MISSING:
        default = field.default
    elif field.default_factory is not dataclasses.MISSING:
        default = field.default_factory()
    else:
        return "required"
    if dataclasses.is_dataclass(default):
        return f"`{type(default).__name__}()`"
    return "`none`" if default is None else f"`{default:_}`" if isinstance(default, int) else f"`{default}`"


def test_the_file_and_the_environment_of_the_settings_say_the_same(tmp_path: Path) -> None:
    (toml,), (lines,) = blocks("OPERATING.md", "toml"), blocks("OPERATING.md", "sh")
    file = tmp_path / "worker.toml"
    file.write_text(toml)
    env = dict(line.split("=", 1) for line in lines.splitlines())
    of_file, of_env = load_settings(file, env={}), load_settings(env=env)
    for group in ("application_id", "guarantee", "policies", "rocksdb"):
        assert getattr(of_file, group) == getattr(of_env, group)
    assert {**of_file.common, "sasl.password": "…"} == of_env.common
    admin_config(of_file.bootstrap_servers, of_file.common)


def test_keys_that_are_said_to_be_refused_are() -> None:
    (said,) = re.findall(r"^Keys that would break a promise .*: (.*) and such\.$", operating(), re.MULTILINE)
    names = re.findall(r"`([a-z.]+)`", said)
    assert len(names) == 3
    for name in names:
        with pytest.raises(SettingsError, match="remove it"):
            producer_config("b:1", {name: "random"})


def operating() -> str:
    """The page for who runs an application."""
    return (ROOT / "OPERATING.md").read_text()


def rows_of(heading: str) -> list[list[str]]:
    """The cells of the table of ``OPERATING.md`` that begins with this heading."""
    table = re.search(rf"^\| {heading} \|.*\n\| --- .*\n((?:\| .*\n)+)", operating(), re.MULTILINE)
    assert table is not None
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in table[1].splitlines()]


def test_the_metrics_that_are_named_are_those_that_are_given() -> None:
    expected = [
        [f"`{m.name}`", m.kind, ", ".join(f"`{label}`" for label in m.labels) or "–", m.meaning]
        for m in metric_names.ALL
    ]
    assert rows_of("metric") == expected
    looked_at = set(re.findall(r'"(penstock_[a-z_]+)"', Path(metric_values.__file__).read_text()))
    assert looked_at <= metric_names.BY_NAME.keys()


def test_the_facts_that_are_named_are_those_that_are_reported_with_their_levels() -> None:
    found = {cells[0].strip("`"): (cells[1].split(", "), cells[2:]) for cells in rows_of("fact")}
    assert list(found) == [kind.__name__ for kind in KINDS]
    for fact in SAMPLES:
        levels, (meaning, remedy) = found[type(fact).__name__]
        assert line_of(fact).level in levels, fact
        assert meaning and remedy
    assert line_of(WorkerStopped("requested", None)).level == found["WorkerStopped"][0][0]
    assert line_of(ProcessEnded(0, 1, 1, None)).level == found["ProcessEnded"][0][1]


def test_a_serde_of_two_functions_reads_what_it_wrote() -> None:
    builder = run("OPERATING.md", 0, {})["builder"]
    with TopologyTestDriver(builder.build()) as driver:
        driver.pipe("packed", "k", {"a": 1})
        assert [r.value for r in driver.read("plain")] == [{"a": 1}]


def test_the_plan_that_the_language_prints_is_what_describe_prints() -> None:
    class Sale(msgspec.Struct, frozen=True):
        kind: str
        amount: int

    builder = ps.StreamsBuilder("orders", value=Sale)
    large = builder.stream("orders").filter((col("kind") == "sale") & (col("amount") > 100), name="large")
    large.peek(print).to("large-orders")
    text = (ROOT / "LANGUAGE.md").read_text()
    printed = re.search(r"^    \$ penstock describe MODULE:TOPOLOGY --plan\n((?:    .*\n|\n)+)", text, re.MULTILINE)
    assert printed is not None
    assert textwrap.dedent(printed[1]).strip() == builder.build().describe(plan=True).strip()
