"""Loading a topology from where it is: ``module:name``, ``path/to/file.py:name``, a function, a builder."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from penstock.state.errors import TopologyError
from penstock.topologies.graph import Topology


def load_topology(ref: Any) -> Topology:
    """The topology behind a reference: a ``Topology``, something with ``build()``, a function that returns either, or
    the name of one of these. In a name, what follows the colon may be left out when it is ``topology`` or ``build``.
    Raises ``TopologyError`` that says what was found instead."""
    found = _named(ref) if isinstance(ref, str) else ref
    if callable(found) and not hasattr(found, "build"):
        found = found()
    if not isinstance(found, Topology) and callable(getattr(found, "build", None)):
        found = found.build()
    if isinstance(found, Topology):
        return found
    raise TopologyError(f"{ref!r:.100} gives a {type(found).__name__}; it must give a Topology or a builder")


def _named(ref: str) -> Any:
    place, _, name = ref.partition(":")
    names = [name] if name else ["topology", "build"]
    module = _module(place)
    for candidate in names:
        if hasattr(module, candidate):
            return getattr(module, candidate)
    raise TopologyError(f"{place} has no {' or '.join(names)}; name the topology as MODULE:NAME")


def _module(place: str) -> ModuleType:
    """A module by name, also from the folder that the process was started in, or by file."""
    if str(Path.cwd()) not in sys.path and "" not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return _from_file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
    except (ImportError, ValueError, OSError) as exc:
        raise TopologyError(
            f"{place!r} cannot be loaded: {exc}; run the command where the module lies, or install it, and name the "
            "topology as MODULE:NAME"
        ) from exc


def _from_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module
