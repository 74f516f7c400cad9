"""The source text of one generated function: its lines, its constants by name, and what its variables are known to be.

No text of a user enters the source. Constants are bound by name, and an attribute is only written out if its name is an
ASCII identifier; others are read by ``getattr`` with a bound name.
"""

from __future__ import annotations

import functools
import keyword
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from types import CodeType
from typing import Any

DEPTH_MAX = 60
"""Python refuses text that is indented 100 times."""


class TooDeepError(Exception):
    """The function would need more nested blocks than Python takes."""


class PythonSource:
    """Builds one function. Every variable is set once on every path, so what is known of it holds everywhere."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._names: dict[int, str] = {}
        self.constants: dict[str, Any] = {}
        """The objects behind the names ``c0``, ``c1`` …"""
        self._known: list[dict[Hashable, str]] = [{}]
        """The expressions computed so far, innermost block last: a variable is only visible where it was set."""
        self._count = 0
        self.never_null: set[str] = set()
        """Variables and constants that cannot be ``None``."""

    def line(self, text: str) -> None:
        """Add a line to the current block."""
        self._lines.append(f"{' ' * (len(self._known) + 1)}{text}")

    def variable(self) -> str:
        """A new variable's name."""
        self._count += 1
        return f"t{self._count}"

    def bound(self, value: Any) -> str:
        """The name of a constant; one object has one name."""
        name = self._names.get(id(value))
        if name is None:
            name = self._names[id(value)] = f"c{len(self.constants)}"
            self.constants[name] = value
        return name

    @contextmanager
    def block(self) -> Iterator[None]:
        """The lines of an indented block."""
        if len(self._known) > DEPTH_MAX:
            raise TooDeepError
        self._known.append({})
        yield
        self._known.pop()

    def known(self, key: Hashable) -> str | None:
        """The variable that holds what ``remember`` was given this key for, if it is set here."""
        return next((found[key] for found in reversed(self._known) if key in found), None)

    def remember(self, key: Hashable, name: str) -> str:
        """Note what a variable holds, for the rest of the current block."""
        self._known[-1][key] = name
        return name

    def attribute(self, owner: str, name: str) -> str:
        """The text that reads an attribute."""
        if is_plain_name(name):
            return f"{owner}.{name}"
        return f"getattr({owner}, {self.bound(name)})"

    def function(
        self, parameters: str, result: str, reference: Callable[..., Any], start: Callable[[str], list[str]]
    ) -> Callable[..., Any]:
        """Compile the function. ``start(again)``: lines before all others, ``again`` leaves the row to the reference. Where
        a line raises, the result is that of ``reference``, which takes the same parameters: it raises what users see."""
        again = f"return {self.bound(reference)}({parameters})"
        body = "\n".join([*(f"  {text}" for text in start(again)), *self._lines, f"  return {result}"])
        text = f"def run({parameters}):\n try:\n{body}\n except Exception:\n  pass\n {again}\n"
        names = dict(self.constants)
        exec(_compiled(text), names)
        made: Callable[..., Any] = names["run"]
        return made


@functools.lru_cache(maxsize=1_000)
def _compiled(text: str) -> CodeType:
    return compile(text, "<expression>", "exec")


def is_plain_name(name: str) -> bool:
    """Whether the name can be written into a source as it is."""
    return name.isascii() and name.isidentifier() and not keyword.iskeyword(name) and not name.startswith("__")
