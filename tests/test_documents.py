"""The documents' Python is run as it stands: what a reader copies works, and what it writes can be read back."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import msgspec

import penstock as ps
from penstock import col
from penstock.streams.test_driver import TopologyTestDriver

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


def test_the_sample_of_the_language_writes_its_totals() -> None:
    names = {"Order": Order, "User": User, "Enriched": Enriched, "enriched": enriched}
    builder = run("LANGUAGE.md", 0, names)["builder"]
    with TopologyTestDriver(builder.build()) as driver:
        driver.pipe("users", "u1", User("Oslo"), timestamp_ms=0)
        for at_ms, amount in ((5_000, 150), (5_000, 50), (6_000, 250), (200_000, 300)):
            driver.pipe("orders", "u1", Order(amount), timestamp_ms=at_ms)
        (total,) = driver.read("totals")
    assert (total.key.key, total.key.start_ms, total.value) == ("Oslo", 0, {"total": 400, "n": 2})


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
