"""Where a newcomer finds a method: each handle is one class in the file of its name, and modules import one way."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.topologies.dsl.handle import Handle
from penstock.topologies.dsl.internals.aggregation import MAKERS
from penstock.topologies.dsl.kstream_extras import KStreamExtras
from penstock.topologies.windows import SpanWindows, Windows

DSL = Path(__file__).parents[4] / "topologies" / "dsl"
PREFIX = "penstock.topologies.dsl."
HANDLES = {
    "kstream": ps.KStream,
    "ktable": ps.KTable,
    "global_ktable": ps.GlobalKTable,
    "kgrouped_stream": ps.KGroupedStream,
    "kgrouped_table": ps.KGroupedTable,
    "windowed_stream": ps.TimeWindowedKStream,
    "cogrouped_stream": ps.CogroupedKStream,
    "triggered_stream": ps.KTriggeredStream,
    "panes": ps.TriggeredStream,
    "micro_batches": ps.MicroBatches,
}


def methods(cls: type[Any]) -> set[str]:
    """The public methods that a class defines itself."""
    return {name for name, found in vars(cls).items() if inspect.isfunction(found) and not name.startswith("_")}


@pytest.mark.parametrize("module", HANDLES)
def test_each_handle_is_in_the_file_of_its_name(module: str) -> None:
    assert HANDLES[module].__module__ == PREFIX + module


def test_a_stream_has_its_methods_in_one_file_and_one_base() -> None:
    assert {"join", "left_join", "map_values", "filter", "group_by", "to", "process", "to_table"} <= methods(ps.KStream)
    bases = [cls for cls in ps.KStream.__mro__ if cls.__module__.startswith("penstock.")]
    assert bases == [ps.KStream, KStreamExtras, Handle]
    assert methods(ps.KStream).isdisjoint(methods(KStreamExtras))


def test_a_table_has_its_methods_in_one_file() -> None:
    assert [cls for cls in ps.KTable.__mro__ if cls.__module__.startswith("penstock.")] == [ps.KTable, Handle]


@pytest.mark.parametrize("handle", HANDLES.values())
def test_methods_are_documented_and_thin(handle: type[Any]) -> None:
    for name in methods(handle):
        fn = vars(handle)[name]
        assert inspect.getdoc(fn), f"{handle.__name__}.{name}"
        (parsed,) = ast.parse(textwrap.dedent(inspect.getsource(fn))).body
        assert isinstance(parsed, ast.FunctionDef)
        assert len(parsed.body) <= 8, f"{handle.__name__}.{name}: let internals do it"


def imports_of(tree: ast.Module) -> Iterator[str]:
    """The modules of the DSL that a module imports when it is loaded."""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(PREFIX.rstrip(".")):
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if path_of(inner).exists() else node.module


def path_of(module: str) -> Path:
    return DSL.joinpath(*module.removeprefix(PREFIX).split(".")).with_suffix(".py")


def test_modules_import_one_way_and_none_late() -> None:
    graph: dict[str, set[str]] = {}
    for path in DSL.rglob("*.py"):
        tree = ast.parse(path.read_text())
        name = PREFIX + ".".join(path.relative_to(DSL).with_suffix("").parts)
        graph[name] = set(imports_of(tree))
        for fn in ast.walk(tree):
            if isinstance(fn, ast.FunctionDef):
                late = [n for n in ast.walk(fn) if isinstance(n, ast.Import | ast.ImportFrom)]
                assert late == [], f"{name}.{fn.name} imports when it is called"
    order = list(TopologicalSorter(graph).static_order())  # raises for a circle
    assert order.index(PREFIX + "ktable") < order.index(PREFIX + "kstream") < order.index(PREFIX + "builder")


def test_every_kind_of_windows_has_a_maker() -> None:
    def kinds(cls: type[Windows]) -> Iterator[type[Windows]]:
        for sub in cls.__subclasses__():
            yield sub
            yield from kinds(sub)

    assert set(MAKERS) == {cls for cls in kinds(Windows) if cls is not SpanWindows}
    assert all(inspect.isfunction(maker) for maker in MAKERS.values())
