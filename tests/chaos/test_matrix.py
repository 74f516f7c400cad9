"""The page of the matrix is true: no case is missing, and every test that it names exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = Path(__file__).with_name("MATRIX.md")
SIZES = {"P": 9, "B": 8, "N": 8, "S": 9, "D": 7, "O": 6, "K": 1, "J": 8, "M": 1}
CASES = [f"{letter}{n}" for letter, size in SIZES.items() for n in range(1, size + 1)]
_NAMED = re.compile(r"`((?:tests|streams/testing)/[\w/]+\.py)(?:::(\w+))?`")


def rows(text: str) -> dict[str, list[str]]:
    """The cells behind the name of each case."""
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| ")
    ]
    return {cells[0]: cells[1:] for cells in lines if re.fullmatch(r"[A-Z]\d+", cells[0])}


def missing(text: str) -> list[str]:
    """What the page names and the tree does not have."""
    out = []
    for path, test in _NAMED.findall(text):
        file = ROOT / path
        if not file.is_file():
            out.append(path)
        elif test and test not in functions(file):
            out.append(f"{path}::{test}")
    return out


def functions(file: Path) -> set[str]:
    """The names of a module's functions and of its classes' methods."""
    return {node.name for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.FunctionDef)}


def test_every_case_has_a_row_with_its_tests_or_says_that_it_has_none() -> None:
    found = rows(PAGE.read_text())
    assert sorted(found) == sorted(CASES)
    for case, cells in found.items():
        assert len(cells) == 5, case
        assert _NAMED.search(cells[3]) or "none yet" in cells[3], case


def test_every_test_that_is_named_exists() -> None:
    assert missing(PAGE.read_text()) == []


def test_every_case_of_this_folder_is_on_the_page() -> None:
    named = {test for _, test in _NAMED.findall(PAGE.read_text())}
    for name in (
        "test_brokers",
        "test_lost_tails",
        "test_network",
        "test_scaling",
        "test_security",
        "test_processes",
        "test_disks",
    ):
        tests = {test for test in functions(Path(__file__).with_name(f"{name}.py")) if test.startswith("test_")}
        assert tests <= named, tests - named


def test_what_is_not_there_is_missed() -> None:
    assert missing("`tests/chaos/none.py`, `tests/chaos/test_matrix.py::test_none`, `tests/chaos/test_matrix.py`") == [
        "tests/chaos/none.py",
        "tests/chaos/test_matrix.py::test_none",
    ]
