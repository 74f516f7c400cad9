"""ARCHITECTURE.md is true: every name in it is defined in the file that its link leads to."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\[`([A-Za-z_][\w.]*)`\]\(([\w./]+\.py)\)")
PAGES = ["ARCHITECTURE.md", "CONTRIBUTING.md"]


@cache
def defined(path: Path) -> frozenset[str]:
    """Names of a module: its own, and ``Class.member``; and the module's."""
    found = {path.stem}
    for node in ast.parse(path.read_text()).body:
        found |= names_of(node)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{name}" for member in node.body for name in names_of(member)}
    return frozenset(found)


def names_of(node: ast.stmt) -> set[str]:
    """The names that a statement binds."""
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return {t.id for t in targets if isinstance(t, ast.Name)}


def broken(text: str) -> list[str]:
    """Links whose file is absent or lacks the name."""
    wrong = []
    for name, place in LINK.findall(text):
        path = ROOT / place
        if not path.is_file():
            wrong.append(f"{name}: {place} does not exist")
        elif name not in defined(path):
            wrong.append(f"{name}: not in {place}")
    return wrong


@pytest.mark.parametrize("page", PAGES)
def test_names_are_where_their_links_lead(page: str) -> None:
    assert broken((ROOT / page).read_text()) == []


def test_the_architecture_names_the_parts() -> None:
    assert len(LINK.findall((ROOT / "ARCHITECTURE.md").read_text())) > 50


@pytest.mark.parametrize(
    ("planted", "said"),
    [
        ("[`Task.fly`](streams/task/task.py)", "not in streams/task/task.py"),
        ("[`Task`](streams/task/absent.py)", "does not exist"),
    ],
)
def test_a_wrong_link_is_found(planted: str, said: str) -> None:
    (wrong,) = broken(planted)
    assert said in wrong
