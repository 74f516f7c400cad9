"""Verify compares every topic that is written, whatever writes it, from the first record and from a savepoint."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from penstock.streams.batch.savepoint import SavepointRepository
from penstock.streams.spark import Connection, VerifyResult, compact, verify
from tests.integration.spark.live import App, Live
from tests.integration.spark.topologies import of_all_kinds

KINDS = ("met", "even", "odd", "spread")


def rows(start: int, stop: int) -> list[tuple[bytes, bytes, int]]:
    return [(b"k%d" % (i % 7), b"%d" % i, 1000 + i) for i in range(start, stop)]


def compared(live: Live, result: VerifyResult) -> dict[tuple[str, str], int]:
    """How many rows the stream has of each kind of output and mode."""
    topics = {live.topic(kind): kind for kind in KINDS}
    return {(topics.get(c.name, c.name), c.mode): c.stream_rows for c in result.comparisons}


def differing(result: VerifyResult) -> list[str]:
    return [str(c) for c in result.comparisons if c.differences] + list(result.cautions)


def test_every_kind_of_output_is_compared_and_a_forged_record_is_found_in_each(
    spark: SparkSession, connection: Connection, live: Live, tmp_path: Path
) -> None:
    app_id, build, repository = live.application_id, of_all_kinds(live.application_id), str(tmp_path / "snapshots")
    how = {"application_id": app_id, "connection": connection}
    live.create(2, live.topic("in"), live.topic("rows"), *(live.topic(kind) for kind in KINDS))
    live.produce(live.topic("rows"), [(b"%d" % i, b"row", 1) for i in range(10)])
    live.produce(live.topic("in"), rows(0, 300))
    with App(live, build()) as app:
        app.run(commit_every=40)
        agreed = verify(build, **how)
        assert agreed.same, differing(agreed)
        seen = compared(live, agreed)
        assert {("met", "sequence"), ("even", "sequence"), ("odd", "sequence"), ("spread", "key sequence")} <= set(seen)
        assert seen["even", "sequence"] == seen["odd", "sequence"] == 150 and seen["met", "sequence"] == 300
        # The start of a task left marks among the copies of the table's rows, which no replay makes.
        copies = next(c for c in agreed.comparisons if c.name.endswith("met-rows-repartition"))
        assert copies.stream_rows == 20 < len(live.read(copies.name))

        made = compact(build, repository=repository, **how)
        assert made.savepoint is not None and made.no_savepoint is None
        saved = SavepointRepository(repository).load(app_id)
        assert saved.outputs_exact and saved.output_offsets()

        # Yesterday's outputs are gone; what came since is verified from the savepoint on.
        for kind in KINDS:
            live.delete_records(live.topic(kind), 5)
        live.produce(live.topic("in"), rows(300, 340))
        app.run(commit_every=15)
    since = verify(build, from_="savepoint:latest", repository=repository, **how)
    assert since.same, differing(since)
    assert compared(live, since)["odd", "sequence"] == 20 and compared(live, since)["met", "sequence"] == 40
    for kind in KINDS:
        live.produce(live.topic(kind), [(b"k1", b"forged", 9000)])
    # From the first record on, what the topics have left is compared.
    forged = verify(build, **how)
    assert any("no longer holds the first records" in c for c in forged.cautions), forged.cautions
    wrong = {c.name: c.first for c in forged.comparisons if c.differences}
    assert {live.topic(kind) for kind in KINDS} == set(wrong)
    assert all(first is not None and first.stream == b"forged" for first in wrong.values())
