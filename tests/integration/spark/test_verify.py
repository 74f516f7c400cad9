"""Verify against real Kafka: silent when stream and batch agree, precise when they do not."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.streams.batch.values_as_text import Tolerance
from penstock.streams.spark import Connection, VerifyResult, verify
from tests.integration.spark.live import App, Live, command
from tests.integration.spark.topologies import joined, windowed


def feed_joined(live: Live, app: App, seed: int) -> None:
    """Both inputs in bursts whose times overlap. The live order has cuts however they arrive: each burst ends with the
    highest time in the one input and begins below it in the other, in the same partition."""
    rng = random.Random(seed)
    for k in range(3):
        rows = [(b"k%d" % rng.randrange(20), b"%d" % i, 1000 * k + rng.randrange(2000)) for i in range(200)]
        rows[0], rows[-1] = (b"k1", b"first", 1000 * k), (b"k1", b"last", 1000 * k + 2000)
        live.produce(live.topic("t"), rows[:50])
        live.produce(live.topic("a"), rows[50:])
        app.run(commit_every=60)


def summary(result: VerifyResult) -> dict[str, tuple[str, int]]:
    return {c.name: (c.mode, c.differences) for c in result.comparisons}


def test_a_join_agrees_and_what_was_altered_is_found_and_located(
    spark: SparkSession, connection: Connection, live: Live
) -> None:
    app_id, out = live.application_id, live.topic("out")
    live.create(2, live.topic("a"), live.topic("t"), out)
    with App(live, joined(app_id)()) as app:
        feed_joined(live, app, 7)
        assert live.read(f"{app_id}-0-journal"), "the live order had no cut, so this would prove little"
        agreed = verify(joined(app_id), application_id=app_id, connection=connection)
        assert summary(agreed) == {out: ("sequence", 0), "seen": ("last value", 0)}, agreed
        assert all(c.stream_rows == c.batch_rows > 0 for c in agreed.comparisons)
        assert agreed.same and agreed.records == 600 and not agreed.cautions

        # Someone writes one output and one row of the store that the application never made; it goes on.
        live.produce(out, [(b"k1", b"wrong", 9000)])
        live.produce(f"{app_id}-seen-changelog", [(b"k7", b"wrong", 1)])
        live.produce(live.topic("a"), [(b"k%d" % i, b"more", 9001) for i in range(20) if i != 7])
        app.run()
    rows = [(p, o, k) for p, o, k, v, _ in live.read_with_offsets(live.topic("a")) if v == b"more"]
    first_more = {p: min(o for q, o, _ in rows if q == p) for p, _, _ in rows}
    k7 = max((o, p) for p, o, k, _, _ in live.read_with_offsets(live.topic("a")) if k == b"k7")
    found = verify(joined(app_id), application_id=app_id, connection=connection)
    assert not found.same
    by_name = {c.name: c.first for c in found.comparisons}
    wrong, row = by_name[out], by_name["seen"]
    assert wrong is not None and wrong.stream == b"wrong" and wrong.partition is not None
    assert wrong.input == (live.topic("a"), wrong.partition, first_more[wrong.partition])
    assert row is not None and row.key == b"k7" and row.stream is not None and row.stream.endswith(b"wrong")
    assert row.input == (live.topic("a"), k7[1], k7[0])


def test_windows_behind_a_repartition_agree_and_per_commit_is_compared_by_the_last_value(
    spark: SparkSession,
    connection: Connection,
    live: Live,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    app_id, out = live.application_id, live.topic("out")
    live.create(2, live.topic("a"), out)
    rng = random.Random(3)
    # The changelog of windows forgets what is old by the clock.
    now_ms = int(time.time() * 1000)
    build = windowed(app_id, "per_commit")
    with App(live, build()) as app:
        for k in range(3):
            base_ms = now_ms + 4000 * k
            rows = [(b"k%d" % rng.randrange(9), b"%d" % i, base_ms + rng.randrange(5000)) for i in range(150)]
            live.produce(live.topic("a"), rows)
            app.run(commit_every=40)
    agreed = verify(build, application_id=app_id, connection=connection)
    repartition = next(c.name for c in agreed.comparisons if c.name.endswith("-repartition"))
    modes = {(c.name, c.mode): c for c in agreed.comparisons}
    assert agreed.same, agreed
    assert set(modes) == {
        (repartition, "bag"),
        (repartition, "key sequence"),
        (out, "last value"),
        ("per-window", "last value"),
    }
    assert modes[repartition, "bag"].stream_rows == 450
    # Both tasks write every key, so that no order is known; within a tolerance nothing is left to compare by.
    assert modes[repartition, "key sequence"].idle
    loose = verify(build, application_id=app_id, connection=connection, tolerance=Tolerance(relative=1e-9))
    assert loose.same and any(c.startswith(f"450 rows of {repartition} are not compared") for c in loose.cautions), (
        loose
    )

    # One output is lost: rewritten as an older count after the application stopped.
    key = next(k for _, k, _, _ in live.read(out))
    live.produce(out, [(key, (1 << 40).to_bytes(8, "big"), 1)])
    (tmp_path / "windows.py").write_text(
        f"from tests.integration.spark.topologies import windowed\ntopology = windowed({app_id!r}, 'per_commit')\n"
    )
    assert command("verify", f"{tmp_path}/windows.py", live) == 1
    shown = capsys.readouterr().out
    assert f"topic {out} differs after topic {repartition}, partition " in shown
    assert f"topic {repartition}: every key has several writing tasks" in shown
    assert f"key {key!r}" in shown and "stream and batch DIFFER over 900 input records" in shown
