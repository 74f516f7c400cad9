"""Shared by the DSL's handles: the graph under construction, the defaults, the classes of the handles, and the rules
for names.

Names are stable. If an operator has no name of its own, it is called ``<root>-<kind>``, where the root is the name of
the source of its records (of the first one, after a join or a merge); repeats of the kind on that root get ``-2``,
``-3``… So an operator added elsewhere renames nothing. A store has its operator's name. A repartition topic has the
name of the operator whose records it carries, plus ``-repartition``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast, get_args

from penstock.state.errors import SerdeError, TopologyError
from penstock.state.serdes.serde import Serde, serde_of
from penstock.state.serdes.window_keys import WindowedSerde
from penstock.topologies.dsl.awaiting import Awaiting
from penstock.topologies.functions import is_async, refused_arguments
from penstock.topologies.graph.topology import GraphBuilder
from penstock.topologies.operator_api.edge_kinds import ANY_KIND
from penstock.topologies.operator_api.internal_names import REPARTITION
from penstock.topologies.operator_api.operator import Emission, OperatorSpec
from penstock.topologies.operators.records.source_sink import Route, SinkSpec, SourceSpec

if TYPE_CHECKING:
    from penstock.topologies.dsl.kstream import KStream
    from penstock.topologies.dsl.ktable import KTable
    from penstock.topologies.dsl.panes import TriggeredStream

Function = Callable[[Any, Any], Any]
"""A function of key and value, or of the values of two sides."""


@dataclasses.dataclass(frozen=True)
class Handles:
    """The classes of the handles. A table makes streams and a stream makes tables. The builder, which knows both,
    registers them here, so the modules of the handles import one way: streams, grouped streams, tables."""

    stream: type[KStream]
    table: type[KTable]
    panes: type[TriggeredStream]


@dataclasses.dataclass(frozen=True)
class Flow:
    """The records of one out port, as the DSL tracks them.

    ``port`` is ``None`` if there is only one. ``rekeyed``: keys may have changed since the records were last
    partitioned by key, so equal keys may lie in different partitions. ``watermarked``: one of their sources has a
    watermark strategy, which then closes windows instead of stream time. ``route``: how they were sent to their
    partitions.
    """

    wiring: Wiring
    root: str
    operator: str
    port: str | None
    key: Serde[Any]
    value: Serde[Any]
    rekeyed: bool = False
    watermarked: bool = False
    route: Route = "key"

    @property
    def out(self) -> str:
        """The out port as ``GraphBuilder.add_stream`` takes it."""
        return self.operator if self.port is None else f"{self.operator}.{self.port}"

    def behind(
        self, name: str, *, port: str | None = None, key: Any = None, value: Any = None, rekeyed: bool = False
    ) -> Flow:
        """Return the flow of operator ``name``, which reads this flow. ``key``, ``value``: serdes, if they differ from
        this flow's. Raises ``TopologyError`` if either does not name a serde."""
        return dataclasses.replace(
            self,
            operator=name,
            port=port,
            key=self.key if key is None else as_serde(key, f"the key of operator {name!r}"),
            value=self.value if value is None else as_serde(value, f"the value of operator {name!r}"),
            rekeyed=self.rekeyed or rekeyed,
        )

    def behind_source(self, name: str) -> Flow:
        """Return the flow of source ``name``, which reads the topic that this flow was written to."""
        return dataclasses.replace(self, operator=name, port=None, root=name, rekeyed=False)

    def with_serdes(self, key: Any, value: Any) -> Flow:
        """Return the same records with the given serdes."""
        return self.behind(self.operator, port=self.port, key=key, value=value)


class Wiring:
    """One graph under construction by the DSL."""

    def __init__(
        self, name: str, key: Any, value: Any, emission: Any, *, handles: Handles, combines: bool = True
    ) -> None:
        self.handles = handles
        self.graph = GraphBuilder(name)
        self.key = as_serde(key, f"the default key serde of topology {name!r}")
        self.value = as_serde(value, f"the default value serde of topology {name!r}")
        self.emission = as_emission(emission, f"topology {name!r}")
        self.combines = combines
        """Whether aggregations combine before repartition topics by default."""
        self.topics: dict[str, str] = {}
        self._sources: dict[str, SourceSpec] = {}
        """Topics that are read: topic → operator."""
        self._inputs: dict[str, Flow] = {}
        """The inputs of operators that have one."""
        self._parts: list[str] = []
        self._all_parts: set[str] = set()
        self._used: dict[tuple[str, str], int] = {}
        self._repartitioned: dict[tuple[str, str, str], Flow] = {}

    def name(self, flow: Flow, kind: str, name: str | None) -> str:
        """The operator's own name, or the next automatic one."""
        if name is not None:
            return name
        root = self._parts[-1] if self._parts else flow.root
        return self._numbered(root, kind, f"{root}-{kind}{{}}")

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """While inside, name operators after a part of the graph instead of their source. Parts may nest."""
        if name in self._all_parts:
            raise TopologyError(f"two parts of the topology are named {name!r}; give each apply(…) its own name")
        full = f"{self._parts[-1]}-{name}" if self._parts else name
        self._all_parts.add(name)
        self._parts.append(full)
        try:
            yield
        finally:
            self._parts.pop()

    def _numbered(self, root: str, kind: str, pattern: str) -> str:
        count = self._used[root, kind] = self._used.get((root, kind), 0) + 1
        return pattern.format("" if count == 1 else f"-{count}")

    def add(self, name: str, spec: OperatorSpec, *inputs: Flow) -> str:
        """Add an operator and connect the inputs to its only in port. Refuses handles of another builder."""
        for flow in inputs:
            self.check_own(flow, name)
        self.graph.add_operator(name, spec)
        if len(inputs) == 1:
            self._inputs[name] = inputs[0]
        for i, flow in enumerate(inputs, 1):
            self.graph.add_stream(f"to-{name}" if i == 1 else f"to-{name}-input-{i}", flow.out, name)
        return name

    def input_of(self, name: str) -> Flow | None:
        """The flow that an operator reads; ``None`` if it does not read exactly one."""
        return self._inputs.get(name)

    def add_ports(self, name: str, spec: OperatorSpec, inputs: Mapping[str, Flow]) -> str:
        """Add an operator and connect each input to the in port of its name."""
        for flow in inputs.values():
            self.check_own(flow, name)
        self.graph.add_operator(name, spec)
        for port, flow in inputs.items():
            self.graph.add_stream(f"to-{name}-{port}", flow.out, f"{name}.{port}")
        return name

    def check_own(self, flow: Flow, name: str) -> None:
        """Raise ``TopologyError`` for a handle of another builder."""
        if flow.wiring is not self:
            raise TopologyError(
                f"operator {name!r} got {flow.out!r} of topology {flow.wiring.graph.name!r}, but "
                f"belongs to topology {self.graph.name!r}; create both with the same StreamsBuilder"
            )

    def add_source(self, name: str, spec: SourceSpec) -> None:
        """Add a source; its topic must not be read already."""
        if spec.topic in self.topics:
            raise TopologyError(
                f"topic {spec.topic!r} is already read by {self.topics[spec.topic]!r}; read it once and use "
                "the result of stream() or table() as often as needed"
            )
        self.graph.add_operator(name, spec)
        self.topics[spec.topic] = name
        self._sources[name] = spec

    def source(self, spec: SourceSpec, name: str | None) -> str:
        """Return the operator that reads the topic in this way: a new one called ``name`` (``None``: as the topic), or
        an existing one, so independent queries share its reading and decoding."""
        there = self.topics.get(spec.topic)
        if there is None or self._sources[there] != spec or name not in (None, there):
            there = name or spec.topic
            self.add_source(there, spec)
        return there

    def by_key(self, flow: Flow) -> Flow:
        """Return the records with equal keys in one partition: unchanged, or through a repartition topic that all
        consumers of these records share."""
        if not flow.rekeyed:
            return flow
        made = self._repartitioned.get((flow.out, flow.key.name, flow.value.name))
        if made is None:
            made = self.repartition(flow)
            self._repartitioned[flow.out, flow.key.name, flow.value.name] = made
        return made

    def check_together(self, flows: Sequence[Flow], name: str) -> None:
        """Check that flows that an operator joins or merges by key were sent to their partitions by the same rule.
        Raises ``TopologyError``."""
        routes = {f.out: f.route for f in flows if f.route != "broadcast"}
        if len(set(routes.values())) > 1:
            listed = ", ".join(f"{out} by {getattr(r, '__name__', r)}" for out, r in routes.items())
            raise TopologyError(
                f"operator {name!r} combines streams that are partitioned differently ({listed}), so "
                "equal keys would not match; repartition all of them by the same rule"
            )

    def internal_sink(self, topic: str, flow: Flow, partitions: int | None, route: Route = "key") -> SinkSpec:
        """Return the sink that writes a flow's records to a repartition topic. Windowed keys are partitioned by their
        inner key."""
        return SinkSpec(
            topic=topic,
            key_serde=flow.key,
            value_serde=flow.value,
            internal=True,
            partitions=partitions,
            inner_key=flow.key.inner if isinstance(flow.key, WindowedSerde) else None,
            route=route,
            accepts=ANY_KIND,
        )

    def repartition(
        self, flow: Flow, *, partitions: int | None = None, name: str | None = None, route: Route = "key"
    ) -> Flow:
        """Send records through a repartition topic. Keys, values, timestamps and headers arrive unchanged."""
        if name is None:
            base = flow.operator if flow.port is None else f"{flow.operator}-{flow.port}"
            topic = self._numbered(base, "repartition", f"{base}{{}}{REPARTITION}")
        else:
            topic = f"{name}{REPARTITION}"
        source = SourceSpec(
            topic=topic,
            key_serde=flow.key,
            value_serde=flow.value,
            internal=True,
            partitions=partitions,
            accepts=ANY_KIND,
        )
        self.add(f"{topic}-sink", self.internal_sink(topic, flow, partitions, route), flow)
        self.add_source(topic, source)
        return dataclasses.replace(flow, operator=topic, port=None, rekeyed=route == "shuffle", route=route)


def as_serde(like: Any, what: str) -> Serde[Any]:
    """Return ``serde_of(like)``. Raises ``TopologyError``, naming where it was given, if it is unknown."""
    try:
        return serde_of(like)
    except (SerdeError, TypeError) as exc:
        raise TopologyError(f"{what}: {exc}") from exc


def serde_of_aggregates(value: Any, name: str) -> Serde[Any]:
    """Return ``serde_of(value)``. Raises ``TopologyError``, naming the operator, if it is unknown or not given."""
    if value is None:
        raise TopologyError(
            f"operator {name!r}: the serde of its aggregates is unknown; name it: aggregate(…, value=int)"
        )
    return as_serde(value, f"the aggregates of operator {name!r}")


def as_emission(emission: Any, what: str) -> Emission:
    """Return a known emission mode. Raises ``TopologyError`` for others."""
    if emission not in get_args(Emission):
        known = " or ".join(repr(e) for e in get_args(Emission))
        raise TopologyError(f"{what}: emission={emission!r} is unknown; use {known}")
    return cast(Emission, emission)


def check_function(
    fn: Any, name: str, *, awaited: bool = False, takes: Sequence[str] | None = None
) -> Callable[..., Any]:
    """Return ``fn``. Raises ``TopologyError`` if it is not callable, is ``async`` and not ``awaited``, or cannot be called
    with the arguments that it ``takes``, by place (``None``: not checked)."""
    if not callable(fn):
        raise TopologyError(f"operator {name!r} needs a function, not {fn!r:.100}; pass a function or a lambda")
    if (is_async(fn) or isinstance(fn, Awaiting)) and not awaited:
        raise TopologyError(
            f"operator {name!r}: {getattr(fn, '__name__', fn)!s:.100} is async, and nothing awaits it here; call a service "
            "outside with map_values, filter, flat_map, foreach or lookup(fn, answer=…), or give a plain function"
        )
    if takes is not None and (own := refused_arguments(fn, takes)) is not None:
        raise TopologyError(
            f"operator {name!r} calls its function with ({', '.join(takes)}), which {own} does not take; give it "
            f"{len(takes) or 'no'} argument{'' if len(takes) == 1 else 's'}"
        )
    return cast(Callable[..., Any], fn)
