"""Penstock: log-based stream processing on Kafka, with Spark as its second engine.

``topologies/`` says what to compute, ``state/`` says what is remembered, ``streams/`` makes it run; imports point one
way: streams → topologies → state. The public names below are loaded when they are first used, so that importing a lower
room never loads an upper one.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.state.errors import (
        EnvironmentFault,
        IncompatibleError,
        PenstockError,
        ProcessingError,
        RetriableError,
        SerdeError,
        SettingsError,
        StateCorruptedError,
        TaskMigratedError,
        TopologyError,
        UserError,
    )
    from penstock.state.facade import key_value_store, window_store
    from penstock.state.log import Record, Windowed
    from penstock.state.serde import Serde, serde_of, typed_json
    from penstock.streams.settings import WorkerSettings
    from penstock.streams.test_driver import TopologyTestDriver
    from penstock.streams.worker import Worker
    from penstock.topologies.batch import Batch
    from penstock.topologies.dsl.builder import StreamsBuilder
    from penstock.topologies.graph import GraphBuilder, Topology
    from penstock.topologies.operators.processor import Processor, ProcessorContext
    from penstock.topologies.windows import TumblingWindows, tumbling

__version__ = "0.1.0"

_HOMES = {
    "penstock.state.errors": (
        "EnvironmentFault",
        "IncompatibleError",
        "PenstockError",
        "ProcessingError",
        "RetriableError",
        "SerdeError",
        "SettingsError",
        "StateCorruptedError",
        "TaskMigratedError",
        "TopologyError",
        "UserError",
    ),
    "penstock.state.facade": ("key_value_store", "window_store"),
    "penstock.state.log": ("Record", "Windowed"),
    "penstock.state.serde": ("Serde", "serde_of", "typed_json"),
    "penstock.streams.settings": ("WorkerSettings",),
    "penstock.streams.test_driver": ("TopologyTestDriver",),
    "penstock.streams.worker": ("Worker",),
    "penstock.topologies.batch": ("Batch",),
    "penstock.topologies.dsl.builder": ("StreamsBuilder",),
    "penstock.topologies.graph": ("GraphBuilder", "Topology"),
    "penstock.topologies.operators.processor": ("Processor", "ProcessorContext"),
    "penstock.topologies.windows": ("TumblingWindows", "tumbling"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Batch",
    "EnvironmentFault",
    "GraphBuilder",
    "IncompatibleError",
    "PenstockError",
    "ProcessingError",
    "Processor",
    "ProcessorContext",
    "Record",
    "RetriableError",
    "Serde",
    "SerdeError",
    "SettingsError",
    "StateCorruptedError",
    "StreamsBuilder",
    "TaskMigratedError",
    "Topology",
    "TopologyError",
    "TopologyTestDriver",
    "TumblingWindows",
    "UserError",
    "Windowed",
    "Worker",
    "WorkerSettings",
    "key_value_store",
    "serde_of",
    "tumbling",
    "typed_json",
    "window_store",
]


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        return getattr(import_module(_HOME_OF[name]), name)
    raise AttributeError(f"penstock has no {name!r}; public names: {', '.join(__all__)}")
