"""Finding a topology by name: what was not there is told apart from what went wrong inside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.state.errors import TopologyError
from penstock.streams.topology_loading import load_topology

GOOD = """
import penstock as ps
builder = ps.StreamsBuilder("t")
builder.stream("in").to("out")
topology = builder.build()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "ref", ["good_topology", "good_topology:topology", "good_topology.py", "good_topology.py:builder"]
)
def test_a_module_is_found_by_name_and_by_file(ref: str, folder: Path) -> None:
    (folder / "good_topology.py").write_text(GOOD)
    assert load_topology(ref).name == "t"


@pytest.mark.parametrize(
    ("ref", "why"),
    [
        ("no_such_module:topology", "No module named 'no_such_module'"),
        ("no_such_module.inner:topology", "No module named 'no_such_module'"),
        ("penstock.no_such_module:build", "No module named 'penstock.no_such_module'"),
        ("no_such_file.py:topology", "there is no such file"),
        ("folder.py", "there is no such file"),
        ("", "not the name of a module"),
        (".relative:topology", "not the name of a module"),
        ("no_such_folder/counts:topology", "No module named 'no_such_folder/counts'"),
    ],
)
def test_what_is_not_there_is_not_found(ref: str, why: str, folder: Path) -> None:
    (folder / "folder.py").mkdir()
    with pytest.raises(TopologyError, match="cannot be found") as told:
        load_topology(ref)
    assert why in str(told.value)


@pytest.mark.parametrize(
    ("number", "line", "text"),
    [
        (0, "raise ValueError('boom')", "ValueError: boom"),
        (1, "topology = None.build()", "AttributeError: 'NoneType' object has no attribute 'build'"),
        (2, "import no_such_library", "ModuleNotFoundError: No module named 'no_such_library'"),
        (3, "from json import no_such_name", "ImportError: cannot import name 'no_such_name'"),
        (4, "open('no_such_data')", "FileNotFoundError: [Errno 2] No such file or directory: 'no_such_data'"),
        (5, "import json; json.loads('{')", "JSONDecodeError: Expecting property name"),
        (6, "topology = = 1", "SyntaxError: invalid syntax"),
    ],
)
@pytest.mark.parametrize("ending", ["", ".py"])
def test_what_a_module_raises_is_told_with_its_line(
    number: int, line: str, text: str, ending: str, folder: Path
) -> None:
    name = f"raising_{number}_{ending[1:]}"
    file = folder / f"{name}.py"
    file.write_text(f"# a first line\n{line}\n")
    with pytest.raises(TopologyError) as told:
        load_topology(f"{name}{ending}:topology")
    assert f"module '{name}{ending}' raised while it was imported: {text}" in str(told.value)
    assert f"({file}, line 2)" in str(told.value)
    assert type(told.value.__cause__).__name__ == text.split(":")[0]


@pytest.mark.parametrize("ending", ["", ".py"])
def test_what_penstock_raises_says_itself_what_to_do(ending: str, folder: Path) -> None:
    name = f"refused_{ending[1:]}"
    (folder / f"{name}.py").write_text("import penstock as ps\nps.StreamsBuilder('t').stream('in').map(5)\n")
    with pytest.raises(TopologyError) as told:
        load_topology(f"{name}{ending}")
    assert "imported" not in str(told.value)
    assert "operator" in str(told.value)
    assert str(told.value).endswith(f" ({folder / name}.py, line 2)")


def test_what_a_function_that_builds_does_wrong_has_its_line(folder: Path) -> None:
    (folder / "refused_late.py").write_text(
        "import penstock as ps\n\ndef build():\n    b = ps.StreamsBuilder('t')\n"
        "    b.stream('in').group_by_key().windowed_by(ps.session('1m'))\n    return b\n"
    )
    with pytest.raises(TopologyError, match=r"session needs a grace: .* \(.*/refused_late\.py, line 5\)$"):
        load_topology("refused_late:build")


def test_names_that_may_be_meant_are_given(folder: Path) -> None:
    (folder / "several.py").write_text(
        "from json import loads\nfrom penstock import StreamsBuilder\n"
        "builder = StreamsBuilder('x')\ndef counts(): ...\ndef _inner(): ...\ndef with_one(topic): ...\nLIMIT = 3\n"
    )
    with pytest.raises(TopologyError, match=r"has no count; .* NAME is one of: builder, counts$"):
        load_topology("several:count")
    (folder / "none.py").write_text("LIMIT = 3\n")
    with pytest.raises(TopologyError, match=r"has no topology or build; name the topology as MODULE:NAME$"):
        load_topology("none")
