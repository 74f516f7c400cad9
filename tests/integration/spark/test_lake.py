"""Topics and stores as Iceberg tables: everything once, however often and from whichever point a run is made."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import penstock as ps
from penstock.spark import Application, Connection, figures
from penstock.state.errors import IncompatibleError, SettingsError
from penstock.streams.cli.new import FILES
from penstock.streams.spark.lake import tables
from penstock.streams.spark.lake.tables import held_by, lake_frame, lake_store, lake_topic
from tests.integration.spark.live import App, Live, command
from tests.integration.spark.test_frames import AT_MS, _sales, rows, sales, totals

DAY_MS = 24 * 3600 * 1000


@pytest.fixture
def catalog(spark: SparkSession, live: Live) -> Iterator[str]:
    """A catalog of the test's own: a session keeps those that it has met."""
    yield f"lake_{live.application_id.replace('-', '_')}"


def test_a_topic_is_appended_once_and_a_store_replaces_its_table(
    spark: SparkSession,
    connection: Connection,
    live: Live,
    tmp_path: Path,
    catalog: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app_id, topic = live.application_id, live.topic("in")
    live.create(2, topic, live.topic("out"))
    live.produce(topic, rows(0, 60))
    live.produce(topic, [(b"k1", b"never", 1)], abort=True)
    app = Application(sales(app_id), app_id, connection)
    sold, held = f"{catalog}.shop.sold", f"{catalog}.shop.totals"
    how = {"warehouse": str(tmp_path / "warehouse")}
    with App(live, _sales(app_id)) as running:
        running.run(commit_every=50)
        assert lake_topic(app, topic, sold, **how).rows == 60
        assert lake_topic(app, topic, sold, **how).rows == 0, "there is nothing new"
        assert lake_store(app, "totals", held, **how).rows == 5
        snapshots = spark.table(f"{held}.snapshots").count()
        assert lake_store(app, "totals", held, **how).rows == 0
        assert spark.table(f"{held}.snapshots").count() == snapshots

        # A run that dies after the records were read and before the table knows them is made again.
        live.produce(topic, [(k, v, ms + DAY_MS) for k, v, ms in rows(60, 100)])
        with monkeypatch.context() as patched:
            patched.setattr(tables, "_append", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                lake_topic(app, topic, sold, **how)
        assert lake_topic(app, topic, sold, **how).rows == 40
        running.run(commit_every=50)
        assert lake_store(app, "totals", held, keep=1, **how).rows == 5

    found = spark.table(sold).orderBy("timestamp").select("key", "value.amount").collect()
    assert [tuple(r) for r in found] == [(f"k{i % 5}", i / 2) for i in range(100)]
    assert {r["key"]: r["value"] for r in spark.table(held).collect()} == totals(100)
    assert spark.table(f"{held}.snapshots").count() == 1, "older ones were expired"
    at = held_by(spark, sold)
    assert at is not None and at.topic == topic and sum(at.offsets.values()) >= 100
    cohorts = figures.retention(spark.table(sold), "day")
    table = f"{catalog}.figures.cohorts"
    for frame in (cohorts.where("later = 0"), cohorts):
        assert lake_frame(frame, table, **how) == frame.count() > 0, "the rows are replaced, not added"
    assert sorted(spark.table(table).collect()) == sorted(cohorts.collect())
    with pytest.raises(IncompatibleError, match="which penstock lake keeps"):
        lake_frame(cohorts, sold, **how)
    # A day is a partition of the table, and another topic is refused.
    assert spark.table(f"{sold}.partitions").count() == 2
    assert spark.table(sold).agg(F.min(F.unix_millis("timestamp"))).first()[0] == AT_MS
    with pytest.raises(IncompatibleError, match=r"holds .*in .*another topic"):
        lake_topic(app, live.topic("out"), sold, **how)
    with pytest.raises(SettingsError, match="names no table"):
        lake_topic(app, topic, "sold", **how)


def test_a_second_run_at_the_same_time_is_taken_back_and_the_command_writes(
    spark: SparkSession,
    connection: Connection,
    live: Live,
    tmp_path: Path,
    catalog: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app_id, topic = live.application_id, live.topic("in")
    live.create(1, topic)
    live.produce(topic, rows(0, 10))
    app = Application(sales(app_id), app_id, connection)
    table, how = f"{catalog}.shop.sold", {"warehouse": str(tmp_path)}
    lake_topic(app, topic, table, **how)
    live.produce(topic, rows(10, 30))
    current = tables._current
    other: list[int] = []

    def overtaken(session: SparkSession, name: str) -> int | None:
        found = current(session, name)
        if not other:
            other.append(1)
            other[0] = lake_topic(app, topic, table, **how).rows
        return found

    with monkeypatch.context() as patched:
        patched.setattr(tables, "_current", overtaken)
        with pytest.raises(ps.RetriableError, match="this one was taken back"):
            lake_topic(app, topic, table, **how)
    assert other == [20] and spark.table(table).count() == 30

    live.produce(topic, rows(30, 35))
    (tmp_path / "sales.py").write_text(
        f"from tests.integration.spark.test_frames import _sales\ntopology = _sales({app_id!r})\n"
    )
    options = ["--topic", topic, "--table", table, "--warehouse", str(tmp_path)]
    assert command("lake", f"{tmp_path}/sales.py", live, *options) == 0
    assert spark.table(table).count() == 35


def test_the_program_of_the_page_makes_its_cohort_table(
    spark: SparkSession,
    live: Live,
    tmp_path: Path,
    catalog: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP_SERVERS", live.bootstrap_servers)
    topic = live.topic("shop-events")
    live.create(2, topic)
    days = [(key, DAY_MS * day) for key, day in ((b"ann", 0), (b"bob", 0), (b"ann", 1), (b"eve", 1), (b"ann", 1))]
    live.produce(topic, [(key, b'{"type": "view"}', AT_MS + ms) for key, ms in days])
    (tmp_path / "shop.py").write_text(FILES["{name}.py"].format(name="shop", version="0").replace("shop-events", topic))
    here = {
        "shop:topology": f"{tmp_path}/shop.py:topology",
        '"shop"': f'"{live.application_id}"',
        "shop-events": topic,
        "lake.shop": f"{catalog}.shop",
        "./lake": str(tmp_path / "lake"),
    }
    page = (Path(__file__).parents[3] / "docs/pages/howto/tables.md").read_text()
    (program,) = re.findall(r"^    # cohorts\.py\n((?:    .*\n|\n)*)^    python", page, re.MULTILINE)
    text = textwrap.dedent(program)
    for old, new in here.items():
        assert old in text
        text = text.replace(old, new)
    exec(compile(text, "cohorts.py", "exec"), {})
    assert "3 rows" in capsys.readouterr().out
    rows = spark.table(f"{catalog}.shop.cohorts").orderBy("cohort", "later").collect()
    assert [(r["later"], r["keys"], r["share"]) for r in rows] == [(0, 2, 1.0), (1, 1, 0.5), (0, 1, 1.0)]
