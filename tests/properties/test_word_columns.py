"""Words counted on columns are those counted row by row, whatever the texts hold and however batches are cut."""

from __future__ import annotations

import random
from typing import Any

import pytest

from penstock.state.log import Record
from penstock.streams.task.error_policies import Policies
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.columnar.word_splitting import words
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.expressions.functions import value
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operator_api.columns import BytesColumn
from penstock.topologies.operators.columnar import splitting

PARTS = [
    "the",
    "The",
    "quick",
    "fox",
    " ",
    "  ",
    "\t\n",
    "\x1c",
    "\x85",
    "\u3000",
    "É",
    "İ",
    "ΑΣ",
    "ß",
    "日本",
    "\x00",
    "",
]


def topology(rng: random.Random) -> Topology:
    builder = StreamsBuilder(
        "w", key=rng.choice((str, bytes)), value=str, emission=rng.choice(("every_update", "per_commit"))
    )
    split = builder.stream("in").flat_map_values(words)
    split.to("words")
    by_word = rng.choice((value(), lambda _, word: word))
    split.group_by(by_word, key=str).count(name="counts").to_stream().map_values(str, value=str).to("out")
    return builder.build()


def text(rng: random.Random, *, hostile: bool) -> bytes | None:
    if hostile and rng.random() < 0.05:
        return rng.choice((None, b"\xff", b"the \xed\xa0\x80"))
    parts = PARTS if rng.random() < 0.3 else PARTS[:5]
    return " ".join(rng.choice(parts) for _ in range(rng.randrange(6))).encode()


def outcome(seed: int, batch: int, *, columns: bool) -> dict[str, Any]:
    """Everything that was done with the seed's input."""
    rng = random.Random(seed)
    options = TaskOptions(policies=Policies("skip", "skip"), batch_max_records=batch)
    with TopologyTestDriver(topology(rng), options=options, auto_commit=False, columns=columns) as driver:
        hostile = rng.random() < 0.5
        for _ in range(rng.randint(1, 4)):
            keys = (None, b"a", "é".encode()) if rng.random() < 0.5 else (b"a",)
            records = [
                Record(
                    rng.choice(keys), text(rng, hostile=hostile), rng.randrange(100), rng.choice(((), (("h", b"1"),)))
                )
                for _ in range(rng.choice((3, 40, 90)))
            ]
            driver.pipe_raw({"in": records})
            if rng.random() < 0.6:
                driver.commit()
            if rng.random() < 0.2:  # between commits, as a query does
                for task in driver.tasks.values():
                    for state in task.stores.values():
                        state.get(b"the")
        driver.commit()
        driver.commit()
        written = {t: driver.read_raw(t) for t in ("words", "out")}
        return {"written": written, "changelogs": driver.changelogs, "dropped": +driver.dropped_records}


def test_columns_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    split = splitting.split_words
    texts = [0]

    def counted(column: BytesColumn, *, lower: bool) -> Any:
        texts[0] += len(column)
        return split(column, lower=lower)

    monkeypatch.setattr(splitting, "split_words", counted)
    taken = 0
    for seed in range(25):
        rows = outcome(seed, 10_000, columns=False)
        assert not texts[0], "rows were taken for columns"
        for batch in (1, 2, 7, 50, 10_000):
            assert outcome(seed, batch, columns=True) == rows, (seed, batch)
        taken, texts[0] = taken + texts[0], 0
    assert taken, "no batch was taken as columns"
