"""House rules that a machine can hold: sizes, comments, imports, and a README whose map is true.

The limits only tighten. Each rule is also run on planted offences, so that one that stopped looking fails.
"""

from __future__ import annotations

import ast
import io
import re
import textwrap
import tokenize
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("state", "topologies", "streams", "native", "tests", "benchmarks", "demo", "docker", "docs", "deploy")
FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70
HISTORY = re.compile(
    r"""(?<!\w)\#\d+\b                                          # a ticket by its number
      | \b(issue|ticket|PR|pull\ request|MR)\s+\#?\d+
      | \bthis\ (PR|pull\ request|patch|ticket|refactoring)\b
      | \b(TODO|FIXME|XXX|HACK)\b
      | \bwe\ (now|used\ to)\b | \bas\ (discussed|requested|agreed)\b
      | \bin\ (an\ earlier|a\ previous)\ version\b
    """,
    re.VERBOSE,
)
EXEMPTION_WITHOUT_REASON = re.compile(r"#\s*(noqa(:[\s\w,]*)?|type:\s*ignore(\[[^\]]*\])?)\s*$")


def sources() -> list[Path]:
    """Every Python file of the project."""
    found = [path for room in ROOMS for path in (ROOT / room).rglob("*.py")]
    return sorted(path for path in [*found, ROOT / ".package/penstock/__init__.py"] if "__pycache__" not in path.parts)


class Facts(NamedTuple):
    """What the rules look at in one file, without its tree, which is large. ``prose``: comments and docstrings with their
    first lines' numbers."""

    functions: list[tuple[str, int]]
    relative_imports: list[int]
    docstring: bool
    prose: list[tuple[int, str]]


@cache
def facts(text: str) -> Facts:
    """Read a file once for all rules."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    found = Facts([], [], True, [(t.start[0], t.string) for t in tokens if t.type == tokenize.COMMENT])
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.functions.append((node.name, (node.end_lineno or node.lineno) - node.lineno + 1))
        elif isinstance(node, ast.ImportFrom) and node.level:
            found.relative_imports.append(node.lineno)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and (
            docstring := ast.get_docstring(node)
        ):
            found.prose.append((getattr(node, "lineno", 1), docstring))
    return found._replace(docstring=ast.get_docstring(tree) is not None)


def too_long(text: str) -> Iterator[str]:
    """The file's and its functions' lengths in lines, where above the limit."""
    if (lines := text.count("\n")) > FILE_LINES_MAX:
        yield f"{lines} lines, at most {FILE_LINES_MAX}: split it by subject"
    for name, lines in facts(text).functions:
        if lines > FUNCTION_LINES_MAX:
            yield f"{name} has {lines} lines, at most {FUNCTION_LINES_MAX}"


def missing_docstring(text: str) -> Iterator[str]:
    """A module without a docstring."""
    if not facts(text).docstring:
        yield "the module has no docstring: say what it holds and promises"


def relative_imports(text: str) -> Iterator[str]:
    """Imports that begin with a dot."""
    for line in facts(text).relative_imports:
        yield f"line {line}: import by the full name, penstock.…"


def history(text: str) -> Iterator[str]:
    """Comments that tell how the code came to be instead of why it is so."""
    for line, words in facts(text).prose:
        if found := HISTORY.search(words):
            yield f"line {line}: {found[0]!r} is history or a postponement; say why, or do it"


def bare_exemptions(text: str) -> Iterator[str]:
    """Linter exemptions with no reason beside them."""
    for line, words in facts(text).prose:
        if found := EXEMPTION_WITHOUT_REASON.search(words):
            yield f"line {line}: {found[0]!r} needs its reason after it, as '…  # why'"


def broken_texts(text: str) -> Iterator[str]:
    """Texts over several lines with a piece of a word or two between whole lines, as a machine wraps them."""
    lines = text.splitlines()
    for number, (before, line, after) in enumerate(zip(lines, lines[1:], lines[2:], strict=False), 2):
        begins = all(re.match(r'\s*f?"', one) for one in (before, line, after))
        if begins and before.endswith('"') and re.fullmatch(r'\s*f?"[^"{}\\]{0,24} "', line):
            yield f"line {number}: {line.strip()} is a piece of a text; wrap the whole text again"


def patched_clocks(text: str) -> Iterator[str]:
    """Tests that replace a function of ``time`` for the whole process, threads that other tests have left included."""
    for number, line in enumerate(text.splitlines(), 1):
        if re.search(r"""setattr\((time,|["'][\w.]*\.time\.)""", line):
            yield f"line {number}: import the function by its name where it is used, and replace that name"


RULES: list[Callable[[str], Iterator[str]]] = [
    too_long,
    missing_docstring,
    relative_imports,
    history,
    bare_exemptions,
    broken_texts,
    patched_clocks,
]


def test_rust_files_are_short() -> None:
    found = [path for path in (ROOT / "native").rglob("*.rs") if "target" not in path.parts]
    assert len(found) > 20, "the files of native/ were not found"
    lines = {str(path.relative_to(ROOT)): path.read_text().count("\n") for path in found}
    assert {path: count for path, count in lines.items() if count > FILE_LINES_MAX} == {}


@pytest.mark.parametrize("rule", RULES)
def test_sources_keep_the_rule(rule: Callable[[str], Iterator[str]]) -> None:
    found = [f"{path.relative_to(ROOT)}: {fault}" for path in sources() for fault in rule(path.read_text())]
    assert found == [], "\n".join(found)


PLANTED = [
    (too_long, "x = 1\n" * (FILE_LINES_MAX + 1)),
    (too_long, "def f():\n" + "    x = 1\n" * FUNCTION_LINES_MAX),
    (too_long, "class C:\n    async def f():\n" + "        x = 1\n" * FUNCTION_LINES_MAX),
    (missing_docstring, "x = 1\n"),
    (relative_imports, "def f():\n    from . import x\n"),
    (history, "x = 1  # as asked in #" + "123\n"),
    (history, "def f():\n    '''Since pull request " + "7 it is quick.'''\n"),
    (history, "# TO" + "DO: later\n"),
    (bare_exemptions, "import os  # no" + "qa: F401\n"),
    (broken_texts, 'raise E(\n    "no space is left on the disk, "\n    f"so "\n    "free some"\n)\n'),
    (patched_clocks, "monkeypatch.setattr" + "(time, 'sleep', pauses.append)\n"),
    (patched_clocks, "monkeypatch.setattr" + "('penstock.streams.http_sink.time.sleep', pauses.append)\n"),
    (bare_exemptions, "x: int = ''  # type: " + "ignore[assignment]\n"),
]


@pytest.mark.parametrize(("rule", "text"), PLANTED)
def test_rule_finds_a_planted_offence(rule: Callable[[str], Iterator[str]], text: str) -> None:
    assert len(list(rule(text))) == 1


def test_rules_pass_clean_code() -> None:
    text = textwrap.dedent('''
        """What it holds: the commit of one task, position 12 of a batch."""

        import os  # noqa: F401  # re-exported for callers

        COLOUR = "#333333"  # the unit of an issue date is days
    ''')
    assert [fault for rule in RULES for fault in rule(text)] == []


def logic(text: str) -> Iterator[str]:
    """Statements of an ``__init__.py`` other than docstring, imports, assignments and the lazy-name hooks."""
    plain = ast.Expr | ast.Import | ast.ImportFrom | ast.Assign | ast.AnnAssign
    for node in ast.parse(text).body:
        hook = isinstance(node, ast.FunctionDef) and node.name in {"__getattr__", "__dir__"}
        typing_only = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        if not (isinstance(node, plain) or hook or typing_only):
            yield f"line {node.lineno}: __init__.py holds names, not logic"


def test_packages_hold_no_logic() -> None:
    assert len(list(logic("for x in y:\n    pass\n\ndef f(): ...\n"))) == 2
    found = [
        f"{path.relative_to(ROOT)}: {fault}"
        for path in sources()
        if path.name == "__init__.py"
        for fault in logic(path.read_text())
    ]
    assert found == [], "\n".join(found)


def named_paths(markdown: str) -> set[str]:
    """Paths inside the repository that a text names, in backquotes or as link targets.

    What a command makes (``.venv/``, ``var/``) is left out.
    """
    quoted = re.findall(r"`([\w.-]+(?:/[\w.*-]+)*/?)`", markdown)
    linked = [target.split("#")[0] for target in re.findall(r"\]\(([^)\s]+)\)", markdown) if "://" not in target]
    paths = {name for name in quoted if "/" in name} | {name for name in linked if name}
    return {name for name in paths if not name.startswith((".venv/", "var/"))}


def test_paths_named_in_the_readme_exist() -> None:
    assert named_paths("`a/b.py` `x` `make` [l](c.md#d) [w](https://e.org) `.venv/bin/x`") == {
        "a/b.py",
        "c.md",
    }
    named = named_paths((ROOT / "README.md").read_text())
    assert {f"{room}/" for room in ROOMS} <= named, "the map of the README names every room"
    assert [name for name in sorted(named) if not list(ROOT.glob(name.rstrip("/")))] == []


def test_make_targets_named_in_the_readme_exist() -> None:
    named = set(re.findall(r"`make ([a-z]+)", (ROOT / "README.md").read_text()))
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert named >= {"demo", "test"}
    assert named <= targets
