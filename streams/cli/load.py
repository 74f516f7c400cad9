"""Loading a topology by name: ``MODULE:NAME``, or ``path/to/file.py:NAME``."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

from penstock.state.errors import TopologyError
from penstock.topologies.graph import Topology


def load_topology(target: str) -> Topology:
    """The topology that ``MODULE:NAME`` names: a ``Topology``, something with ``build()``, or a function that returns
    either. ``NAME`` may be left out when it is ``topology`` or ``build``. Raises ``TopologyError``."""
    module_name, _, name = target.partition(":")
    module = _module(module_name)
    candidates = [name] if name else ["topology", "build"]
    for candidate in candidates:
        if hasattr(module, candidate):
            return _built(getattr(module, candidate), target)
    raise TopologyError(f"{module_name} has no {' or '.join(candidates)}; name the topology as MODULE:NAME")


def _module(name: str) -> Any:
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    if name.endswith(".py"):
        path = Path(name)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        if spec is None or spec.loader is None or not path.exists():
            raise TopologyError(f"{name} is no Python file that can be read")
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
        return module
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as exc:
        raise TopologyError(
            f"no module {exc.name!r} can be imported from here; run the command where the module lies, or install it"
        ) from exc


def _built(value: Any, target: str) -> Topology:
    if callable(value) and not hasattr(value, "build"):
        value = value()
    if not isinstance(value, Topology) and hasattr(value, "build"):
        value = value.build()
    if not isinstance(value, Topology):
        raise TopologyError(
            f"{target} is a {type(value).__name__}, not a topology; name a Topology or a function returning one"
        )
    return value
