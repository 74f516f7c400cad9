"""The nodes of a dataflow case as a topology, through the DSL that users have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.state.log import Windowed
from penstock.state.serdes.window_keys import spanning_serde
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.graph.topology import Topology
from tests.conformance.case_format import CaseError
from tests.conformance.checks import SINK
from tests.conformance.functions import function, optional
from tests.conformance.marks import read_stream
from tests.conformance.scenario import KEY, VALUE, hashable
from tests.conformance.windows import dsl_window, window_end

Node = dict[str, Any]


class Dataflow:
    """A topology under construction. ``inputs`` and ``sinks``: topics by the case's names; ``window_end``: see
    ``Scenario``; ``streams``: what is read as streams; ``windowed``: what has windowed keys. ``watermarks``: whether streams
    have a strategy, so that marks move event time (``tests.conformance.marks``)."""

    def __init__(self, nodes: list[Node], prefix: str = "", *, watermarks: bool = False) -> None:
        self.watermarks = watermarks
        self.builder: Any = StreamsBuilder("conform", key=KEY, value=VALUE)
        self.inputs: dict[str, str] = {}
        self.sinks: dict[str, str] = {}
        self.window_end: dict[str, Callable[[Windowed], int | None]] = {}
        self.streams: list[str] = []
        self.windowed: dict[str, str] = {}
        self._prefix = prefix
        self._handles: dict[str, Any] = {}
        self._kinds: dict[str, str] = {}
        """Window type by node."""
        self._sources: dict[tuple[str, str], str] = {}
        for node in nodes:
            self._add(node)

    def build(self) -> Topology:
        """The topology."""
        topology: Topology = self.builder.build()
        return topology

    def _add(self, node: Node) -> None:
        op = node["op"]
        add = getattr(self, f"_{op}", None)
        if add is None:
            raise CaseError(f"operator {op!r} is unknown to the format")
        made = add(node)
        if "id" in node:
            self._handles[node["id"]] = made
            upstream = node.get("in") or node.get("left")
            # streams that are merged have no windows
            self._kinds.setdefault(node["id"], self._kinds.get(upstream, "") if isinstance(upstream, str) else "")

    def _in(self, node: Node, name: str = "in") -> Any:
        if node[name] not in self._handles:
            raise CaseError(f"node {node.get('id', node['op'])!r} names {node[name]!r}, which is no node before it")
        return self._handles[node[name]]

    # -- sources and sinks ---------------------------------------------------------------------------------------

    def _stream(self, node: Node) -> Any:
        self.streams.append(node["topic"])
        return self._source(node, lambda: read_stream(self.builder, self._topic(node), watermarks=self.watermarks))

    def _table(self, node: Node) -> Any:
        history = node.get("versioned_history_ms")
        options = {} if history is None else {"history": history}
        if "store" in node:
            options["name"] = node["store"]
        return self._source(node, lambda: self.builder.table(self._topic(node), **options))

    def _global_table(self, node: Node) -> Any:
        return self._source(node, lambda: self.builder.global_table(self._topic(node)))

    def _changelog_table(self, node: Node) -> Any:
        kind = node.get("windowed")
        if kind:
            self.windowed[node["topic"]] = kind
            self._kinds[node["id"]] = "session" if kind == "session" else "tumbling"
        key = spanning_serde(KEY) if kind else KEY
        return self._source(node, lambda: self.builder.changelog_table(self._topic(node), key=key))

    def _topic(self, node: Node) -> str:
        return self.inputs.setdefault(node["topic"], self._prefix + node["topic"])

    def _source(self, node: Node, make: Callable[[], Any]) -> Any:
        """A topic that several nodes read in one way is read once."""
        made = self._sources.get((node["op"], node["topic"]))
        if made is None:
            self._sources[node["op"], node["topic"]] = node["id"]
            return make()
        return self._handles[made]

    def _sink(self, node: Node) -> None:
        self._write(self._in(node), node["name"], self._kinds.get(node["in"], ""))

    def _write(self, handle: Any, sink: str, window: str = "") -> None:
        topic = self.sinks[sink] = f"{self._prefix}{SINK}{sink}"
        end = window_end(window)
        if end is not None:
            self.window_end[sink] = end
        handle.to(topic)

    # -- stateless -----------------------------------------------------------------------------------------------

    def _map(self, node: Node) -> Any:
        fn = function(node["fn"])

        def mapped(key: Any, value: Any) -> tuple[Any, Any]:
            new_key, new_value = fn(key, value)
            return hashable(new_key), new_value

        return self._in(node).map(mapped, key=KEY, value=VALUE)

    def _flat_map(self, node: Node) -> Any:
        fn = function(node["fn"])
        return self._in(node).flat_map(lambda k, v: [(hashable(a), b) for a, b in fn(k, v)], key=KEY, value=VALUE)

    def _map_values(self, node: Node) -> Any:
        handle, fn = self._in(node), function(node["fn"])
        map_values = handle.map_values_with_key if node.get("key_aware") else handle.map_values
        return map_values(fn, value=VALUE, **_named(node))

    def _flat_map_values(self, node: Node) -> Any:
        handle, fn = self._in(node), function(node["fn"])
        flat_map_values = handle.flat_map_values_with_key if node.get("key_aware") else handle.flat_map_values
        return flat_map_values(fn, value=VALUE)

    def _select_key(self, node: Node) -> Any:
        fn = function(node["fn"])
        return self._in(node).select_key(lambda k, v: hashable(fn(k, v)), key=KEY)

    def _filter(self, node: Node) -> Any:
        return self._in(node).filter(function(node["fn"]), **_named(node))

    def _filter_not(self, node: Node) -> Any:
        return self._in(node).filter_not(function(node["fn"]), **_named(node))

    def _to_stream(self, node: Node) -> Any:
        fn = optional(node.get("key_fn"))
        if fn is None:
            return self._in(node).to_stream()
        return self._in(node).to_stream(lambda k, v: hashable(fn(k, v)), key=KEY)

    def _to_table(self, node: Node) -> Any:
        return self._in(node).to_table(**_named(node))

    def _repartition(self, node: Node) -> Any:
        return self._in(node).repartition()

    def _merge(self, node: Node) -> Any:
        first, *others = [self._handles[n] for n in node["in"]]
        return first.merge(*others)

    def _split(self, node: Node) -> Any:
        """Branches whose sink is null swallow what they match."""
        branches = node["branches"]
        rest = node.get("default")
        streams = self._in(node).branch(*(function(b["when"]) for b in branches), default=rest is not None)
        sinks = [b["sink"] for b in branches] + ([rest] if rest is not None else [])
        for sink, stream in zip(sinks, streams, strict=True):
            if sink is not None:
                self._write(stream, sink)
        return self._in(node)

    # -- groups and aggregates -----------------------------------------------------------------------------------

    def _group_by_key(self, node: Node) -> Any:
        return self._in(node).group_by_key()

    def _group_by(self, node: Node) -> Any:
        from penstock.topologies.dsl.ktable import KTable

        fn, handle = function(node["fn"]), self._in(node)
        if isinstance(handle, KTable):

            def regroup(key: Any, value: Any) -> Any:
                made = fn(key, value)
                return None if made is None else (hashable(made[0]), made[1])

            return handle.group_by(regroup, key=KEY, value=VALUE)
        return handle.group_by(lambda k, v: hashable(fn(k, v)), key=KEY)

    def _aggregate(self, node: Node) -> Any:
        grouped = self._windowed(node, self._in(node))
        options = _named(node)
        if node.get("emit") == "on_close":
            options["emission"] = "on_close"
        if node["fn"] == "count":
            return grouped.count(**options)
        subtractor = optional(node.get("subtractor"))
        if subtractor is not None:
            options["subtractor"] = subtractor
        if node["fn"] == "reduce":
            return grouped.reduce(function(node["reducer"]), **options)
        if node["fn"] != "aggregate":
            raise CaseError(f"aggregate fn {node['fn']!r} is unknown; the format has count, reduce, aggregate")
        if "merger" in node:
            options["merger"] = function(node["merger"])
        return grouped.aggregate(function(node["init"]), function(node["adder"]), value=VALUE, **options)

    def _cogroup(self, node: Node) -> Any:
        first, *others = node["groups"]
        cogrouped = self._in(first).cogroup(function(first["adder"]))
        for other in others:
            cogrouped = cogrouped.cogroup(self._in(other), function(other["adder"]))
        self._kinds[node["id"]] = ""
        options = _named(node)
        if "merger" in node:
            options["merger"] = function(node["merger"])
        if node.get("emit") == "on_close":
            options["emission"] = "on_close"
        return self._windowed(node, cogrouped).aggregate(function(node["init"]), value=VALUE, **options)

    def _windowed(self, node: Node, grouped: Any) -> Any:
        spec = node.get("window")
        if spec is None:
            return grouped
        self._kinds[node["id"]] = spec["type"]
        if "store" in node:
            end = window_end(spec["type"])
            if end is not None:
                self.window_end[f"table:{node['store']}"] = end
        if "retention_ms" in node:
            return grouped.windowed_by(dsl_window(spec), retention=node["retention_ms"])
        return grouped.windowed_by(dsl_window(spec))

    def _suppress(self, node: Node) -> Any:
        from penstock.topologies.operators.tables.suppress import until_time_limit, until_window_closes

        options: dict[str, Any] = {k: node[k] for k in ("max_records", "max_bytes") if k in node}
        if "when_full" in node:
            options["when_full"] = {"shutdown": "shut_down"}.get(node["when_full"], node["when_full"])
        if node["until"] == "time_limit":
            return self._in(node).suppress(until_time_limit(node["limit_ms"]), **options)
        if node["until"] != "window_close":
            raise CaseError(f"suppress until {node['until']!r} is unknown; the format has time_limit and window_close")
        limit = until_window_closes(grace=node["grace_ms"]) if "grace_ms" in node else until_window_closes()
        return self._in(node).suppress(limit, **options)

    # -- joins ---------------------------------------------------------------------------------------------------

    def _join(self, node: Node) -> Any:
        joins = {
            "stream_stream": self._stream_stream,
            "stream_table": self._stream_table,
            "stream_global_table": self._stream_global_table,
            "table_table": self._table_table,
            "table_table_fk": self._foreign_key,
        }
        join = joins.get(node["kind"])
        if join is None:
            raise CaseError(f"join kind {node['kind']!r} is unknown; the format has {', '.join(joins)}")
        return join(node, self._in(node, "left"), self._in(node, "right"), function(node["joiner"]))

    def _stream_stream(self, node: Node, left: Any, right: Any, joiner: Callable[..., Any]) -> Any:
        options: dict[str, Any] = {"before": node["before_ms"], "after": node["after_ms"]}
        options["grace"] = node.get("grace_ms", 0)
        condition = optional(node.get("condition"))
        if condition is not None:
            options["condition"] = condition
        if "eager_outer" in node:
            options["eager"] = node["eager_outer"]
        if "result_ts" in node:
            options["result_time"] = {"max": "latest"}.get(node["result_ts"], node["result_ts"])
        return getattr(left, _method(node))(right, joiner, value=VALUE, **options)

    def _stream_table(self, node: Node, left: Any, right: Any, joiner: Callable[..., Any]) -> Any:
        options = {} if node.get("grace_ms") is None else {"grace": node["grace_ms"]}
        return getattr(left, _method(node, "inner", "left"))(right, joiner, value=VALUE, **options)

    def _stream_global_table(self, node: Node, left: Any, right: Any, joiner: Callable[..., Any]) -> Any:
        join = left.left_join_global if node["type"] == "left" else left.join_global
        return join(right, function(node["key_mapper"]), joiner, value=VALUE)

    def _table_table(self, node: Node, left: Any, right: Any, joiner: Callable[..., Any]) -> Any:
        return getattr(left, _method(node))(right, joiner, value=VALUE, **_named(node))

    def _foreign_key(self, node: Node, left: Any, right: Any, joiner: Callable[..., Any]) -> Any:
        join = left.left_join_foreign if node["type"] == "left" else left.join_foreign
        fn = function(node["fk_extractor"])
        return join(right, lambda key, value: hashable(fn(value)), joiner, value=VALUE, **_named(node))


def _named(node: Node) -> dict[str, Any]:
    """The operator's name, which is also its store's, where the case looks into it."""
    return {"name": node["store"]} if "store" in node else {}


_METHODS = {"inner": "join", "left": "left_join", "right": "right_join", "outer": "outer_join"}


def _method(node: Node, *known: str) -> str:
    """The method that makes the node's type of join. ``known``: the types that there are; without any: all."""
    names = known or tuple(_METHODS)
    if node["type"] not in names:
        raise CaseError(f"{node['kind']} join type {node['type']!r} is unknown; the format has {', '.join(names)}")
    return _METHODS[node["type"]]
