"""Phrases that an English-speaking engineer would not write, counted. The ceilings only go down.

Looked at: docstrings, comments and messages of the product, its documents, and the compiled part.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PRODUCT = ("state", "streams", "topologies", ".package/penstock")
LOOKED_AT = ("state/**/*.py", "streams/**/*.py", "topologies/**/*.py", "native/src/**/*.rs", "*.md")

PHRASES: dict[str, tuple[str, int]] = {
    r"(?<![Tt]here )\b(is|are) no (?!longer\b|more\b|further\b)[a-z]+": ("is not a …, or: there is no …", 0),
    r"\bmend(s|ed|ing)?\b": ("fix, repair", 0),
    r"\banew\b": ("again, from scratch", 0),
    r"\bwho(so)?ever\b": ("what, the caller, any …", 0),
    r"\bthereby\b": ("so", 0),
    r"\bat hand\b": ("current, available", 0),
    r"\b(is|are|was|were|be) told\b": ("gets, is notified, is reported", 0),
    r"\bmakes? known\b": ("announces", 0),
    r"\bof one who\b": ("of someone who", 0),
    r"\bbeside\b": ("next to, with, besides", 0),
    r"\bso (many|long)\b": ("this many, for that time", 0),
    r"\bheard\b": ("has consumers, received", 0),
    r"\breckons?\b": ("computes, expects", 0),
    r"\bthe begin\b": ("the beginning", 0),
    r"\bbr(ings?|ought) about\b": ("causes", 0),
    r"\bsomebody\b": ("someone, a consumer", 0),
    r"\bfor ever\b": ("forever", 0),
    r"\bput(s|ting)? aside\b": ("quarantined, sent to the dead letter topic", 0),
    r"\bg(i|a)ves? way\b": ("stops, is replaced", 0),
    r"\bmade again\b": ("recreated, repeated", 0),
    r"\b(is|are|was|were) to be\b": ("must be, or the plain verb", 0),
    r"\b(is|are|was) asked for\b": ("is requested", 0),
    r"\bbut for\b": ("except for", 0),
    r"\bin place of\b": ("instead of", 0),
    r"\b(functions?|error|class|line|topic)s? of the user's\b": ("a user's function", 0),
    r"\blets? go\b": ("releases", 0),
    r"\b[Tt]o be called\b": ("Call it …", 0),
    r"\bnone any more\b": ("no longer one", 0),
    r"\bgoes aside\b": ("is quarantined", 0),
    r"\bin front of\b": ("before", 0),
    r"\bso often\b": ("this often", 0),
    r"\btime-outs?\b": ("timeout", 0),
    r"\bis there already\b": ("already exists", 0),
    r"\b[Hh]ands? on\b": ("passes on", 0),
    r"\btaken? out again\b": ("subtracted, removed", 0),
}
"""Pattern: (write instead, most that there may be)."""


def texts() -> dict[str, str]:
    """What is looked at, by path. ``CONTRIBUTING.md`` quotes the words, and ``CHANGELOG.md`` is history."""
    paths = {path for pattern in LOOKED_AT for path in ROOT.glob(pattern)}
    skipped = {"CONTRIBUTING.md", "CHANGELOG.md"}
    return {str(path.relative_to(ROOT)): path.read_text() for path in sorted(paths) if path.name not in skipped}


def found(pattern: str, pages: dict[str, str]) -> list[str]:
    """Where a phrase stands."""
    return [
        f"{name}:{number}: {line.strip()}"
        for name, text in pages.items()
        for number, line in enumerate(text.splitlines(), 1)
        if re.search(pattern, line)
    ]


@pytest.mark.parametrize("pattern", PHRASES)
def test_phrases_do_not_grow(pattern: str) -> None:
    instead, ceiling = PHRASES[pattern]
    places = found(pattern, texts())
    listed = "\n".join(places[:40])
    assert len(places) <= ceiling, f"{len(places)} places, at most {ceiling}; write: {instead}\n{listed}"


def test_a_planted_phrase_is_found() -> None:
    assert found(r"\banew\b", {"a.py": "x = 1\n# opened anew\n"}) == ["a.py:2: # opened anew"]


HALF_SENTENCES = re.compile(r"(What|Of|The same|And)\b")


def half_sentences(source: str) -> list[str]:
    """Docstrings, those behind assignments too, that begin in the middle of a sentence."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            text = node.value.value.strip()
            if HALF_SENTENCES.match(text):
                found.append(f"line {node.lineno}: {text[:60]}")
    return found


def test_docstrings_begin_with_a_verb_or_a_noun() -> None:
    paths = [path for room in PRODUCT for path in (ROOT / room).rglob("*.py") if not path.is_symlink()]
    faults = [
        f"{path.relative_to(ROOT)}: {fault}" for path in sorted(paths) for fault in half_sentences(path.read_text())
    ]
    assert faults == [], "\n".join(faults)


def test_a_planted_half_sentence_is_found() -> None:
    source = 'def f():\n    """What it does."""\nX = 1\n"""Of all."""\nY = "What"\n"""Whatever may come."""\n'
    assert half_sentences(source) == ["line 4: Of all.", "line 2: What it does."]


def types_defined_twice(modules: Mapping[str, str]) -> dict[str, list[str]]:
    """Public names of types that more than one module defines, and those modules: classes anywhere, and aliases of a
    module. Constants are written in capitals. ``modules``: their source by path."""
    places: dict[str, set[str]] = defaultdict(set)
    for path, source in modules.items():
        tree = ast.parse(source)
        found = [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
        for node in tree.body:
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            found += [target.id for target in targets if isinstance(target, ast.Name)]
        for name in found:
            if re.fullmatch(r"[A-Z]\w*[a-z]\w*", name):
                places[name].add(path)
    return {name: sorted(paths) for name, paths in sorted(places.items()) if len(paths) > 1}


def test_a_public_type_name_has_one_meaning() -> None:
    paths = [path for room in PRODUCT for path in (ROOT / room).rglob("*.py") if not path.is_symlink()]
    modules = {str(path.relative_to(ROOT)): path.read_text() for path in paths}
    assert len(modules) > 400
    assert types_defined_twice(modules) == {}


def test_a_planted_second_meaning_is_found() -> None:
    modules = {
        "a.py": "class Lease: ...\nLIMIT_S = 1",
        "b.py": "if True:\n    class Lease: ...",
        "c.py": "class _Lease: ...",
        "d.py": "Key = bytes\nT = 1\nLIMIT_S = 2",
        "e.py": "Key: TypeAlias = str\nT = 2",
    }
    assert types_defined_twice(modules) == {"Lease": ["a.py", "b.py"], "Key": ["d.py", "e.py"]}
