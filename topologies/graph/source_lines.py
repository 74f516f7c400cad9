"""Lines of the user's own code: where an operator was declared, and where a function raised.

A frame is the user's unless its module is Penstock's, Python's or an installed package's. Examples that ship with Penstock
count as the user's, since they are written as users write. Nothing is read from files: a frame knows its file and line.
"""

from __future__ import annotations

import inspect
from types import FrameType
from typing import Final, NamedTuple

FRAMES_MAX: Final = 8
"""How many frames of a traceback are kept, counted from where it was raised: a recursion has thousands."""
_OWN_PACKAGE: Final = "penstock"
_EXAMPLES: Final = "penstock.topologies.examples"
_STANDARD_LIBRARY: Final = inspect.__file__.rpartition("/")[0] + "/"
_INSTALLED: Final = ("/site-packages/", "/dist-packages/")


class SourceLine(NamedTuple):
    """One line of code, in the function that it belongs to; ``str`` gives ``FILE:LINE in FUNCTION``."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"


def declared_at() -> str | None:
    """``FILE:LINE`` of the innermost line of user code that led to this call; ``None`` where all callers are others."""
    frame = inspect.currentframe()
    while frame is not None:
        if _is_users(frame):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return None


def raised_at(error: BaseException) -> tuple[SourceLine, ...]:
    """The user's lines of a traceback, from the outermost to where it was raised, at most ``FRAMES_MAX``. The cause's come
    first where an error was raised from another one. Without any, those of installed packages: an application may be one."""
    users: list[SourceLine] = []
    installed: list[SourceLine] = []
    step: BaseException | None = error
    while step is not None:
        own, packages = _lines(step)
        users[:0], installed[:0] = own, packages
        step = step.__cause__
    return tuple((users or installed)[-FRAMES_MAX:])


def _lines(error: BaseException) -> tuple[list[SourceLine], list[SourceLine]]:
    """The user's lines of one traceback, and those of installed packages."""
    users: list[SourceLine] = []
    installed: list[SourceLine] = []
    traceback = error.__traceback__
    while traceback is not None:
        frame = traceback.tb_frame
        found = SourceLine(frame.f_code.co_filename, traceback.tb_lineno, frame.f_code.co_qualname)
        if _is_users(frame):
            users.append(found)
        elif not _is_penstocks(frame) and any(part in found.file for part in _INSTALLED):
            installed.append(found)
        traceback = traceback.tb_next
    return users, installed


def _is_penstocks(frame: FrameType) -> bool:
    module = str(frame.f_globals.get("__name__", ""))
    if f"{module}.".startswith(f"{_EXAMPLES}."):
        return False
    return f"{module}.".startswith(f"{_OWN_PACKAGE}.")


def _is_users(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    others = file.startswith(("<frozen", _STANDARD_LIBRARY)) or any(part in file for part in _INSTALLED)
    return not others and not _is_penstocks(frame)
