"""Kind ``window_group``: at the end of a finite input each key and window holds exactly these values, in any order."""

from __future__ import annotations

from typing import Any

from penstock.topologies.dsl.builder import StreamsBuilder
from tests.conformance.case_format import Case
from tests.conformance.compare import assignable, table_of
from tests.conformance.scenario import KEY, VALUE, Played, Put, Scenario, Setting
from tests.conformance.windows import plain_window

GRACE_MS = 1 << 40
"""Nothing is late in a finite input."""


def scenario(case: Case, setting: Setting) -> Scenario:
    """Collect the values of every window."""
    topic, out = f"{setting.prefix}in", f"{setting.prefix}out"
    builder: Any = StreamsBuilder("conform", key=KEY, value=VALUE)
    before = case.keeps_windows_before_epoch
    windows = plain_window(case.data["window"], before_epoch=before, grace_ms=GRACE_MS)
    grouped = builder.stream(topic).group_by_key().windowed_by(windows)
    merging = {"merger": lambda key, left, right: [*left, *right]} if windows.merging else {}
    grouped.aggregate(list, lambda key, value, all_: [*all_, value], value=VALUE, **merging).to(out)
    steps = tuple(Put(i, topic, e.get("k"), e["v"], e["ts"]) for i, e in enumerate(case.input))
    return Scenario(topology=builder.build(), steps=steps, inputs=(topic,), sinks={"out": out})


def verdict(case: Case, played: Played) -> list[str]:
    """The last content of every window."""
    if played.error is not None:
        return [played.error[1]]
    found = [
        {"window": row["w"], "values": row["v"], "k": row["k"]}
        for row in table_of([row for _, row in played.outputs["out"]])
    ]
    expected = case.expectations()
    if len(expected) == len(found) and assignable(expected, found, _agree):
        return []
    return ["windows:", *(f"    expected {e}" for e in expected), *(f"    actual   {f}" for f in found)]


def _agree(expected: dict[str, Any], found: dict[str, Any]) -> bool:
    same = expected["window"] == found["window"] and expected.get("k", found["k"]) == found["k"]
    return same and sorted(map(repr, expected["values"])) == sorted(map(repr, found["values"]))
