"""Describe a topology as text and as a Mermaid flowchart.

Equal topologies give equal texts, line by line, so that a change of a topology shows in a diff. ``<application.id>``
stands for the prefix of internal topics at run time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from penstock.state.stores.store import StoreSpec
from penstock.topologies.expressions.row_function import ExpressionFunction
from penstock.topologies.graph.column_plan import as_lines
from penstock.topologies.graph.lockstep_plan import plan_of
from penstock.topologies.graph.topology import Subtopology, Topology
from penstock.topologies.operator_api.operator import OperatorSpec
from penstock.topologies.operators.records.source_sink import SinkSpec, SourceSpec

_APPLICATION = "<application.id>"


def changelog_name(store: StoreSpec, application_id: str = _APPLICATION) -> str | None:
    """The topic that holds the store's changes; ``None`` without one."""
    if store.source_topic is not None:
        return store.source_topic
    return f"{application_id}-{store.name}-changelog" if store.changelog else None


def as_text(topology: Topology) -> str:
    """Sub-topology by sub-topology: operators in processing order, with kind, properties and consumers; order-sensitive
    operators; internal topics; stores and their changelogs."""
    lines = [f"topology {topology.name}"]
    for sub in topology.subtopologies:
        lines += ["", f"sub-topology {sub.number}", "  operators"]
        for name in sub.operators:
            lines += _operator_lines(topology, name)
        lines.append(f"  order of records with different keys matters to: {_listed(_order_sensitive(topology, sub))}")
        internal = [t for t in _topics(topology, sub) if t.startswith(_APPLICATION)]
        if internal:
            lines += ["  internal topics", *(f"    {t}" for t in internal)]
        if sub.stores:
            lines += ["  stores", *map(_store_line, sub.stores)]
    return "\n".join(lines) + "\n"


def plan_as_text(topology: Topology) -> str:
    """Sub-topology by sub-topology: the operators that run on columns, what their sources decode, and the operators
    that run on rows, and why."""
    lines = [f"topology {topology.name}"]
    for sub in topology.subtopologies:
        plan = plan_of(topology, sub)
        lines += [
            "",
            f"sub-topology {sub.number}",
            *(f"  {line}" for line in as_lines(plan.names, plan.specs, plan.input_modes)),
        ]
    return "\n".join(lines) + "\n"


def _operator_lines(topology: Topology, name: str) -> Iterator[str]:
    spec = topology.operators[name]
    shown = {**_expressions(spec), **spec.details(), **_shared_properties(spec)}
    yield f"    {name} ({spec.kind})" + "".join(f" {k}={v}" for k, v in shown.items())
    fed: dict[int, list[str]] = {}
    for port, child, _ in topology.children(name):
        fed.setdefault(port, []).append(child)
    for number, out_port in enumerate(spec.out_ports):
        label = f"{out_port} " if len(spec.out_ports) > 1 else ""
        if number in fed:
            yield f"      {label}→ {', '.join(fed[number])}"
        elif label:
            yield f"      {label}→ nothing"


def _expressions(spec: OperatorSpec) -> dict[str, str]:
    """The texts of its functions that are given as expressions."""
    shown: dict[str, str] = {}
    for field in dataclasses.fields(spec):
        held = getattr(spec, field.name)
        found = [f for f in (held if isinstance(held, tuple) else (held,)) if isinstance(f, ExpressionFunction)]
        if found:
            shown[field.name] = ", ".join(f"[{f.expression.text()}]" for f in found)
    return shown


def _shared_properties(spec: OperatorSpec) -> dict[str, str]:
    """Properties of any kind of operator that its own details leave out."""
    shown: dict[str, str] = {}
    if isinstance(spec, (SourceSpec, SinkSpec)):
        shown["topic"] = _topic(spec)
        if spec.partitions is not None:
            shown["partitions"] = str(spec.partitions)
    elif spec.stores and "store" not in spec.details():
        shown["stores"] = ",".join(s.name for s in spec.stores)
    if spec.emission is not None:
        shown["emission"] = spec.emission
    timers = [k for k, used in (("stream_time", spec.uses_stream_time), ("wall_time", spec.uses_wall_time)) if used]
    if timers:
        shown["timers"] = ",".join(timers)
    return shown


def _order_sensitive(topology: Topology, sub: Subtopology) -> list[str]:
    return [n for n in sub.operators if topology.operators[n].order_sensitive]


def _topic(spec: SourceSpec | SinkSpec) -> str:
    return spec.topic_name(_APPLICATION)


def _topics(topology: Topology, sub: Subtopology) -> list[str]:
    """The topics that the sub-topology reads and writes, each once."""
    specs = (topology.operators[n] for n in sub.operators)
    return list(dict.fromkeys(_topic(s) for s in specs if isinstance(s, (SourceSpec, SinkSpec))))


def _store_line(store: StoreSpec) -> str:
    window = "" if store.window_size_ms is None else f" window={store.window_size_ms} ms"
    kept = "" if store.retention_ms is None else f" retention={store.retention_ms} ms"
    return (
        f"    {store.name} ({store.kind}) key={store.key_serde.name} value={store.value_serde.name}"
        f"{window}{kept} changelog={changelog_name(store) or 'none'}"
    )


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "nothing"


def as_mermaid(topology: Topology) -> str:
    """A flowchart: one subgraph per sub-topology with its operators (boxes) and stores (double-walled boxes),
    topics as cylinders between them. An edge from one of several out ports is labelled with the port."""
    ids = {name: f"o{i}" for i, name in enumerate(topology.operators)}
    topics = {t: f"t{i}" for i, t in enumerate(_all_topics(topology))}
    stores = {s.name: f"s{i}" for i, s in enumerate(topology.stores)}
    lines = ["flowchart TB"]
    lines += [f'  {ident}[("{_escaped(topic)}")]' for topic, ident in topics.items()]
    for sub in topology.subtopologies:
        lines.append(f'  subgraph sub{sub.number}["sub-topology {sub.number}"]')
        for name in sub.operators:
            lines.append(f'    {ids[name]}["{_escaped(name)}<br/>{topology.operators[name].kind}"]')
        lines += [f'    {stores[s.name]}[["{_escaped(s.name)}"]]' for s in sub.stores]
        lines.append("  end")
    for name, spec in topology.operators.items():
        if isinstance(spec, SourceSpec):
            lines.append(f"  {topics[_topic(spec)]} --> {ids[name]}")
        for port, child, _ in topology.children(name):
            label = f'|"{_escaped(spec.out_ports[port])}"|' if len(spec.out_ports) > 1 else ""
            lines.append(f"  {ids[name]} -->{label} {ids[child]}")
        if isinstance(spec, SinkSpec):
            lines.append(f"  {ids[name]} --> {topics[_topic(spec)]}")
        lines += [f"  {ids[name]} -.- {stores[s.name]}" for s in spec.stores]
    return "\n".join(lines) + "\n"


def _all_topics(topology: Topology) -> list[str]:
    return list(dict.fromkeys(t for sub in topology.subtopologies for t in _topics(topology, sub)))


def _escaped(text: str) -> str:
    """Text inside a quoted Mermaid label, which is HTML with ``#…;`` for characters."""
    for char, entity in (("#", "#35;"), ('"', "#quot;"), ("<", "#lt;"), (">", "#gt;")):
        text = text.replace(char, entity)
    return text
