"""The lockstep plan: which operators of a sub-topology run batch by batch, and which in lockstep.

An operator on its own gets a whole batch at once. Operators must run in lockstep, record by record and depth first, if
running by batches could show one of them a state or an order that running record by record would not:

1. operators that share a resource (a store, an output topic);
2. operators at which branches of one record meet again, with everything from the fork on, fork included; unless what meets
   there can be put into the order of the task afterwards (``_Meetings``);
3. everything between members of one group (else the groups could not be ordered).

The rules are applied until nothing changes. Inside a group, records still go in runs (``batch_safe``) if, from the edge
by which they enter, the rest of the group is a tree that touches no resource twice: then nothing in the run can see the
effects of other records in a wrong order. So a stream–table join runs over runs of stream records and runs of table
updates.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from itertools import combinations

from penstock.topologies.graph.column_plan import ChildEdges, input_modes_of
from penstock.topologies.graph.topology import Subtopology, Topology
from penstock.topologies.operator_api.operator import OperatorSpec
from penstock.topologies.operator_api.required_columns import InputMode, RequiredColumns
from penstock.topologies.operator_api.watermark_strategies import carried_topics
from penstock.topologies.operators.aggregates.combine import CombineSpec
from penstock.topologies.operators.records.source_sink import SinkSpec

GraphEdge = tuple[int, int]
"""From an operator to one of its children."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """The operators of a sub-topology by index (topological order), and the groups in which they run."""

    names: tuple[str, ...]
    specs: tuple[OperatorSpec, ...]
    children: tuple[tuple[tuple[int, int, int], ...], ...]
    """Per operator: (out port, child, child's in port), in visiting order."""
    groups: tuple[tuple[int, ...], ...]
    """The groups in the order in which they run."""
    group_of: tuple[int, ...]
    batch_safe: frozenset[int]
    by_key: frozenset[int]
    """The groups, by number, in which records of different keys may change places: all that they do with a record concerns
    its key alone."""
    visits: Mapping[GraphEdge, int]
    """When a depth-first walk takes each edge: records that one record of a fork caused meet in that order."""
    timed: bool
    """Whether event time triggers any of them between records."""
    uses_watermark: bool
    uses_wall_time: bool
    reads_wall_time: bool
    carried: frozenset[str]
    """The repartition topics of the whole topology through which watermarks travel."""
    input_modes: tuple[tuple[InputMode, ...], ...]
    """The input mode of each operator per in port; of a source, for its topic."""

    def needed(self, index: int) -> RequiredColumns | None:
        """The columns that are required of a source's records; ``None``: it emits them as lists."""
        if self.specs[index].in_ports:
            return None
        needs = self.input_modes[index][0].needs
        lonely = len(self.groups[self.group_of[index]]) == 1
        return needs if lonely or (index in self.batch_safe and not needs.listed) else None

    @property
    def stride(self) -> int:
        """The factor of a place in ``Batch.order``."""
        return len(self.names) + 1


def plan_of(topology: Topology, sub: Subtopology) -> Plan:
    """The plan of one sub-topology."""
    index = {name: i for i, name in enumerate(sub.operators)}
    carried = carried_topics(topology)
    specs = tuple(_timed_if_carrying(topology.operators[n], carried) for n in sub.operators)
    children = tuple(
        tuple((out, index[child], port) for out, child, port in topology.children(name)) for name in sub.operators
    )
    groups = _groups(specs, children)
    group_of = [0] * len(specs)
    for number, members in enumerate(groups):
        for i in members:
            group_of[i] = number
    batch_safe = frozenset(i for i in range(len(specs)) if _batch_safe(i, specs, children, groups[group_of[i]]))
    return Plan(
        sub.operators,
        specs,
        children,
        groups,
        tuple(group_of),
        batch_safe,
        frozenset(
            number
            for number, members in enumerate(groups)
            if len(members) > 1 and batch_safe.issuperset(members) and _by_key(specs, children, members)
        ),
        _visits(children, range(len(specs))),
        any(s.timed for s in specs),
        any(s.uses_watermark for s in specs),
        any(s.uses_wall_time for s in specs),
        any(s.reads_wall_time for s in specs),
        carried,
        input_modes_of(sub.operators, specs, children, groups, batch_safe),
    )


def _timed_if_carrying(spec: OperatorSpec, carried: frozenset[str]) -> OperatorSpec:
    """A sink through which watermarks travel writes them at their places, and a combiner before it depends on them."""
    if (isinstance(spec, CombineSpec) or (isinstance(spec, SinkSpec) and spec.internal)) and spec.topic in carried:
        return dataclasses.replace(spec, uses_watermark=True)
    return spec


def _groups(specs: tuple[OperatorSpec, ...], children: ChildEdges) -> tuple[tuple[int, ...], ...]:
    count = len(specs)
    edges = [(i, child) for i in range(count) for _, child, _ in children[i]]
    ancestors = _ancestors(count, edges)
    meetings = _Meetings(specs, children, ancestors)
    sets: list[set[int]] = [{i} for i in range(count)]
    by_resource: dict[str, set[int]] = {}
    for i, spec in enumerate(specs):
        for resource in spec.resources:
            by_resource.setdefault(resource, set()).add(i)
    sets += by_resource.values()
    while True:
        merged = _merge_overlapping(sets)
        grown = [_closed(g, edges, ancestors, meetings) for g in merged]
        grown = _merge_overlapping(grown)
        cyclic = _merge_cycles(grown, edges)
        if cyclic == merged:
            return tuple(tuple(sorted(g)) for g in _in_order(cyclic, edges))
        sets = cyclic


def _ancestors(count: int, edges: list[tuple[int, int]]) -> list[set[int]]:
    """The ancestors of each operator, itself included. Indices are a topological order."""
    ancestors = [{i} for i in range(count)]
    for i in range(count):
        for a, b in edges:
            if b == i:
                ancestors[i] |= ancestors[a]
    return ancestors


def _closed(
    group: set[int],
    edges: list[tuple[int, int]],
    ancestors: list[set[int]],
    meetings: _Meetings,
) -> set[int]:
    """The group, extended by the forks whose branches meet in it (rule 2) and by what is between members (rule 3)."""
    out = _spanned(group, ancestors)
    # Records of one place can meet only if two edges enter the group: inside it they run depth first.
    for a, c in combinations([a for a, b in edges if b in out and a not in out], 2):
        shared = ancestors[a] & ancestors[c]
        if len(out) == 1 and meetings.in_step(next(iter(out)), a, c):
            continue
        out = out | {x for x in shared if not any(x != y and x in ancestors[y] for y in shared)}
    return _spanned(out, ancestors)


def _spanned(group: set[int], ancestors: list[set[int]]) -> set[int]:
    """The group, extended by what is between its members."""
    return {x for x in range(len(ancestors)) if ancestors[x] & group and any(x in ancestors[y] for y in group)}


def _merge_overlapping(sets: list[set[int]]) -> list[set[int]]:
    merged: list[set[int]] = []
    for s in sets:
        s = set(s)
        rest = []
        for m in merged:
            if m & s:
                s |= m
            else:
                rest.append(m)
        merged = [*rest, s]
    return sorted(merged, key=min)


def _merge_cycles(groups: list[set[int]], edges: list[tuple[int, int]]) -> list[set[int]]:
    """Merge groups that feed each other."""
    of = {i: n for n, g in enumerate(groups) for i in g}
    reach = [{n} for n in range(len(groups))]
    changed = True
    while changed:
        changed = False
        for a, b in edges:
            new = reach[of[b]] - reach[of[a]]
            if new:
                reach[of[a]] |= new
                changed = True
    joined = [
        set().union(*(groups[m] for m in range(len(groups)) if m in reach[n] and n in reach[m]))
        for n in range(len(groups))
    ]
    return _merge_overlapping(joined)


def _in_order(groups: list[set[int]], edges: list[tuple[int, int]]) -> list[set[int]]:
    """Order the groups topologically, ties by their first operator."""
    of = {i: n for n, g in enumerate(groups) for i in g}
    waiting = {n: {of[a] for a, b in edges if of[b] == n and of[a] != n} for n in range(len(groups))}
    order: list[set[int]] = []
    while waiting:
        ready = min((n for n, w in waiting.items() if not w), key=lambda n: min(groups[n]))
        order.append(groups[ready])
        del waiting[ready]
        for w in waiting.values():
            w.discard(ready)
    return order


def _batch_safe(start: int, specs: tuple[OperatorSpec, ...], children: ChildEdges, group: tuple[int, ...]) -> bool:
    """Whether records that enter the group at this operator may go through it in runs."""
    members = set(group)
    if len(group) > 1 and any(specs[i].timed for i in group):
        return False
    seen: list[int] = [start]
    resources = list(specs[start].resources)
    for i in seen:  # grows while it is read
        for _, child, port in children[i]:
            if child in members:
                if child in seen:
                    return False
                seen.append(child)
                resources += specs[child].touches(port)
    return len(resources) == len(set(resources))


def _by_key(specs: tuple[OperatorSpec, ...], children: ChildEdges, members: tuple[int, ...]) -> bool:
    """Whether all members of a group do with a record what concerns the key that it had when it entered the group, and each
    store's changes come in the order of the task, because it is written by the records of one entry."""
    inner = {i for i in members if any(child in members for _, child, _ in children[i])}
    if not all(specs[i].by_key and (i not in inner or specs[i].keeps_keys) for i in members):
        return False
    entries = [(i, 0) for i in members if not specs[i].in_ports]
    outside = [edge for i in range(len(specs)) if i not in members for edge in children[i]]
    entries += [(child, port) for _, child, port in outside if child in members]
    written = [_written(specs, children, members, entry) for entry in entries]
    return sum(map(len, written)) == len(set().union(*written))


def _written(
    specs: tuple[OperatorSpec, ...], children: ChildEdges, members: tuple[int, ...], entry: tuple[int, int]
) -> set[str]:
    """The resources that records which enter a group there write."""
    reached = [entry]
    for i, _ in reached:  # grows while it is read
        reached += [(child, port) for _, child, port in children[i] if child in members]
    return {resource for i, port in reached for resource in specs[i].writes(port)}


def _visits(children: ChildEdges, starts: Iterable[int]) -> dict[GraphEdge, int]:
    """When a depth-first walk from these operators takes each edge."""
    order: dict[GraphEdge, int] = {}
    seen: set[int] = set()

    def walk(i: int) -> None:
        if i in seen:
            return
        seen.add(i)
        for _, child, _ in children[i]:
            order.setdefault((i, child), len(order))
            walk(child)

    for i in starts:
        walk(i)
    return order


class _Meetings:
    """Tells whether the records that two operators hand to a third one can be put into the order of the task when all are
    there: the places of their records say which comes first, and of one place those of the branch that is visited first.
    That is so if up to the fork a place has one record, and one way leads from there to each of the two."""

    def __init__(self, specs: tuple[OperatorSpec, ...], children: ChildEdges, ancestors: list[set[int]]) -> None:
        self._specs, self._children, self._ancestors = specs, children, ancestors
        self._edges = [(i, child) for i in range(len(specs)) for _, child, _ in children[i]]
        self._visits = _visits(children, range(len(specs)))

    def in_step(self, meeting: int, a: int, c: int) -> bool:
        """Whether those of ``a`` and ``c``, handed to ``meeting``, can."""
        if len(self._specs[meeting].in_ports) != 1:
            return False
        return all(self._forks(fork, (a, meeting), (c, meeting)) for fork in self._ancestors[a] & self._ancestors[c])

    def _forks(self, fork: int, one: GraphEdge, other: GraphEdge) -> bool:
        if not self._specs[fork].at_most_one:
            return False
        ways, visits, overall = self._ways(fork), _visits(self._children, (fork,)), self._visits
        if ways[one[0]] != 1 or ways[other[0]] != 1:
            return False
        return (visits[one] < visits[other]) == (overall[one] < overall[other])

    def _ways(self, start: int) -> dict[int, int]:
        """How many ways lead from an operator to each one behind it. Indices are a topological order."""
        ways = {start: 1}
        for a, b in sorted(self._edges):
            if a in ways:
                ways[b] = ways.get(b, 0) + ways[a]
        return ways
