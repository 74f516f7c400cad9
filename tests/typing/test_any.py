"""How much of the public interface type checkers know nothing about: the ``Any`` in its signatures, counted.

The ceiling only goes down. The ``Any`` of ``dict[str, Any]``, of untyped JSON, counts like every other, and so does an alias
that holds one, and a generic class without its parameters. Of an overloaded function its overloads count, not the
implementation.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, get_overloads, overload

import penstock as ps

CEILING = 100
NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_.]*)(\[?)")


def functions_of(owner: object) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The public functions of a public name: itself, a module's, or a class's methods and properties, with those of its
    bases in penstock."""
    if inspect.isfunction(owner):
        yield owner.__qualname__, owner
    elif isinstance(owner, ModuleType):
        for name in getattr(owner, "__all__", None) or vars(owner):
            if not name.startswith("_") and getattr(vars(owner)[name], "__module__", "").startswith("penstock."):
                yield from functions_of(vars(owner)[name])
    elif inspect.isclass(owner):
        for cls in owner.__mro__:
            if cls.__module__.startswith("penstock."):
                for name, found in vars(cls).items():
                    found = found.fget if isinstance(found, property) else getattr(found, "__func__", found)
                    if inspect.isfunction(found) and (not name.startswith("_") or name == "__init__"):
                        yield found.__qualname__, found


def signatures(fn: Callable[..., Any]) -> list[Callable[..., Any]]:
    """The function, or its overloads."""
    return list(get_overloads(fn)) or [fn]


@functools.cache
def holds_any(name: str, module: str, *, bare: bool) -> bool:
    """Whether a name of a module is ``Any``, an alias of something with it, or a generic class without parameters."""
    if name in ("Any", "typing.Any"):
        return True
    name = name.rpartition(".")[2]
    found = vars(sys.modules[module]).get(name, getattr(ps, name, None))
    if inspect.isclass(found):
        return bare and bool(getattr(found, "__parameters__", ()))
    return not inspect.isfunction(found) and re.search(r"\bAny\b", repr(found)) is not None


def any_in(fn: Callable[..., Any]) -> int:
    """How often a signature says ``Any``."""
    texts = [str(a) for a in fn.__annotations__.values()]
    found = (match for text in texts for match in NAME.findall(text))
    return sum(holds_any(name, fn.__module__, bare=not bracket) for name, bracket in found)


def counted() -> Counter[str]:
    """By public function: how often its signatures say ``Any``."""
    found = {qualname: fn for name in ps.__all__ for qualname, fn in functions_of(getattr(ps, name))}
    return Counter({q: sum(map(any_in, signatures(fn))) for q, fn in found.items()})


def test_few_public_signatures_say_any() -> None:
    found = counted()
    worst = "\n".join(f"{n:3} {name}" for name, n in found.most_common() if n)
    assert found.total() < CEILING, f"{found.total()} of at most {CEILING}\n{worst}"
    assert len(found) > 300, "what is counted is not the whole interface"


Alias = Callable[[Any], int]


@overload
def planted(a: Any) -> int: ...


@overload
def planted(a: str, b: dict[str, Any]) -> Any: ...


def planted(a: Any, b: Any = None) -> Any:
    return a


def with_alias(fn: Alias, other: Callable[..., Any]) -> None: ...


def with_bare(stream: ps.KStream, table: ps.KTable[str, int]) -> None: ...


def test_planted_ones_are_counted() -> None:
    assert [any_in(fn) for fn in signatures(planted)] == [1, 2]
    assert any_in(with_alias) == 2
    assert any_in(with_bare) == 1
