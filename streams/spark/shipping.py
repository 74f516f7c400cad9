"""A topology's way into the executors.

Topologies hold functions and serdes that no pickle takes, so what travels is where to find the topology: a
``module:name`` that the executor imports, or a function without arguments that makes it there. The driver's module path
travels along, so that what it can import an executor on the same machine can too. On a cluster the user's modules come
as for any PySpark job (``--py-files``, an archive, or an image).
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from pyspark import cloudpickle

from penstock.state.errors import TopologyError
from penstock.topologies.graph import Topology

TopologyRef = str | Callable[[], Any]
"""``"package.module:name"`` of a topology, of a builder, or of a function that makes either; or such a function."""


@dataclasses.dataclass(frozen=True)
class ShippedTopology:
    """What executors make the topology of."""

    path: tuple[str, ...]
    pickled: bytes

    def load(self) -> Topology:
        """The topology, in whichever process this is. Raises ``TopologyError``."""
        known = set(sys.path)
        sys.path.extend(p for p in self.path if p not in known)
        try:
            ref = cloudpickle.loads(self.pickled)
        except ImportError as exc:
            raise TopologyError(
                f"an executor cannot import the topology's module ({exc}); give it to Spark too (--py-files)"
            ) from exc
        return load_topology(ref)


def ship(ref: TopologyRef) -> ShippedTopology:
    """``ref`` in the form that travels. Raises ``TopologyError`` for what cannot."""
    if isinstance(ref, str) and ref.partition(":")[0].endswith(".py"):
        ref = str(Path.cwd() / ref)
    try:
        return ShippedTopology(tuple(p for p in sys.path if p), cloudpickle.dumps(ref))  # type: ignore[no-untyped-call]  # PySpark does not type it
    except Exception as exc:
        raise TopologyError(
            f"{ref!r:.100} cannot be sent to executors ({exc}); give 'module:name', or a function that builds the topology"
        ) from exc


def load_topology(ref: Any) -> Topology:
    """The topology behind a reference. Raises ``TopologyError`` that says what was found instead."""
    found = _named(ref) if isinstance(ref, str) else ref
    if callable(found) and not hasattr(found, "build"):
        found = found()
    if isinstance(found, Topology):
        return found
    build = getattr(found, "build", None)
    built = build() if callable(build) else None
    if isinstance(built, Topology):
        return built
    raise TopologyError(f"{ref!r:.100} gives a {type(found).__name__}; it must give a Topology or a builder")


def _named(ref: str) -> Any:
    """What ``module:name`` or ``path/to/file.py:name`` names; ``name`` may be left out when it is ``topology`` or
    ``build``."""
    place, _, name = ref.partition(":")
    names = [name] if name else ["topology", "build"]
    try:
        module = _from_file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
    except (ImportError, ValueError, OSError) as exc:
        raise TopologyError(
            f"{ref!r} cannot be loaded: {exc}; write package.module:name, and check Python's path"
        ) from exc
    for candidate in names:
        if hasattr(module, candidate):
            return getattr(module, candidate)
    raise TopologyError(f"{place} has no {' or '.join(names)}; name the topology as package.module:name")


def _from_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module
