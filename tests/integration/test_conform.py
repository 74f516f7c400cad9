"""One case of every group on a real worker, and on Spark, which replays what that worker left in the log."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.conformance.case_format import Case, read_cases
from tests.conformance.on_spark import SparkPlayer
from tests.conformance.scenario import Played
from tests.conformance.suite import judge, kind_of

CASES = Path(__file__).parents[1] / "conformance" / "cases"
SAMPLES = {
    "aggregate": "kafka.agg.shouldReduceAndMaterializeResults",
    "cep": "flink.cep.CEP.testTimeoutHandling",
    "cogroup": "kafka.cogroup.session.sessionWindowAggregate2Test",
    "fk_join": "kafka.fk.left.shouldUnsubscribeOldForeignKeyIfLeftSideIsUpdated",
    "flink_window": "flink.window.testDynamicEventTimeSessionWindows",
    "interval_join": "flink.sqljoin.testRowTimeFullOuterJoin",
    "session_aggregate": "kafka.session.shouldCountSessionWindows",
    "sliding_aggregate": "kafka.sliding.impl.shouldReduceSlidingWindows",
    "stateless": "kafka.stateless.selectKey",
    "stream_stream_join": "kafka.ssj.left.testLeftExpiredNonJoinedRecordsAreEmittedByTheRightProcessor",
    "stream_table_join": "flink.temporal_join.eventTime.ordersFirst",
    "suppress": "kafka.suppress.proc.zeroGraceBuffersUntilWindowEnd",
    "table_aggregate": "kafka.tableagg.testRemoveOldBeforeAddNew",
    "table_ops": "kafka.table.source.nullKeySkipped",
    "table_table_join": "kafka.ttj.integration.testInner",
    "trigger": "beam.trigger.yaml.fixed_default_late_data",
    "window_aggregate": "kafka.window.timewindowed.shouldAggregateWindowed.on_update",
    "window_group": "beam.group.sliding",
}
"""By group. Times move to the present, so these are cases without windows at the very beginning of time."""


def sample(group: str) -> Case:
    """The case of a group."""
    lines = (CASES / f"{group}.jsonl").read_text().splitlines()
    return next(case for case in read_cases(lines, group) if case.id == SAMPLES[group])


@pytest.fixture(scope="module")
def on_spark(kafka: str, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SparkPlayer:
    return SparkPlayer(kafka, tmp_path_factory.mktemp("conform"), spark)


@pytest.mark.parametrize("group", SAMPLES)
def test_worker_and_spark(on_spark: SparkPlayer, group: str) -> None:
    case = sample(group)
    on_spark.live = Played(error=(0, "the worker did not run"))
    replayed = judge(case, on_spark)
    live = kind_of(case).verdict(case, on_spark.live)
    assert (live, replayed) == ([], []), "\n".join(["worker:", *live, "Spark:", *replayed])
