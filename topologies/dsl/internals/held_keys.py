"""Giving an operator the policy ``hold_key``."""

from __future__ import annotations

from penstock.state.errors import TopologyError
from penstock.topologies.dsl.wiring import Flow
from penstock.topologies.operator_api.on_error import HoldKey
from penstock.topologies.operators.records.holding import HoldingSpec, holding


def hold_keys(flow: Flow, policy: HoldKey) -> None:
    """Have the operator that emits these records hold the keys of records that fail. Raises ``TopologyError`` for one that
    cannot."""
    name, graph = flow.operator, flow.wiring.graph
    graph.set_on_error(name, policy)
    spec = graph.operator(name)
    if isinstance(spec, HoldingSpec):
        return
    given = flow.wiring.input_of(name)
    if spec.makes_external_calls or given is None:
        raise TopologyError(
            f"operator {name!r} ({spec.kind}) cannot hold keys: its calls are made many at a time; choose retry(attempts, "
            "backoff) here, or give it a plain function"
        )
    graph.replace_operator(name, holding(spec, name, given.key, given.value, policy))
