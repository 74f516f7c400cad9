"""Penstock: log-based stream processing on Kafka, with Spark as its second engine.

``topologies/`` says what to compute, ``state/`` says what is remembered, ``streams/`` makes it run; imports point one
way: streams → topologies → state. The public names below are loaded when they are first used, so that importing a lower
room never loads an upper one.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import penstock.topologies.aggregators as aggregators
    import penstock.topologies.expressions.functions as expressions
    import penstock.topologies.triggers as triggers
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
    from penstock.state.log import Record, Windowed
    from penstock.state.serdes.serde import Serde, serde_of, typed_json
    from penstock.state.serdes.text_serdes import TEXT_LINE, csv_row
    from penstock.state.stores.typed_stores import key_value_store, key_window_store, session_store, window_store
    from penstock.streams.testing.test_driver import TopologyTestDriver
    from penstock.streams.worker.settings import WorkerSettings
    from penstock.streams.worker.worker import Worker
    from penstock.topologies.aggregators.base import Aggregator, agg
    from penstock.topologies.columnar.word_splitting import words
    from penstock.topologies.dsl.builder import StreamsBuilder
    from penstock.topologies.dsl.global_table import GlobalKTable
    from penstock.topologies.dsl.stream import KStream
    from penstock.topologies.dsl.table import KTable
    from penstock.topologies.expressions.functions import col, header, key, lit, struct, timestamp, value, when
    from penstock.topologies.graph.topology import GraphBuilder, Topology
    from penstock.topologies.operator_api.batch import Batch
    from penstock.topologies.operator_api.edge_kinds import is_retraction
    from penstock.topologies.operator_api.pane_info import PaneInfo, pane_of
    from penstock.topologies.operator_api.watermark_strategies import bounded_out_of_orderness, punctuated
    from penstock.topologies.operators.processors.keyed_timers import Timer
    from penstock.topologies.operators.processors.processor import Processor, ProcessorContext
    from penstock.topologies.operators.records.feedback_loop import iteration_of
    from penstock.topologies.operators.records.load_shedding import rate_of
    from penstock.topologies.operators.tables.suppress import until_time_limit, until_window_closes
    from penstock.topologies.patterns.pattern import Pattern, pattern
    from penstock.topologies.patterns.skip import (
        no_skip,
        skip_past_last_event,
        skip_to_first,
        skip_to_last,
        skip_to_next,
    )
    from penstock.topologies.windows import (
        TumblingWindows,
        calendar,
        count_sliding,
        count_tumbling,
        custom,
        delta_tumbling,
        evicting,
        global_window,
        hopping,
        punctuated_by,
        session,
        sliding,
        tumbling,
        unlimited,
    )

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
    "penstock.state.stores.typed_stores": (
        "key_value_store",
        "key_window_store",
        "session_store",
        "window_store",
    ),
    "penstock.state.log": (
        "Record",
        "Windowed",
    ),
    "penstock.state.serdes.serde": (
        "Serde",
        "serde_of",
        "typed_json",
    ),
    "penstock.state.serdes.text_serdes": (
        "TEXT_LINE",
        "csv_row",
    ),
    "penstock.streams.worker.settings": ("WorkerSettings",),
    "penstock.streams.testing.test_driver": ("TopologyTestDriver",),
    "penstock.streams.worker.worker": ("Worker",),
    "penstock.topologies.aggregators.base": (
        "Aggregator",
        "agg",
    ),
    "penstock.topologies.operator_api.batch": ("Batch",),
    "penstock.topologies.dsl.builder": ("StreamsBuilder",),
    "penstock.topologies.dsl.global_table": ("GlobalKTable",),
    "penstock.topologies.dsl.stream": ("KStream",),
    "penstock.topologies.dsl.table": ("KTable",),
    "penstock.topologies.operator_api.edge_kinds": ("is_retraction",),
    "penstock.topologies.expressions.functions": (
        "col",
        "header",
        "key",
        "lit",
        "struct",
        "timestamp",
        "value",
        "when",
    ),
    "penstock.topologies.operators.processors.keyed_timers": ("Timer",),
    "penstock.topologies.graph.topology": (
        "GraphBuilder",
        "Topology",
    ),
    "penstock.topologies.operators.records.feedback_loop": ("iteration_of",),
    "penstock.topologies.operators.processors.processor": (
        "Processor",
        "ProcessorContext",
    ),
    "penstock.topologies.operators.records.load_shedding": ("rate_of",),
    "penstock.topologies.operators.tables.suppress": (
        "until_time_limit",
        "until_window_closes",
    ),
    "penstock.topologies.operator_api.pane_info": (
        "PaneInfo",
        "pane_of",
    ),
    "penstock.topologies.patterns.pattern": (
        "Pattern",
        "pattern",
    ),
    "penstock.topologies.patterns.skip": (
        "no_skip",
        "skip_past_last_event",
        "skip_to_first",
        "skip_to_last",
        "skip_to_next",
    ),
    "penstock.topologies.columnar.word_splitting": ("words",),
    "penstock.topologies.operator_api.watermark_strategies": (
        "bounded_out_of_orderness",
        "punctuated",
    ),
    "penstock.topologies.windows": (
        "TumblingWindows",
        "calendar",
        "count_sliding",
        "count_tumbling",
        "custom",
        "delta_tumbling",
        "evicting",
        "global_window",
        "hopping",
        "punctuated_by",
        "session",
        "sliding",
        "tumbling",
        "unlimited",
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
_MODULES = {
    "aggregators": "penstock.topologies.aggregators",
    "expressions": "penstock.topologies.expressions.functions",
    "triggers": "penstock.topologies.triggers",
}
"""Families whose names are too plain to stand alone: ``ps.aggregators.count()``, ``ps.triggers.after_count(3)``."""

__all__ = [
    "agg",
    "Aggregator",
    "aggregators",
    "Batch",
    "bounded_out_of_orderness",
    "calendar",
    "col",
    "count_sliding",
    "count_tumbling",
    "csv_row",
    "custom",
    "delta_tumbling",
    "EnvironmentFault",
    "evicting",
    "expressions",
    "global_window",
    "GlobalKTable",
    "GraphBuilder",
    "header",
    "hopping",
    "IncompatibleError",
    "is_retraction",
    "iteration_of",
    "key",
    "key_value_store",
    "key_window_store",
    "KStream",
    "KTable",
    "lit",
    "no_skip",
    "pane_of",
    "PaneInfo",
    "Pattern",
    "pattern",
    "PenstockError",
    "ProcessingError",
    "Processor",
    "ProcessorContext",
    "punctuated",
    "punctuated_by",
    "rate_of",
    "Record",
    "RetriableError",
    "Serde",
    "serde_of",
    "SerdeError",
    "session",
    "session_store",
    "SettingsError",
    "skip_past_last_event",
    "skip_to_first",
    "skip_to_last",
    "skip_to_next",
    "sliding",
    "StateCorruptedError",
    "StreamsBuilder",
    "struct",
    "TaskMigratedError",
    "TEXT_LINE",
    "Timer",
    "timestamp",
    "Topology",
    "TopologyError",
    "TopologyTestDriver",
    "triggers",
    "tumbling",
    "TumblingWindows",
    "typed_json",
    "unlimited",
    "until_time_limit",
    "until_window_closes",
    "UserError",
    "value",
    "when",
    "window_store",
    "words",
    "Windowed",
    "Worker",
    "WorkerSettings",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(_MODULES[name])
    if name in _HOME_OF:
        return getattr(import_module(_HOME_OF[name]), name)
    raise AttributeError(f"penstock has no {name!r}; public names: {', '.join(__all__)}")
