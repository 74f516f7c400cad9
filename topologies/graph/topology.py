"""The topology as a value: operators, the streams between their ports, and what follows from them.

Build a graph with ``GraphBuilder`` or with the DSL in ``penstock.topologies.dsl.builder``, which uses the same two
methods; both return the same ``Topology``. Building validates: names, ports, cycles, sinks and sources, stores with
conflicting declarations, conflicting partition counts. Every failure is a ``TopologyError`` that names the operator and
what to do.

A sub-topology is what one task runs: operators connected by streams or by a shared store. Topics cut the graph, so that
records cross from one sub-topology to another only through a repartition topic.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import NamedTuple

from penstock.state.errors import TopologyError
from penstock.state.stores.store import StoreSpec
from penstock.topologies.graph.late_names import NamesRead, names_read, warn_of_late_names
from penstock.topologies.graph.source_lines import declared_at
from penstock.topologies.graph.unread_values import without_unread_values
from penstock.topologies.operator_api.edge_kinds import edge_kinds
from penstock.topologies.operator_api.on_error import HoldKey, OnError, Retry, checked_on_error
from penstock.topologies.operator_api.operator import OperatorSpec
from penstock.topologies.operator_api.watermark_strategies import check_circles, check_loops
from penstock.topologies.operators.records.external_sink import ExternalSinkSpec, only_source
from penstock.topologies.operators.records.source_sink import SinkSpec, SourceSpec

_NAME = re.compile(r"[A-Za-z0-9._-]{1,180}")


class Port(NamedTuple):
    """One named port of one operator; ``str`` gives ``operator.port``."""

    operator: str
    port: str

    def __str__(self) -> str:
        return f"{self.operator}.{self.port}"


@dataclasses.dataclass(frozen=True)
class Stream:
    """An edge of the graph: records flow from one out port to in ports, in the order of ``ins``."""

    name: str
    out: Port
    ins: tuple[Port, ...]


@dataclasses.dataclass(frozen=True)
class Subtopology:
    """The part of the graph that one task runs. ``operators`` are in topological order, ties in the order of
    declaration."""

    number: int
    operators: tuple[str, ...]
    sources: tuple[str, ...]
    sinks: tuple[str, ...]
    stores: tuple[StoreSpec, ...]


@dataclasses.dataclass(frozen=True)
class Topology:
    """The whole graph. Equal when operators and streams are equal (functions compare by identity)."""

    name: str
    operators: Mapping[str, OperatorSpec]
    streams: tuple[Stream, ...]
    subtopologies: tuple[Subtopology, ...] = dataclasses.field(compare=False)
    declared: Mapping[str, str] = dataclasses.field(default_factory=dict, compare=False)
    """Where operators were declared, as ``FILE:LINE`` of the user's code: for messages alone."""
    on_error: Mapping[str, OnError] = dataclasses.field(default_factory=dict)
    """The policies of operators for records that fail in them, where they are not the application's."""

    def children(self, operator: str) -> list[tuple[int, str, int]]:
        """``(out port, child, in port)`` in the order in which records visit the children."""
        spec = self.operators[operator]
        return [
            (spec.out_ports.index(s.out.port), p.operator, self.operators[p.operator].in_ports.index(p.port))
            for s in self.streams
            if s.out.operator == operator
            for p in s.ins
        ]

    def source_topics(self, application_id: str) -> dict[str, tuple[int, str]]:
        """Every topic that the topology reads: name → (sub-topology, source operator)."""
        return {
            self.source(name).topic_name(application_id): (sub.number, name)
            for sub in self.subtopologies
            for name in sub.sources
        }

    def source(self, name: str) -> SourceSpec:
        """The source operator of this name."""
        spec = self.operators[name]
        assert isinstance(spec, SourceSpec)
        return spec

    def sink(self, name: str) -> SinkSpec:
        """The sink operator of this name."""
        spec = self.operators[name]
        assert isinstance(spec, SinkSpec)
        return spec

    @property
    def stores(self) -> tuple[StoreSpec, ...]:
        """All stores, in order of sub-topology and declaration."""
        return tuple(s for sub in self.subtopologies for s in sub.stores)

    def describe(self, *, plan: bool = False) -> str:
        """Describe the graph as text. ``plan``: instead describe how each operator runs, on columns or on rows, and
        why."""
        from penstock.topologies.graph.describe import as_text, plan_as_text

        return plan_as_text(self) if plan else as_text(self)

    def mermaid(self) -> str:
        """The graph as a Mermaid flowchart."""
        from penstock.topologies.graph.describe import as_mermaid

        return as_mermaid(self)


class GraphBuilder:
    """Builds a ``Topology`` from operators with named ports and streams between them."""

    def __init__(self, name: str = "topology") -> None:
        self.name = _checked(name, "topology")
        self._operators: dict[str, OperatorSpec] = {}
        self._streams: list[Stream] = []
        self._declared: dict[str, str] = {}
        self._on_error: dict[str, OnError] = {}
        self._names_read: dict[str, NamesRead] = {}
        """By operator: what its functions read from outside, when it was declared."""

    def add_operator(self, name: str, op: OperatorSpec) -> str:
        """Add an operator under a unique name; returns the name."""
        _checked(name, "operator")
        if name in self._operators:
            raise TopologyError(f"two operators are named {name!r}; give one of them another name")
        self._operators[name] = op
        self._names_read[name] = names_read(op)
        if (line := declared_at()) is not None:
            self._declared[name] = line
        return name

    def set_on_error(self, name: str, chosen: object) -> None:
        """Choose what an operator does with records that fail in it. Raises ``TopologyError`` if it cannot, or does
        something else already."""
        policy = checked_on_error(chosen, name)
        spec = self._operators[name]
        if isinstance(policy, Retry | HoldKey) and not spec.retries:
            raise TopologyError(
                f"operator {name!r} ({spec.kind}) cannot call a function again; retry and hold_key are for map, filter, "
                "flat_map, branch, peek, foreach and select_key, and their forms: choose fail, skip or dead_letter here"
            )
        if self._on_error.setdefault(name, policy) != policy:
            raise TopologyError(
                f"operator {name!r} is given on_error {policy!r} after {self._on_error[name]!r}; choose one of them"
            )

    def replace_operator(self, name: str, op: OperatorSpec) -> None:
        """Replace an operator by one with equal ports, because a later operator requires more of it."""
        before = self._operators[name]
        assert (before.in_ports, before.out_ports) == (op.in_ports, op.out_ports), name
        self._operators[name] = op

    def replace_store(self, before: StoreSpec, after: StoreSpec) -> None:
        """Replace a store's spec in all operators that declare it."""
        for name, op in self._operators.items():
            if before in op.stores:
                stores = tuple(after if s == before else s for s in op.stores)
                self._operators[name] = dataclasses.replace(op, stores=stores)

    def operator(self, name: str) -> OperatorSpec:
        """The operator of this name."""
        return self._operators[name]

    def users(self, store: str) -> list[str]:
        """The operators that declare a store of this name."""
        return [name for name, op in self._operators.items() if any(s.name == store for s in op.stores)]

    def feeders(self, name: str) -> list[str]:
        """The operators that feed one directly, not through a topic."""
        return [s.out.operator for s in self._streams for p in s.ins if p.operator == name]

    def upstream(self, name: str) -> set[str]:
        """The operator and all operators whose records reach it without a topic between."""
        found = {name}
        before: set[str] = set()
        while found != before:
            before = set(found)
            found |= {s.out.operator for s in self._streams if any(p.operator in before for p in s.ins)}
        return found

    def add_stream(self, name: str, out: str, *ins: str) -> str:
        """Connect an out port to in ports, each as ``operator.port`` or, if there is only one, ``operator``."""
        _checked(name, "stream")
        if any(s.name == name for s in self._streams):
            raise TopologyError(f"two streams are named {name!r}; give one of them another name")
        source = self._port(out, outgoing=True)
        if not ins:
            raise TopologyError(f"stream {name!r} has no destination; name at least one in port")
        self._streams.append(Stream(name, source, tuple(self._port(i, outgoing=False) for i in ins)))
        return name

    def _port(self, text: str, *, outgoing: bool) -> Port:
        operator, port = text, None
        if operator not in self._operators:
            operator, _, port = text.rpartition(".")
        if operator not in self._operators:
            raise TopologyError(
                f"no operator is named {text!r}; the operators are: {', '.join(self._operators) or 'none'}"
            )
        spec = self._operators[operator]
        ports = spec.out_ports if outgoing else spec.in_ports
        which = "out" if outgoing else "in"
        if port is None and len(ports) == 1:
            return Port(operator, ports[0])
        if port not in ports:
            listed = ", ".join(f"{operator}.{p}" for p in ports) or "none"
            raise TopologyError(f"{text!r} does not name an {which} port of {operator!r}; it has: {listed}")
        return Port(operator, port)

    def build(self) -> Topology:
        """Validate the graph and freeze it. Raises ``TopologyError``; warns of functions that read a name whose value has
        changed since."""
        order = self._topological_order()
        edge_kinds(self._operators, self._links())
        self._check_connected()
        self._check_endpoints()
        subtopologies = self._subtopologies(order)
        for sub in subtopologies:
            self._check_partitions(sub)
            self._check_external_calls(sub)
            self._check_external_sinks(sub)
        readers = [(s.out.operator, p.operator, p.port) for s in self._streams for p in s.ins]
        made = Topology(
            self.name,
            without_unread_values(self._operators, readers),
            tuple(self._streams),
            subtopologies,
            dict(self._declared),
            self._restored_tables() | self._on_error,
        )
        check_loops(made)
        check_circles(made)
        warn_of_late_names(self._names_read, self._declared)
        return made

    def _restored_tables(self) -> dict[str, OnError]:
        """The policy of the sources of tables that are restored from their own topics: what another one refused would be
        there after a restore."""
        topics = {store.source_topic for spec in self._operators.values() for store in spec.stores}
        return {n: "fail" for n, o in self._operators.items() if isinstance(o, SourceSpec) and o.topic in topics}

    def _links(self) -> list[tuple[str, str]]:
        """The pairs of operators of which the first feeds the second, also through repartition topics."""
        links = [(s.out.operator, p.operator) for s in self._streams for p in s.ins]
        readers = {o.topic: n for n, o in self._operators.items() if isinstance(o, SourceSpec) and o.internal}
        for name, spec in self._operators.items():
            if isinstance(spec, SinkSpec) and spec.internal and spec.topic in readers:
                links.append((name, readers[spec.topic]))
        return links

    def _topological_order(self) -> list[str]:
        """Kahn's algorithm, ties by declaration."""
        waiting = dict.fromkeys(self._operators, 0)
        children: dict[str, list[str]] = {n: [] for n in self._operators}
        for s in self._streams:
            for p in s.ins:
                waiting[p.operator] += 1
                children[s.out.operator].append(p.operator)
        order: list[str] = []
        while len(order) < len(waiting):
            ready = next((n for n, w in waiting.items() if w == 0), None)
            if ready is None:
                rest = [n for n, w in waiting.items() if w > 0]
                raise TopologyError(
                    f"the graph has a cycle through {', '.join(rest)}; feed back through a topic instead"
                )
            waiting[ready] = -1
            order.append(ready)
            for child in children[ready]:
                waiting[child] -= 1
        return order

    def _check_connected(self) -> None:
        fed = {p for s in self._streams for p in s.ins}
        for name, spec in self._operators.items():
            missing = [p for p in spec.in_ports if Port(name, p) not in fed]
            if missing:
                raise TopologyError(
                    f"operator {name!r} ({spec.kind}) has no input at port {missing[0]!r}; "
                    f"connect it with add_stream(…, '{name}.{missing[0]}')"
                )

    def _check_endpoints(self) -> None:
        if not any(isinstance(o, SourceSpec) for o in self._operators.values()):
            raise TopologyError("the topology reads no topic; start it with stream(topic) or table(topic)")
        readers: dict[str, str] = {}
        for name, spec in self._operators.items():
            if not isinstance(spec, SourceSpec):
                continue
            if spec.topic in readers:
                raise TopologyError(
                    f"topic {spec.topic!r} is read by both {readers[spec.topic]!r} and {name!r}; read it once and use "
                    "the stream twice"
                )
            readers[spec.topic] = name

    def _subtopologies(self, order: list[str]) -> tuple[Subtopology, ...]:
        root = {n: n for n in order}

        def find(n: str) -> str:
            while root[n] != n:
                root[n] = root[root[n]]
                n = root[n]
            return n

        links = [(s.out.operator, p.operator) for s in self._streams for p in s.ins]
        by_store: dict[str, str] = {}
        for name in order:
            for store in self._operators[name].stores:
                links.append((by_store.setdefault(store.name, name), name))
        for a, b in links:
            root[find(a)] = find(b)
        members: dict[str, list[str]] = {}
        for name in order:
            members.setdefault(find(name), []).append(name)
        return tuple(self._subtopology(i, names) for i, names in enumerate(members.values()))

    def _subtopology(self, number: int, names: list[str]) -> Subtopology:
        stores: dict[str, StoreSpec] = {}
        for name in names:
            for spec in self._operators[name].stores:
                known = stores.setdefault(spec.name, spec)
                if spec.as_bytes:
                    stores[spec.name] = spec
                if known != spec:
                    raise TopologyError(
                        f"store {spec.name!r} is declared differently by {name!r} than "
                        "before; operators that share a store must declare the same StoreSpec"
                    )
                if not _NAME.fullmatch(spec.name):
                    raise TopologyError(f"store name {spec.name!r}: use letters, digits, '.', '_' and '-' only")
        return Subtopology(
            number,
            tuple(names),
            tuple(n for n in names if isinstance(self._operators[n], SourceSpec)),
            tuple(n for n in names if isinstance(self._operators[n], SinkSpec)),
            tuple(stores.values()),
        )

    def _check_partitions(self, sub: Subtopology) -> None:
        """Check that repartition topics of one sub-topology that set a partition count set the same one."""
        counts = {
            n: s.partitions
            for n in sub.sources
            if isinstance(s := self._operators[n], SourceSpec) and s.partitions is not None
        }
        if len(set(counts.values())) > 1:
            listed = ", ".join(f"{n}={c}" for n, c in counts.items())
            raise TopologyError(
                f"these repartition topics are joined in one sub-topology but name different partition counts: {listed}; "
                "give them the same number, or none to use that of the other inputs"
            )

    def _check_external_sinks(self, sub: Subtopology) -> None:
        """Check that the rows of external sinks are counted by offsets of their source. Where a sink makes rows of several
        commits durable at once, the sub-topology's positions wait for it, so that nothing else may be in there."""
        for name in sub.operators:
            if not isinstance(spec := self._operators[name], ExternalSinkSpec):
                continue
            reached = {n: self._operators[n] for n in self.upstream(name) if n != name}
            if only_source(reached) != spec.source:
                raise TopologyError(
                    f"external sink {name!r}: its records do not follow, one by one, from those of {spec.source!r}; send "
                    "them through a topic first, as KStream.sink does"
                )
            others = {n: o for n in sub.operators if not isinstance(o := self._operators[n], ExternalSinkSpec)}
            if spec.sink.spans_commits and only_source(others) is None:
                raise TopologyError(
                    f"external sink {name!r} ({spec.sink.describe()}) makes rows of several commits durable at once, so "
                    f"that it cannot share its task with {', '.join(others)}: call repartition() before sink()"
                )

    def _check_external_calls(self, sub: Subtopology) -> None:
        """Refuse external calls on output that is emitted per commit: it depends on when commits happen, so a replay
        could not match the journaled answers to records."""
        held: dict[str, str] = {}
        for name in sub.operators:
            if self._operators[name].emission == "per_commit":
                held[name] = name
            if name in held and self._operators[name].makes_external_calls:
                raise TopologyError(
                    f"operator {name!r} makes external calls on what {held[name]!r} emits per commit; a replay commits "
                    "at other times, so it could not match the journaled answers to the records; let it emit every "
                    "update, or send its results through repartition() first"
                )
            if name in held:
                held.update((p.operator, held[name]) for s in self._streams if s.out.operator == name for p in s.ins)


def _checked(name: str, what: str) -> str:
    if not _NAME.fullmatch(name):
        raise TopologyError(f"{what} name {name!r}: use 1 to 180 letters, digits, '.', '_' and '-'")
    return name
