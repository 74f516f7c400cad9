"""Access to the compiled part: the only module that imports ``penstock_native``.

The compiled part is optional and never changes an answer: every user of it has a Python twin. Call ``compiled()`` at
each use, so that the choice holds for the whole process at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Literal, TypeAlias

from penstock.state.errors import EnvironmentFault

try:
    import penstock_native as _built
except ImportError:  # not built, or built for another machine
    _built = None  # type: ignore[assignment]  # the module is optional, its stub is not

INTERFACE = 28
"""The number of the signatures that this version of Penstock calls; a module with another number is not used."""

Choice: TypeAlias = Literal["auto", "off", "require"]


def why_not() -> str | None:
    """Why the compiled part cannot be used; ``None`` if it can."""
    if _built is None:
        return (
            "penstock_native is not installed: install penstock from a wheel for this platform; in a checkout, install "
            "Rust 1.85 or newer and run make native"
        )
    found = getattr(_built, "INTERFACE", None)
    if found != INTERFACE:
        return f"penstock_native has interface {found}, not {INTERFACE}: run make native"
    return None


_FITTING: ModuleType | None = _built if why_not() is None else None
_in_use: list[ModuleType | None] = [_FITTING]


def choose(choice: Choice) -> None:
    """Choose from now on: ``auto`` uses the compiled part if it fits, ``off`` never does, ``require`` raises
    ``EnvironmentFault`` at once if it does not fit."""
    if choice == "require" and (missing := why_not()) is not None:
        raise EnvironmentFault(f"native='require', and {missing}; or set native='auto'")
    _in_use[0] = None if choice == "off" else _FITTING


def compiled() -> ModuleType | None:
    """The compiled part if it is installed, fits and is not turned off."""
    return _in_use[0]


@contextmanager
def without() -> Iterator[None]:
    """A context in which the compiled part is off, regardless of the choice. For checks, while nothing else runs."""
    before = _in_use[0]
    _in_use[0] = None
    try:
        yield
    finally:
        _in_use[0] = before
