"""Kind ``nexmark``: a query of the benchmark on a few events, through its ready-made topology; the answer is a bag.

``query`` names it (``"q5"`` or ``5``). An input entry is an event: a person, an auction or a bid, as ``{"bid": {…}}``, as
``{"topic": "bid", "v": {…}}``, or flat with an ``event_type`` (0, 1, 2, or the name). Fields that a case leaves out are
empty. A watermark, and the end of the input, let event time come so far. ``parameters``: the
query's arguments, and ``benchmark``, whose constants are taken (``nexmark``, ``beam``). ``expected``: the rows, or
checks that hold them; columns that a row lacks are not compared.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import msgspec

from penstock.topologies.examples.nexmark.constants import BENCHMARKS
from penstock.topologies.examples.nexmark.model import Auction, Bid, NexmarkEvent, Person
from penstock.topologies.graph.topology import Topology
from tests.conformance.case_format import Case, CaseError
from tests.conformance.compare import assignable, plain, table_of
from tests.conformance.marks import FOREVER
from tests.conformance.scenario import Mark, Played, Put, Scenario, Setting, Step

_HOME = "penstock.topologies.examples.nexmark"
_MODULES = ("records", "joins", "windows", "aggregates")
_KINDS: dict[str, type[Person | Auction | Bid]] = {"person": Person, "auction": Auction, "bid": Bid}
_NOTHING = 3
"""An event type that no query reads: such an event only moves time."""
_DELAY_MS = 4_000
_HORIZON_MS = 24 * 3_600_000
TOPIC = "nexmark"


def scenario(case: Case, setting: Setting) -> Scenario:
    """The query's topology. Its topics have the names that it gives them, so that only the test driver can play it."""
    if setting.prefix:
        raise CaseError("queries of Nexmark have topics of fixed names; play them in the test driver")
    query = query_of(case)
    topology = _topology(query, _arguments(case, query))
    return Scenario(topology=topology, steps=tuple(_steps(case)), inputs=(TOPIC,), sinks={query: query})


def query_of(case: Case) -> str:
    """``q5``."""
    named = case.data.get("query", case.data.get("topology", {}).get("query"))
    if named is None:
        raise CaseError("the case names no query")
    return f"q{str(named).lower().removeprefix('q')}"


def _arguments(case: Case, query: str) -> dict[str, Any]:
    """Those that make the query: of a benchmark, and of the case."""
    given = dict(case.data.get("parameters", case.data.get("topology", {}).get("parameters", {})))
    benchmark = given.pop("benchmark", "nexmark")
    if benchmark not in BENCHMARKS:
        raise CaseError(f"benchmark {benchmark!r} is unknown; there are {', '.join(BENCHMARKS)}")
    exact = {name: Decimal(str(value)) if isinstance(value, float) else value for name, value in given.items()}
    return {**BENCHMARKS[benchmark].get(query, {}), **exact}


def _topology(query: str, arguments: dict[str, Any]) -> Topology:
    for module in _MODULES:
        make: Callable[..., Topology] | None = getattr(importlib.import_module(f"{_HOME}.{module}"), query, None)
        if make is not None:
            return _made(make, query, arguments)
    raise CaseError(f"{query} is no query of Nexmark that has a topology")


def _made(make: Callable[..., Topology], query: str, arguments: dict[str, Any]) -> Topology:
    known = list(inspect.signature(make).parameters)
    unknown = [name for name in arguments if name not in known]
    if unknown:
        takes = ", ".join(known) or "no parameters"
        raise CaseError(f"{query} has no parameter {', '.join(unknown)}; it takes {takes}")
    return make(**arguments)


def _steps(case: Case) -> Iterator[Step]:
    latest_ms = 0
    for index, entry in enumerate(case.input):
        if entry.get("event") == "watermark":
            ts = latest_ms + _HORIZON_MS if entry["ts"] == FOREVER else entry["ts"]
            yield Mark(index, TOPIC, 0, NexmarkEvent(_NOTHING), ts + _DELAY_MS + 1)
            continue
        event = event_of(entry)
        latest_ms = max(latest_ms, event.dateTime)
        yield Put(index, TOPIC, index, event, event.dateTime)
    yield Mark(len(case.input), TOPIC, 0, NexmarkEvent(_NOTHING), latest_ms + _HORIZON_MS + _DELAY_MS)


def event_of(entry: dict[str, Any]) -> NexmarkEvent:
    """The event of an entry. Raises ``CaseError`` for one that is none of the three."""
    fields: dict[str, Any] = entry.get("v", entry)
    names = list(_KINDS)
    inside = next((n for n in names if isinstance(fields.get(n), dict)), None)
    if inside is not None:
        return _event(inside, fields[inside], entry)
    kind = fields.get("event_type", fields.get("type", entry.get("topic")))
    name = names[kind] if isinstance(kind, int) and kind in range(len(names)) else str(kind).lower().rstrip("s")
    if name not in _KINDS:
        raise CaseError(f"{entry!r:.100} is no person, auction or bid")
    return _event(name, fields, entry)


def _event(name: str, fields: dict[str, Any], entry: dict[str, Any]) -> NexmarkEvent:
    of = _KINDS[name]
    made = {f.name: fields.get(f.name, "" if f.type is str else 0) for f in msgspec.structs.fields(of)}
    if "dateTime" not in fields and entry.get("ts") is not None:
        made["dateTime"] = entry["ts"]
    return msgspec.convert({"event_type": list(_KINDS).index(name), name: made}, NexmarkEvent)


def verdict(case: Case, played: Played) -> list[str]:
    """The rows as a bag; of a query that corrects itself, those that are left at the end."""
    if played.error is not None:
        return [f"failed at entry {played.error[0]}: {played.error[1]}"]
    rows = [row for _, row in played.outputs[query_of(case)]]
    found = [[_columns(row["v"]) for row in some] for some in (rows, table_of(rows))]
    expected = [row for part in case.expectations() for row in part.get("records", [part])]
    expected = [row["v"] if isinstance(row.get("v"), dict) else row for row in expected]
    if any(len(expected) == len(some) and assignable(expected, some, _agree) for some in found):
        return []
    return ["rows:", *(f"    expected {row}" for row in expected), *(f"    actual   {row}" for row in found[0])]


def _columns(value: Any) -> dict[str, Any]:
    made = msgspec.to_builtins(value)
    return made if isinstance(made, dict) else {"value": made}


def _agree(expected: dict[str, Any], found: dict[str, Any]) -> bool:
    return all(_plainly(found.get(name)) == _plainly(value) for name, value in expected.items())


def _plainly(value: Any) -> Any:
    """A number as a decimal, whatever it was written as."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return plain(value)
    try:
        return Decimal(str(value))
    except ArithmeticError:
        return value
