"""Loading a topology from where it is: ``module:name``, ``path/to/file.py:name``, a function, a builder."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import sysconfig
import traceback
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from penstock.state.errors import PenstockError, TopologyError
from penstock.topologies.functions import refused_arguments
from penstock.topologies.graph.topology import Topology

_LIBRARIES = (
    *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")),
    str(Path(__file__).parents[1]),
)
"""The folders of what is not the user's."""


def load_topology(ref: Any) -> Topology:
    """The topology behind a reference: a ``Topology``, something with ``build()``, a function that returns either, or
    the name of one of these. In a name, what follows the colon may be left out when it is ``topology`` or ``build``.
    Raises ``TopologyError`` that says what was found instead, or, with the line of user code, what is wrong with it."""
    found = _named(ref) if isinstance(ref, str) else ref
    try:
        if callable(found) and not hasattr(found, "build"):
            found = found()
        if not isinstance(found, Topology) and callable(getattr(found, "build", None)):
            found = found.build()
    except TopologyError as exc:
        raise _with_line(exc) from exc
    if isinstance(found, Topology):
        return found
    raise TopologyError(f"{ref!r:.100} gives a {type(found).__name__}; it must give a Topology or a builder")


def load_named(ref: str) -> Any:
    """Load what ``MODULE:NAME`` names, such as a class or a serde. Raises ``TopologyError`` where there is none."""
    place, _, name = ref.partition(":")
    module = _module(place)
    if not hasattr(module, name):
        raise TopologyError(f"{place} has no {name}; correct the name after the colon")
    return getattr(module, name)


def _named(ref: str) -> Any:
    place, _, name = ref.partition(":")
    names = [name] if name else ["topology", "build"]
    module = _module(place)
    for candidate in names:
        if hasattr(module, candidate):
            return getattr(module, candidate)
    there = [name for name, value in vars(module).items() if not name.startswith("_") and _may_be(value, module)]
    raise TopologyError(
        f"{place} has no {' or '.join(names)}; name the topology as MODULE:NAME"
        + (f", where NAME is one of: {', '.join(there)}" if there else "")
    )


def _may_be(value: Any, module: ModuleType) -> bool:
    """Whether it may be a topology: one, a builder, or a function of this module that needs no arguments."""
    if isinstance(value, FunctionType):
        return value.__module__ == module.__name__ and refused_arguments(value, ()) is None
    return not isinstance(value, type) and (isinstance(value, Topology) or callable(getattr(value, "build", None)))


def _module(place: str) -> ModuleType:
    """A module by name, also from the folder that the process was started in, or by file. Raises ``TopologyError`` where
    there is none, and, with the line of user code, where it raised something; Penstock's other errors pass."""
    if str(Path.cwd()) not in sys.path and "" not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return _from_file(Path(place)) if place.endswith(".py") else _by_name(place)
    except TopologyError as exc:
        raise _with_line(exc) from exc
    except PenstockError:
        raise
    except Exception as exc:
        raise TopologyError(
            f"module {place!r} raised while it was imported: {type(exc).__name__}: {_said(exc)} ({_own_line(exc)}); "
            "correct it there"
        ) from exc


def _by_name(place: str) -> ModuleType:
    if not place or place.startswith("."):
        raise _not_found(place, "that is not the name of a module")
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as exc:
        if exc.name is not None and f"{place}.".startswith(f"{exc.name}."):
            raise _not_found(place, str(exc)) from exc
        raise


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise _not_found(str(path), "there is no such file")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise _not_found(str(path), "it is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[path.stem]  # as Python does with one that it imports
        raise
    return module


def _not_found(place: str, why: str) -> TopologyError:
    return TopologyError(
        f"{place!r} cannot be found: {why}; run the command where the module lies, or install it, and name the topology as "
        "MODULE:NAME"
    )


def _with_line(exc: TopologyError) -> TopologyError:
    """The error with the line of user code that it is about, if there is one."""
    own = _own_frames(exc)
    return TopologyError(f"{exc} ({own[-1].filename}, line {own[-1].lineno})") if own else exc


def _said(exc: Exception) -> str:
    """Its text; that of a file that cannot be parsed without the place, which stands behind it."""
    return exc.msg if isinstance(exc, SyntaxError) else str(exc)


def _own_line(exc: Exception) -> str:
    """Where the user's code raised it; of a file that cannot be parsed, the line in it."""
    if isinstance(exc, SyntaxError) and exc.filename is not None:
        return f"{exc.filename}, line {exc.lineno}"
    frame = (_own_frames(exc) or traceback.extract_tb(exc.__traceback__))[-1]
    return f"{frame.filename}, line {frame.lineno}"


def _own_frames(exc: Exception) -> list[traceback.FrameSummary]:
    """The lines, from the outermost to the innermost, that are neither Python's nor a library's."""
    frames = traceback.extract_tb(exc.__traceback__)
    return [frame for frame in frames if not frame.filename.startswith(("<", *_LIBRARIES))]
