"""A topology whose values are read where a test can hold the reader, and which notes where an executor's Penstock is."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import penstock as ps
from penstock.state import native
from penstock.topologies.graph.topology import Topology
from tests.integration.spark.holding import held

HELD = 150
"""Who reads this value may be held at ``value``."""


def _read(holds: str, data: bytes) -> int:
    value = int(data)
    if value == HELD:
        held(holds, "value")
    return value


def build(application_id: str, holds: str) -> Topology:
    """Counts by key, and through a repartition topic by the last digit."""
    module = native.compiled()
    Path(holds, f"seen-{os.getpid()}").write_text(f"{ps.__file__}\n{module and module.__file__}\n")
    numbers = ps.Serde("number", lambda n: b"%d" % n, partial(_read, holds), declared=int)
    b = ps.StreamsBuilder("held", key=str, value=numbers)
    stream = b.stream(f"{application_id}.in")
    stream.group_by_key().count(name="counts").to_stream().to(f"{application_id}.out", value=int)
    by_digit = stream.group_by(lambda k, v: str(v % 10))
    by_digit.count(name="digits").to_stream().to(f"{application_id}.digits", value=int)
    return b.build()
