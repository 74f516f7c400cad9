"""The initial state of the test's topology in a process of its own, which a test may kill."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from penstock.spark import Application, Connection, SparkSettings, spark_session
from penstock.state.log import TopicPartition
from tests.integration.spark.topologies import counted


def main(order: dict[str, Any]) -> None:
    """``counts``: the values of the store of this name, by key. ``begin``: topic, partition and offset of each input.
    ``flag``: of the topology."""
    topology = counted(order["application_id"], Path(order["flag"]))
    app = Application(topology, order["application_id"], Connection(order["bootstrap_servers"]))
    with spark_session(SparkSettings(master="local[2]", conf={"spark.sql.shuffle.partitions": "2"})) as spark:
        rows = [(key.encode(), value) for key, value in order["counts"].items()]
        frame = spark.createDataFrame(rows, "key binary, value long")
        app.write_initial_state({"counts": frame}, begin={TopicPartition(t, p): at for t, p, at in order["begin"]})


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
