"""The engine: runs one sub-topology over a batch, exactly as record by record would.

It follows the plan: groups in order; an operator on its own gets its batch, or runs of it where several edges meet, by
order; a lockstep group is walked depth first, record by record, or by runs where the plan says that is the same, which are
longer where only the order of each key counts (``keyed_runs``).
Deterministic and free of IO: the task gives it batches and takes what sinks were given.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from penstock.streams.task.keyed_runs import runs_by_key
from penstock.topologies.columnar.column_parts import by_columns_or_rows, worth_columns, worth_columns_together
from penstock.topologies.graph.lockstep_plan import Plan
from penstock.topologies.operator_api.batch import Batch, concat
from penstock.topologies.operator_api.columns import Ints
from penstock.topologies.operator_api.operator import NO_TIME, Operator, OperatorSpec

_NO_PLACES: Ints = np.zeros(0, np.int64)


class BatchTime:
    """Stream time and watermark of the task, by place of the current batch, and its processing time. Most batches need few
    of the places as objects, so the lists are made at the first use."""

    def __init__(self, stride: int) -> None:
        self.stride = stride
        self.before_ms = NO_TIME
        self.watermark_before_ms = NO_TIME
        self.idle_by_place: list[bool] = []
        self.wall_ms = NO_TIME
        self.set(_NO_PLACES, _NO_PLACES)

    def set(self, times: Ints, watermarks: Ints) -> None:
        """Set the stream time and the watermark after each place."""
        self.times, self.watermarks = times, watermarks
        self._listed: list[list[int] | None] = [None, None]

    @property
    def by_place_ms(self) -> list[int]:
        """``times`` as a list."""
        found = self._listed[0]
        if found is None:
            found = self._listed[0] = self.times.tolist()
        return found

    @property
    def watermark_by_place_ms(self) -> list[int]:
        """``watermarks`` as a list."""
        found = self._listed[1]
        if found is None:
            found = self._listed[1] = self.watermarks.tolist()
        return found


Opener = Callable[[int, OperatorSpec], Operator]


class Engine:
    """One sub-topology of one task, running. ``open_operator(index, spec)`` creates each operator; the contexts that
    it gives them must forward ``emit`` to ``Engine.emitted``."""

    def __init__(self, plan: Plan, time: BatchTime, open_operator: Opener) -> None:
        self.plan = plan
        self.time = time
        self._out: list[list[tuple[int, Batch]]] = [[] for _ in plan.names]
        self._inbox: list[dict[tuple[int, int], list[Batch]]] = [{} for _ in plan.names]
        self.operators = [open_operator(i, spec) for i, spec in enumerate(plan.specs)]
        self._timed = [i for i, s in enumerate(plan.specs) if s.timed]
        self._several_edges = {
            (i, child)
            for i, edges in enumerate(plan.children)
            for child, count in Counter(child for _, child, _ in edges).items()
            if count > 1
        }
        self._columns_of_all_ports = {
            i
            for i, modes in enumerate(plan.input_modes)
            if len(plan.groups[plan.group_of[i]]) == 1 and all(mode.rows is None for mode in modes)
        }

    def emitted(self, index: int, batch: Batch, port: int) -> None:
        """An operator emits; delivered when its method returns."""
        if len(batch):
            self._out[index].append((port, batch))

    def run(self, sources: Mapping[int, Batch], places: int) -> None:
        """Run one batch of the task: the records of each source operator; ``places`` counts all of them."""
        for index, batch in sources.items():
            if len(batch):
                self._inbox[index][(-1, 0)] = [batch]
        self._run_groups(places)
        for index in self._timed:
            self.operators[index].end_batch()

    def flush(self) -> None:
        """Before a commit: send what operators hold for it through the graph, operator by operator."""
        for index, operator in enumerate(self.operators):
            operator.flush()
            self._pass_on(index)

    def punctuate(self, now_ms: int, before_ms: int) -> None:
        """The clock advanced: fire wall-clock timers, and release what idle sources held back, operator by operator."""
        self.time.set(_NO_PLACES, _NO_PLACES)
        for index, operator in enumerate(self.operators):
            if self.plan.specs[index].uses_wall_time or self.plan.specs[index].uses_watermark:
                operator.punctuate(now_ms, before_ms)
                self._pass_on(index)

    def _pass_on(self, index: int) -> None:
        if self._out[index]:
            group = self.plan.group_of[index]
            self._deliver(index, group, index in self.plan.batch_safe)
            self._run_groups(0)

    # -- groups --------------------------------------------------------------------------------------------------

    def _run_groups(self, places: int) -> None:
        for number, members in enumerate(self.plan.groups):
            timed = [i for i in members if self.plan.specs[i].timed] if places else []
            if len(members) > 1 and timed:
                self._run_timed_group(number, members, timed, places)
                continue
            self._run_entries(number, members)
            for i in timed:
                self.operators[i].advance(places)
                self._deliver(i, number, True)

    def _run_entries(self, number: int, members: tuple[int, ...]) -> None:
        entries = self._take_entries(members)
        if len(entries) == 1:
            node, port, batch = entries[0]
            if node not in self.plan.batch_safe:
                self._prefetch(node, port, batch)
            self._enter(number, node, port, batch)
            return
        if self._handled_together(number, entries):
            return
        for node, port, batch in entries:
            self._prefetch(node, port, batch)
        by_key = runs_by_key(entries) if number in self.plan.by_key and entries else None
        for node, port, batch in _runs(entries) if by_key is None else by_key:
            self._enter(number, node, port, batch)

    def _handled_together(self, number: int, entries: list[tuple[int, int, Batch]]) -> bool:
        """Whether an operator on its own took the batches of several in ports by columns: cut into runs, which go from one
        port to another and back, they would be too short."""
        if not entries or entries[0][0] not in self._columns_of_all_ports:
            return False
        batches = [(port, batch) for _, port, batch in entries]
        if not worth_columns_together([batch for _, batch in batches]):
            return False
        node = entries[0][0]
        if not self.operators[node].process_together(batches):
            return False
        self._deliver(node, number, True)
        return True

    def _prefetch(self, node: int, port: int, batch: Batch) -> None:
        operator = self.operators[node]
        if not (worth_columns(batch) and operator.prefetch_columns(port, batch)):
            operator.prefetch(port, batch)

    def _run_timed_group(self, number: int, members: tuple[int, ...], timed: list[int], places: int) -> None:
        """Place by place, so that timers fire between the records that other members see."""
        entries = self._take_entries(members)
        for node, port, batch in entries:
            self._prefetch(node, port, batch)
        stride = self.plan.stride
        listed = [(node, port, batch.listed()) for node, port, batch in entries]
        rows = [(node, port, batch.slice(i, i + 1)) for node, port, batch in _runs(listed) for i in range(len(batch))]
        at = 0
        for place in range(places):
            while at < len(rows) and rows[at][2].order[0] // stride == place:
                node, port, row = rows[at]
                self._enter(number, node, port, row)
                at += 1
            for i in timed:
                self.operators[i].advance(place + 1)
                self._deliver(i, number, False)

    def _take_entries(self, members: tuple[int, ...]) -> list[tuple[int, int, Batch]]:
        entries: list[tuple[int, int, Batch]] = []
        for i in members:
            box = self._inbox[i]
            if box:
                edges = [(node, port, self._together(node, i, batches)) for (node, port), batches in box.items()]
                box.clear()
                if len(edges) > 1 and len(members) == 1:
                    edges = self._by_port(i, edges)
                entries += [(i, port, batch) for _, port, batch in edges]
        return entries

    def _by_port(self, node: int, edges: list[tuple[int, int, Batch]]) -> list[tuple[int, int, Batch]]:
        """The records that arrive at one in port from several operators as one batch, in the order of the task."""
        by_port: dict[int, list[tuple[int, int, Batch]]] = {}
        for edge in sorted(edges, key=lambda edge: self.plan.visits[edge[0], node]):
            by_port.setdefault(edge[1], []).append(edge)
        found: list[tuple[int, int, Batch]] = []
        for port, some in by_port.items():
            found.append((some[0][0], port, _in_order(concat([batch for _, _, batch in some]))))
        return found

    def _together(self, node: int, child: int, batches: list[Batch]) -> Batch:
        """Returns an operator's output in order: its group may have taken runs by key, or it
        hands records of several out ports to this child."""
        whole = concat(batches)
        if len(batches) == 1 or node < 0:
            return whole
        if self.plan.group_of[node] not in self.plan.by_key and (node, child) not in self._several_edges:
            return whole
        return _in_order(whole)

    # -- walks ---------------------------------------------------------------------------------------------------

    def _enter(self, group: int, node: int, port: int, batch: Batch) -> None:
        if node in self.plan.batch_safe:
            self._walk(group, node, port, batch, True)
        else:
            batch = batch.listed()
            for i in range(len(batch)):
                self._walk(group, node, port, batch.slice(i, i + 1), False)

    def _walk(self, group: int, node: int, port: int, batch: Batch, safe: bool) -> None:
        operator = self.operators[node]
        if safe:
            by_columns_or_rows(operator.process_columns, operator.process, port, batch)
        else:
            operator.process(port, batch)
        if self._out[node]:
            self._deliver(node, group, safe)

    def _deliver(self, node: int, group: int, safe: bool) -> None:
        """Pass what a node emitted to its children: at once inside the group, outside to their inbox."""
        emitted, self._out[node] = self._out[node], []
        group_of = self.plan.group_of
        inside = any(group_of[child] == group for _, child, _ in self.plan.children[node])
        for out_port, batch in emitted:
            parts = [batch] if safe or not inside else [batch.slice(i, i + 1) for i in range(len(batch))]
            for part in parts:
                for port, child, in_port in self.plan.children[node]:
                    if port != out_port:
                        continue
                    if group_of[child] == group:
                        self._walk(group, child, in_port, part, safe)
                    else:
                        self._inbox[child].setdefault((node, in_port), []).append(part)


def _in_order(batch: Batch) -> Batch:
    """The records in the order of the task; of equal places as they stand."""
    orders = batch.orders
    return batch if (orders[1:] >= orders[:-1]).all() else batch.pick(np.argsort(orders, kind="stable"))


def _runs(entries: list[tuple[int, int, Batch]]) -> Iterator[tuple[int, int, Batch]]:
    """The entries' records in order, as the longest runs from one entry."""
    heads = [0] * len(entries)
    alive = list(range(len(entries)))
    while alive:
        first = min(alive, key=lambda e: (entries[e][2].order[heads[e]], e))
        node, port, batch = entries[first]
        order, start = batch.order, heads[first]
        others = [(entries[e][2].order[heads[e]], e) for e in alive if e != first]
        if others:
            bound, other = min(others)
            stop = (bisect_right if first < other else bisect_left)(order, bound, start)
        else:
            stop = len(order)
        yield node, port, batch.slice(start, stop)
        heads[first] = stop
        if stop == len(order):
            alive.remove(first)
