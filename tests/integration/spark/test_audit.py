"""Verify as an audit: from savepoint to savepoint, within a tolerance, of a sample, for loss; and what a change would
change."""

from __future__ import annotations

import json
from functools import reduce
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock.state.errors import SettingsError
from penstock.state.serdes.serde import FLOAT
from penstock.streams.batch.audit import Audit
from penstock.streams.batch.savepoint import SavepointRepository
from penstock.streams.batch.values_as_text import Tolerance
from penstock.streams.batch.verify_plan import Sample, VerifyResult
from penstock.streams.spark import Connection, compact, verify
from penstock.streams.spark.difference_table import Forms
from penstock.streams.spark.shipping import ship
from penstock.streams.spark.what_if import METADATA, marked, side_by_side, what_if
from tests.integration.spark.live import App, Live, Row, command
from tests.integration.spark.topologies import counted, sums

NEAR = Tolerance(relative=1e-9)
KEYS = 8


def rows(start: int, stop: int) -> list[Row]:
    return [(b"k%d" % (i % KEYS), FLOAT.serialize(i / 7), 1000 + i) for i in range(start, stop)]


def found(result: VerifyResult) -> dict[tuple[str, str], tuple[int, int, int, int]]:
    return {(c.kind, c.mode): (c.stream_rows, c.batch_rows, c.differences, c.allowed) for c in result.comparisons}


def test_an_application_is_audited_from_savepoint_to_savepoint(
    spark: SparkSession, connection: Connection, live: Live, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    app_id, repository = live.application_id, str(tmp_path / "snapshots")
    how = {"application_id": app_id, "connection": connection, "repository": repository}
    live.create(2, live.topic("in"), live.topic("out"))
    live.produce(live.topic("in"), rows(0, 200))
    (tmp_path / "summing.py").write_text(
        f"from tests.integration.spark.topologies import sums\ntopology = sums({app_id!r})\nother = sums({app_id!r}, 1.5)\n"
    )
    summing = f"{tmp_path}/summing.py"

    def audited(*more: str, topology: str = summing) -> tuple[int, dict[str, object]]:
        capsys.readouterr()
        code = command("verify", topology, live, "--incremental", "--json", "--repository", repository, *more)
        return code, json.loads(capsys.readouterr().out.splitlines()[-1])

    with App(live, sums(app_id)()) as app:
        app.run(commit_every=30)
        code, first = audited()
        assert (code, first["same"], first["records"], first["started_from"]) == (0, True, 200, "start"), first
        audit, savepoints = Audit(repository, app_id), SavepointRepository(repository)
        assert audit.begin() == f"savepoint:{first['until']}" and savepoints.pinned(app_id) == {first["until"]}

        live.produce(live.topic("in"), rows(200, 260))
        app.run(commit_every=30)
        # Another topology than the one that ran: found in what came since, written down, and not passed.
        code, wrong = audited("--differences", str(tmp_path / "wrong"), topology=f"{summing}:other")
        assert (code, wrong["same"], wrong["records"], wrong["started_from"]) == (1, False, 60, first["until"]), wrong
        assert audit.begin() == f"savepoint:{first['until']}"
        table = pq.read_table(tmp_path / "wrong").to_pylist()
        assert {r["name"] for r in table} == {"sums", live.topic("out")} and len(table) == 60 + KEYS
        assert all(r["key"].startswith('"k') and float(r["stream"]) < float(r["batch"]) for r in table)

        # The application goes on, and what it did up to the cut is judged all the same.
        cut = compact(sums(app_id), **how).savepoint
        live.produce(live.topic("in"), rows(260, 300))
        app.run(commit_every=30)
        at_cut = verify(sums(app_id), to=f"savepoint:{cut}", **how)
        assert at_cut.same and at_cut.records == 260 and at_cut.until == cut and not at_cut.cautions, at_cut
        assert found(at_cut) == {("topic", "sequence"): (260, 260, 0, 0), ("store", "last value"): (KEYS, KEYS, 0, 0)}

        code, second = audited()
        assert (code, second["same"], second["records"], second["started_from"]) == (0, True, 100, first["until"])
        assert savepoints.pinned(app_id) == {second["until"]}, "what was verified before need not be kept"

    # The last digits of a sum are no difference, where that was declared.
    near = sums(app_id, 1.0 + 1e-13)
    exact = verify(near, **how)
    assert not exact.same and found(exact)["store", "last value"][2] == KEYS
    assert verify(near, tolerance=NEAR, **how).same

    # A sample of the partitions: half of the keys, as exactly.
    half = verify(sums(app_id), sample=Sample(2, 0), **how)
    assert half.same and not half.cautions and 0 < half.records < 300, half
    other = verify(sums(app_id, 1.5), sample=Sample(2, 1), **how)
    assert not other.same and other.records == 300 - half.records

    # At least once: what was written twice is allowed, what is missing is not.
    live.produce(live.topic("out"), [(b"k1", FLOAT.serialize(1.0), 9_000)])
    doubled = verify(sums(app_id), exactly_once=False, **how)
    assert doubled.same and found(doubled)["topic", "loss"] == (301, 300, 0, 1), doubled
    lost = verify(sums(app_id, copies=2), exactly_once=False, **how)
    assert not lost.same and found(lost)["topic", "loss"][2] == 299


def test_a_changed_topology_is_compared_before_it_is_deployed(
    spark: SparkSession, connection: Connection, live: Live, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    app_id, flag, table = live.application_id, tmp_path / "die", tmp_path / "table"
    how = {"application_id": app_id, "connection": connection, "until": "end"}
    live.create(2, live.topic("in"))
    live.produce(live.topic("in"), rows(0, 160))
    old = sums(app_id)
    assert what_if(old, old, **how).same
    changed = what_if(old, sums(app_id, 2.0, copies=2), differences=str(table), **how)
    by_name = {(s.kind, s.name): s for s in changed.subjects}
    outputs, stores = by_name["topic", live.topic("out")], by_name["store", "sums"]
    assert (outputs.old_rows, outputs.new_rows, outputs.differing_keys) == (160, 320, KEYS)
    assert (stores.old_rows, stores.new_rows, stores.differing_rows, stores.differing_keys) == (KEYS, KEYS, KEYS, KEYS)
    listed = pq.read_table(table).to_pylist()
    assert len(listed) == outputs.differing_rows + KEYS and any(
        r["old"] is None and r["new"] is not None for r in listed
    )
    assert all(2 * float(r["old"]) == float(r["new"]) for r in listed if r["kind"] == "store")
    assert what_if(old, sums(app_id, 1.0 + 1e-13), tolerance=NEAR, **how).same

    # From a time on, with empty stores; repartition topics need not be there.
    versions = counted(app_id, flag), counted(app_id, flag, old=False)
    late = what_if(*versions, since="1970-01-01T00:00:01.080Z", **how)
    assert late.records == 80 + 80, "those of the input since then, and those that go through the repartition topic"
    assert any("began empty" in c for c in late.cautions), late.cautions
    assert set(late.changes) == {
        f"topic {app_id}.ends is the old topology's alone",
        f"topic {app_id}.ends-new is the new topology's alone",
    }
    assert {s.name: s.differing_rows > 0 for s in late.subjects} == {
        live.topic("out"): False,
        "counts": False,
        "ends": True,
    }

    (tmp_path / "versions.py").write_text(
        f"from tests.integration.spark.topologies import sums\nold = sums({app_id!r})\nnew = sums({app_id!r}, 2.0)\n"
    )
    more = ["--until", "end", "--report", f"{tmp_path}/page.html"]
    code = command("compare", f"{tmp_path}/versions.py:old", live, f"{tmp_path}/versions.py:new", *more)
    page = (tmp_path / "page.html").read_text()
    assert all(f"the {which} topology: sub-topology 0" in page for which in ("old", "new")) and 'class="bad"' in page
    shown = capsys.readouterr().out
    assert (
        code == 1
        and "the topologies DIFFER over 160 processed records" in shown
        and 'key "k0": old 0.0, new' not in shown
    )


def test_metadata_and_partitions_are_compared(spark: SparkSession) -> None:
    """A key in the stores of two tasks is two rows; an output with another time, header or partition differs."""
    header = [("h", b"1")]
    base = (b"k", 1, 0, b"v", (0, 1000, None))
    sides: dict[str, list[tuple[object, ...]]] = {
        "same": [base],
        "time": [(*base[:4], (0, 1001, None))],
        "header": [(*base[:4], (0, 1000, header))],
        "partition": [(*base[:2], 1, b"v", (1, 1000, None))],
        "value": [(*base[:3], b"w", base[4])],
        "none": [],
    }

    def frame(rows: list[tuple[object, ...]], side: str) -> DataFrame:
        schema = f"key binary, place long, partition int, {side} binary, {side}_metadata {METADATA}"
        return spark.createDataFrame(rows, schema)

    forms = Forms(ship(sums("app")), "app", ship(sums("app")), "app")
    parts = [side_by_side("topic", n, [frame([base], "left"), frame(rows, "right")]) for n, rows in sides.items()]
    stored: list[tuple[object, ...]] = [(b"k", 1, p, b"%d" % p, None) for p in (0, 1)]
    parts.append(side_by_side("store", "totals", [frame(stored, "left"), frame(stored, "right")]))
    found = marked(reduce(DataFrame.unionByName, parts), forms, Tolerance()).collect()
    assert {(r["name"], r["value_differs"], r["differs"]) for r in found if r["kind"] == "topic"} == {
        ("same", False, False),
        ("time", False, True),
        ("header", False, True),
        ("partition", False, True),
        ("value", True, True),
        ("none", True, True),
    }
    assert [(r["partition"], r["differs"]) for r in found if r["kind"] == "store"] == [(0, False), (1, False)]


def test_what_was_never_committed_is_not_compared(spark: SparkSession, connection: Connection, live: Live) -> None:
    live.create(2, live.topic("in"))
    old = sums(live.application_id)
    with pytest.raises(SettingsError, match="has no committed offsets, so there is nothing that it did to compare"):
        what_if(old, old, application_id=live.application_id, connection=connection)
