"""Every name that the documents use is one of ``penstock``'s, and each is listed once."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import penstock as ps

ROOT = Path(__file__).parents[1]
DOCUMENTS = ("README.md", "LANGUAGE.md", "OPERATING.md")
FAMILIES = (ps.aggregators, ps.triggers, ps.expressions)
SPAN = re.compile(r"```.*?```|`([^`\n]+)`", re.DOTALL)
CALL = re.compile(r"(?<![\w.])(\w+)(?=\()|^([A-Z]\w*[a-z]\w*)$")
OF_PS = re.compile(r"\bps\.(\w+)")
FROM_PS = re.compile(r"^from penstock import (.+)$", re.MULTILINE)
DEEPER = re.compile(r"^from penstock\.\S+ import .+$", re.MULTILINE)


def reachable() -> set[str]:
    """The public names, those of the families, and what public classes have."""
    found = set(ps.__all__)
    for family in FAMILIES:
        found |= set(vars(family))
    for name in ps.__all__:
        if isinstance(getattr(ps, name), type):
            found |= set(dir(getattr(ps, name)))
    return found


def defined() -> dict[str, str]:
    """By public function or class of the three rooms: its file."""
    found: dict[str, str] = {}
    for room in ("state", "topologies", "streams"):
        for path in (ROOT / room).rglob("*.py"):
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                    found[node.name] = str(path.relative_to(ROOT))
    return found


@pytest.mark.parametrize("document", DOCUMENTS)
def test_documents_use_public_names(document: str) -> None:
    text = (ROOT / document).read_text()
    imported = {part.split()[0] for line in FROM_PS.findall(text) for part in line.split(",")}
    unknown = {name for name in imported.union(OF_PS.findall(text)) if not hasattr(ps, name)}
    assert unknown == set(), f"{document}: penstock has no such names"
    assert DEEPER.findall(text) == [], f"{document}: import from penstock itself"


def test_functions_and_classes_that_documents_name_are_public() -> None:
    spans = [span for document in DOCUMENTS for span in SPAN.findall((ROOT / document).read_text()) if span]
    used = {a or b for span in spans for a, b in CALL.findall(span)}
    homes = defined()
    # Operators read the facts of the log by their names; no program needs to import them. And four modules have their own.
    facts = {
        name
        for path in (ROOT / "streams/events").glob("*.py")
        for name in re.findall(r"^class (\w+)", path.read_text(), re.M)
    }
    faces = {
        name
        for face in ("connectors", "ports", "spark", "testing")
        for name in re.findall(r"\w+", (ROOT / f".package/penstock/{face}.py").read_text())
    }
    hidden = {name: homes[name] for name in (used & set(homes)) - reachable() - facts - faces}
    assert hidden == {}
    assert len(used & reachable()) > 30


def test_every_public_name_can_be_had_and_is_loaded_late() -> None:
    for name in ps.__all__:
        assert getattr(ps, name) is not None, name
    code = "import sys, penstock; print([m for m in sys.modules if m.startswith('penstock.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_names_that_are_not_public_are_refused_with_those_that_are() -> None:
    with pytest.raises(AttributeError, match=r"penstock has no 'StreamBuilder'; public names: .*StreamsBuilder"):
        ps.StreamBuilder  # type: ignore[attr-defined]  # noqa: B018  # that it is missing is the test
