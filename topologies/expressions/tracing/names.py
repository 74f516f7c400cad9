"""The names that a function reads besides its arguments, and whether they still mean the same."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import FunctionType
from typing import Any, NamedTuple, cast

from penstock.state.serdes.record_classes import record_class
from penstock.topologies.expressions.tracing.meanings import KINDS, Callee, Constant, Meaning, Untraceable

_PLAIN = (*KINDS, type(None))
BUILTINS = (len, abs, min, max, str, float, int, bool)


class _ABSENT:
    """Stands for a name that is not there."""


class Place(NamedTuple):
    """Where a name is looked up: ``global``, ``cell``, ``default``, ``builtin``, or ``keyword`` of ``functools.partial``."""

    of: str
    name: str


def function_of(fn: Any) -> FunctionType | None:
    """The function, or that of ``functools.partial``; ``None`` for anything else."""
    found = fn.func if type(fn) is functools.partial else fn
    return found if type(found) is FunctionType else None


class NamesOfFunction:
    """Looks up a function's names, and keeps what it has found. ``given``: the function, or a ``partial`` of it."""

    def __init__(self, fn: FunctionType, given: Any) -> None:
        self._fn = fn
        self._given = given
        self.found: dict[Place, Any] = {}
        """The names that were read, and what they meant."""

    def meaning(self, name: str) -> Meaning:
        """Return what a name means. Raises ``Untraceable`` unless that is a constant, a builtin, or a class of records."""
        held = self._read(Place("cell" if name in self._fn.__code__.co_freevars else "global", name))
        where = "the global"
        if name in self._fn.__code__.co_freevars:
            where = "the variable"
        elif held is _ABSENT:
            held = self._read(Place("builtin", name))
            where = "the builtin"
        if held is _ABSENT:
            raise Untraceable(f"it reads {name}, which has no value yet")
        return self._known(held, name, where)

    def default(self, name: str) -> Meaning:
        """Return what a parameter means that has a default value."""
        return self._known(self._read(Place("default", name)), name, "the default value of")

    def bound(self) -> tuple[list[Meaning], dict[str, Meaning]]:
        """The arguments that ``functools.partial`` gives."""
        if self._given is self._fn:
            return [], {}
        where = "the bound argument"
        return (
            [self._known(held, str(i), where) for i, held in enumerate(self._given.args)],
            {name: self._known(self._read(Place("keyword", name)), name, where) for name in self._given.keywords},
        )

    def _read(self, place: Place) -> Any:
        held = self.found[place] = read(self._given, place)
        return held

    def _known(self, held: Any, name: str, where: str) -> Meaning:
        if is_plain(held):
            return Constant(held)
        if any(held is b for b in BUILTINS) or (isinstance(held, type) and record_class(held) is not None):
            return Callee(name, held)
        what = f"calls {name}" if callable(held) else f"reads {where} {name}, a {type(held).__name__}, which may change"
        raise Untraceable(f"it {what}")


def is_plain(held: Any) -> bool:
    """Whether it is a plain constant, or a tuple or frozenset of such."""
    if type(held) in (tuple, frozenset):
        return all(type(part) in _PLAIN for part in held)
    return type(held) in _PLAIN


def read(given: Any, place: Place) -> Any:
    """Return what is there now."""
    fn = function_of(given)
    assert fn is not None
    if place.of == "keyword":
        return given.keywords.get(place.name, _ABSENT)
    if place.of == "global":
        return fn.__globals__.get(place.name, _ABSENT)
    if place.of == "builtin":
        builtins: dict[str, Any] = cast(Any, fn).__builtins__  # mypy finds it or not, as its cache has it
        return builtins.get(place.name, _ABSENT)
    if place.of == "cell":
        try:
            return (fn.__closure__ or ())[fn.__code__.co_freevars.index(place.name)].cell_contents
        except ValueError:  # it is not bound yet
            return _ABSENT
    names = fn.__code__.co_varnames[: fn.__code__.co_argcount]
    defaults = fn.__defaults__ or ()
    return dict(zip(names[len(names) - len(defaults) :], defaults, strict=True)).get(place.name, _ABSENT)


def unchanged(fn: Any, found: Mapping[Place, Any]) -> bool:
    """Whether each name is what it was found to be."""
    return all(_same(read(fn, place), held) for place, held in found.items())


def _same(now: Any, held: Any) -> bool:
    if now is held:
        return True
    # equal copies of a constant, as in another process, are as good
    return type(now) is type(held) and is_plain(held) and _shape(now) == _shape(held)


def _shape(held: Any) -> Any:
    if isinstance(held, tuple):
        return tuple(map(_shape, held))
    return frozenset(map(_shape, held)) if isinstance(held, frozenset) else (type(held), repr(held))
