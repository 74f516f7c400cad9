"""The worker process of the tests of held keys: a function that refuses the records that a file names."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import penstock as ps
from penstock.topologies.graph.topology import Topology
from tests.integration.worker.process import main


def build(source: str, output: str, counts: str, refused: Path) -> Topology:
    """What passes goes to ``output``, and is counted behind a repartition topic, in ``counts``."""

    def called(value: str) -> str:
        if value in refused.read_text().split():
            raise ConnectionError(f"no answer for {value}")
        return value

    builder = ps.StreamsBuilder("holding", key=str, value=str)
    passed = builder.stream(source).map_values(called, name="call").on_error(ps.hold_key("100ms", backoff_max="400ms"))
    passed.to(output)
    passed.group_by(lambda k, v: k.upper(), name="upper").count(name="counts").to_stream().to(counts, value=int)
    return builder.build()


def _main(order: dict[str, Any]) -> None:
    main(order, build(order["source"], order["output"], order["counts"], Path(order["refused"])))


if __name__ == "__main__":
    _main(json.loads(sys.argv[1]))
