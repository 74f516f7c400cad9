"""The compiled part, where it was built: the one place that imports ``penstock_native``.

It is optional, and never changes an answer: whoever asks for it has a twin in Python. ``compiled()`` is asked at each use,
so that the choice holds for all of a process at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Literal, TypeAlias

from penstock.state.errors import EnvironmentFault

try:
    import penstock_native as _built
except ImportError:  # not built here, or for another machine
    _built = None  # type: ignore[assignment]  # the module is optional, its stub is not

INTERFACE = 7
"""Of the signatures that this version of Penstock calls; a module that has another number is not used."""

Choice: TypeAlias = Literal["auto", "off", "require"]


def why_not() -> str | None:
    """Why the compiled part cannot be used; ``None`` if it can."""
    if _built is None:
        return (
            "penstock_native is not there: install penstock from a wheel for this platform; in a checkout, install "
            "Rust 1.85 or newer and run make native"
        )
    found = getattr(_built, "INTERFACE", None)
    if found != INTERFACE:
        return f"penstock_native has interface {found}, not {INTERFACE}: run make native"
    return None


_FITTING: ModuleType | None = _built if why_not() is None else None
_in_use: list[ModuleType | None] = [_FITTING]


def choose(choice: Choice) -> None:
    """From now on: ``auto`` takes the compiled part if it fits, ``off`` never, ``require`` raises ``EnvironmentFault`` at
    once where it does not fit."""
    if choice == "require" and (missing := why_not()) is not None:
        raise EnvironmentFault(f"native='require', and {missing}; or set native='auto'")
    _in_use[0] = None if choice == "off" else _FITTING


def compiled() -> ModuleType | None:
    """The compiled part, if it is there, fits and is not turned off."""
    return _in_use[0]


@contextmanager
def without() -> Iterator[None]:
    """Where the compiled part is not in use, whatever was chosen. For checks, while nothing else runs."""
    before = _in_use[0]
    _in_use[0] = None
    try:
        yield
    finally:
        _in_use[0] = before
