"""Ship a topology to the executors.

Topologies hold functions and serdes that cannot be pickled, so a reference is shipped instead: a ``module:name`` that
the executor imports, or a function without arguments that builds the topology there. The driver's module path is
shipped too, so an executor on the same machine can import what the driver can. On a cluster the user's modules must
be provided as for any PySpark job (``--py-files``, an archive, or an image).
"""

from __future__ import annotations

import dataclasses
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.state.errors import TopologyError
from penstock.streams.topology_loading import load_topology
from penstock.topologies.graph.topology import Topology

TopologyRef = str | Callable[[], Any]
"""``"package.module:name"`` of a topology, of a builder, or of a function that makes either; or such a function."""
Dumps = Callable[[Any], bytes]
"""Pickles a value so that ``pickle.loads`` gives it back, functions too."""


@dataclasses.dataclass(frozen=True)
class ShippedValue:
    """A value that is built in the executor, such as a user's type that a serde follows from."""

    path: tuple[str, ...]
    pickled: bytes

    def load(self) -> Any:
        """The value. Raises ``TopologyError`` if its module is missing."""
        known = set(sys.path)
        sys.path.extend(p for p in self.path if p not in known)
        try:
            return pickle.loads(self.pickled)
        except ImportError as exc:
            raise TopologyError(
                f"an executor cannot import the topology's module ({exc}); install it there, or send it with the job "
                "(Spark: --py-files)"
            ) from exc


@dataclasses.dataclass(frozen=True)
class ShippedTopology(ShippedValue):
    """The parts from which executors build the topology."""

    def load(self) -> Topology:
        """The topology, in whichever process this is. Raises ``TopologyError``."""
        return load_topology(super().load())


def ship(ref: TopologyRef, dumps: Dumps) -> ShippedTopology:
    """``ref`` in the form that travels. Raises ``TopologyError`` for what cannot."""
    if isinstance(ref, str) and ref.partition(":")[0].endswith(".py"):
        ref = str(Path.cwd() / ref)
    return ShippedTopology(*_pickled(ref, dumps, "'module:name', or a function that builds the topology"))


def ship_value(value: Any, dumps: Dumps) -> ShippedValue | None:
    """A type or a name of a serde in the form that travels; ``None`` stays. Raises ``TopologyError`` for what cannot."""
    return None if value is None else ShippedValue(*_pickled(value, dumps, "a type, or the name of a serde"))


def _pickled(value: Any, dumps: Dumps, advice: str) -> tuple[tuple[str, ...], bytes]:
    try:
        return tuple(p for p in sys.path if p), dumps(value)
    except Exception as exc:
        raise TopologyError(f"{value!r:.100} cannot be sent to executors ({exc}); give {advice}") from exc
