"""Repartition topics of which nobody reads a value: only whether there is one travels.

Where records are only counted and not combined before their topic, each travels; its value would be written, sent and read
for nothing. So it is where a cogroup's function never names its value. A null value stays null, so that an operator that
drops such records still does.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Mapping

from penstock.state.serdes.serde import BYTES, PRESENCE
from penstock.topologies.operator_api.operator import OperatorSpec
from penstock.topologies.operators.records.source_sink import SinkSpec, SourceSpec

Readers = Iterable[tuple[str, str, str]]
"""An operator, one that it feeds, and the in port there."""


def without_unread_values(operators: Mapping[str, OperatorSpec], readers: Readers) -> dict[str, OperatorSpec]:
    """The operators, whose repartition topics hold empty values where no operator behind reads any."""
    found = dict(operators)
    fed: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for name, reader, port in readers:
        fed[name].append((reader, port))
    for name, source in operators.items():
        if type(source) is not SourceSpec or not source.internal or source.packed or not fed[name]:
            continue
        ports = [(operators[reader], port) for reader, port in fed[name]]
        if any(spec.reads_values(spec.in_ports.index(port)) for spec, port in ports):
            continue
        sinks = {
            n: s for n, s in operators.items() if isinstance(s, SinkSpec) and s.internal and s.topic == source.topic
        }
        if not sinks or any(
            type(s) is not SinkSpec or s.route != "key" or s.topic_of or s.packs for s in sinks.values()
        ):
            continue
        found[name] = dataclasses.replace(source, value_serde=BYTES)
        found |= {n: dataclasses.replace(s, value_serde=PRESENCE) for n, s in sinks.items()}
    return found
