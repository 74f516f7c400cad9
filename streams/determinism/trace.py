"""One run of a topology, watched: what every operator emitted, and what it touched outside of its context.

A run is a process of its own, because the order of sets depends on the hash seed, which is fixed per process. What an
operator emits is hashed in a form that does not depend on the process, with sets in Python's iteration order: two runs
that differ only in hash seed, batch size or restarts must give equal hashes.

Touches are seen by the interpreter's profile hook (calls of C functions) and its audit hook, while an operator of the
topology runs: clocks, randomness, files, sockets, processes.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from types import FrameType
from typing import Any

import msgspec

from penstock.state.log import Record
from penstock.state.serdes.models import plain as plain_of
from penstock.streams.task.task import Task
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operator_api.batch import Batch

_CLOCKS = frozenset(
    {"time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "now", "utcnow", "today"}
)
_AUDITED = {
    "open": "opens the file {0}",
    "socket.connect": "connects a socket",
    "socket.getaddrinfo": "looks up a host name",
    "subprocess.Popen": "starts a process",
    "os.system": "starts a process",
    "os.listdir": "lists the folder {0}",
    "os.scandir": "lists the folder {0}",
}
_METHODS = ("process", "prefetch", "advance", "flush", "punctuate")


@dataclasses.dataclass(frozen=True)
class RunPlan:
    """How one run goes: records per batch, and after how many records everything is restarted (0: never).
    ``again``: the records were run once before in the same process."""

    batch_size: int
    restart_every: int
    watch: bool = False
    again: bool = False


class Trace(msgspec.Struct):
    """The results of a run. ``emitted``: per operator and task, the hash of what it emitted, and how much; ``written``: the
    same per topic; ``touches``: sentences per operator."""

    emitted: dict[str, str]
    written: dict[str, str]
    touches: dict[str, list[str]]
    records: int


class _OperatorWatch:
    """Watches all operators of a run."""

    def __init__(self, free: frozenset[str]) -> None:
        self.current: str | None = None
        self.touches: dict[str, list[str]] = {}
        self._free = free
        """Operators that ask outside by their nature; their answers are journaled."""

    def touched(self, what: str) -> None:
        name = self.current
        if name is None or name in self._free:
            return
        said = self.touches.setdefault(name, [])
        if what not in said:
            said.append(what)

    def profile(self, frame: FrameType, event: str, arg: Any) -> None:
        """The profile hook."""
        if event != "c_call" or self.current is None:
            return
        name, owner = getattr(arg, "__name__", ""), getattr(arg, "__self__", None)
        module = getattr(arg, "__module__", None) or getattr(owner, "__name__", "") or type(owner).__module__
        if name in _CLOCKS and module in ("time", "datetime", "date"):
            self.touched(f"reads the clock ({module}.{name})")
        elif name in ("urandom", "getrandom") and module in ("posix", "nt", "os"):
            self.touched("takes randomness (os.urandom)")
        elif name in ("random", "getrandbits", "seed") and type(owner).__module__ in ("random", "_random"):
            self.touched(f"takes randomness (random.{name})")
        elif name in ("getpid", "gethostname"):
            self.touched(f"asks the machine who it is ({module}.{name})")

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """The audit hook."""
        if self.current is not None and event in _AUDITED and not _importing():
            first = str(arguments[0])[:100] if arguments else ""
            self.touched(_AUDITED[event].format(first))


def _importing() -> bool:
    """Whether the call comes from an import, which happens once and is not part of an answer."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


class _Watched:
    """An operator that says when it runs."""

    def __init__(self, operator: Any, name: str, watch: _OperatorWatch) -> None:
        object.__setattr__(self, "_operator", operator)
        object.__setattr__(self, "_name", name)
        object.__setattr__(self, "_watch", watch)

    def __getattr__(self, attribute: str) -> Any:
        found = getattr(self._operator, attribute)
        if attribute not in _METHODS:
            return found

        def named(*arguments: Any) -> Any:
            self._watch.current = self._name
            try:
                return found(*arguments)
            finally:
                self._watch.current = None

        return named

    def __setattr__(self, attribute: str, value: Any) -> None:
        setattr(self._operator, attribute, value)


class _Hashes:
    """A running hash per name."""

    def __init__(self) -> None:
        self._hashes: dict[str, Any] = {}
        self._counts: dict[str, int] = {}

    def add(self, name: str, rows: Iterator[Any]) -> None:
        found = self._hashes.setdefault(name, blake2b(digest_size=16))
        for row in rows:
            found.update(repr(row).encode())
            self._counts[name] = self._counts.get(name, 0) + 1

    def digests(self) -> dict[str, str]:
        return {n: f"{h.hexdigest()} of {self._counts.get(n, 0)}" for n, h in sorted(self._hashes.items())}


def plain(value: Any) -> Any:
    """A value in a form whose ``repr`` is the same in every process, containers in their own order."""
    if value is None or isinstance(value, (str, bytes, int, float, bool)):
        return value
    if isinstance(value, dict):
        return {"dict": [(plain(k), plain(v)) for k, v in value.items()]}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, (set, frozenset)):
        return {"set": [plain(v) for v in value]}
    try:
        return (type(value).__name__, plain(plain_of(value, str_keys=True)))
    except (TypeError, ValueError):
        return type(value).__name__


def run(topology: Topology, records: Sequence[tuple[str, Record]], plan: RunPlan, partitions: int = 1) -> Trace:
    """Run the records, in their order, through the topology."""
    if plan.again:
        run(topology, records, dataclasses.replace(plan, again=False), partitions)
    watch = _OperatorWatch(frozenset(n for n, s in topology.operators.items() if s.makes_external_calls))
    emitted, written = _Hashes(), _Hashes()
    driver = TopologyTestDriver(
        topology,
        partitions=partitions,
        arrival_order=True,
        options=TaskOptions(batch_max_records=plan.batch_size),
    )
    _watch_all(driver, watch, emitted)
    step = plan.restart_every or len(records) or 1
    with _hooked(watch, plan.watch):
        for start in range(0, len(records), step):
            driver.pipe_sequence(records[start : start + step])
            if plan.restart_every:
                driver.restart()
                _watch_all(driver, watch, emitted)
        driver.close()
    for sub in topology.subtopologies:
        for name in sub.sinks:
            for topic in dict.fromkeys((topology.sink(name).topic_name("test"), *topology.sink(name).topics)):
                # the order among tasks is the log's to choose; within a task it is that of what was emitted
                rows = sorted(repr((r.key, r.value, r.timestamp_ms, r.headers)) for r in driver.read_raw(topic))
                written.add(topic, iter(rows))
    return Trace(emitted.digests(), written.digests(), watch.touches, len(records))


@contextmanager
def _hooked(watch: _OperatorWatch, watching: bool) -> Iterator[None]:
    if not watching:
        yield
        return
    sys.addaudithook(watch.audit)  # for the life of the process: a run has one of its own
    sys.setprofile(watch.profile)
    try:
        yield
    finally:
        sys.setprofile(None)


def _watch_all(driver: TopologyTestDriver, watch: _OperatorWatch, emitted: _Hashes) -> None:
    for task in driver.tasks.values():
        _watch_task(task, watch, emitted)


def _watch_task(task: Task, watch: _OperatorWatch, emitted: _Hashes) -> None:
    engine = task._engine
    names = engine.plan.names
    operators: list[Any] = [_Watched(o, n, watch) for o, n in zip(engine.operators, names, strict=True)]
    engine.operators = operators
    before = engine.emitted

    def recorded(index: int, batch: Batch, port: int) -> None:
        current, watch.current = watch.current, None
        headers = batch.headers or [()] * len(batch)
        rows = zip(map(plain, batch.keys), map(plain, batch.values), batch.timestamps, headers, strict=True)
        emitted.add(f"{names[index]}.{engine.plan.specs[index].out_ports[port]}@{task.id}", rows)
        watch.current = current
        before(index, batch, port)

    engine.emitted = recorded  # type: ignore[method-assign]  # one run's engine, which nobody else sees
