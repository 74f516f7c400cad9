"""Penstock: log-based stream processing on Kafka, with Spark as its second engine.

``topologies/`` says what to compute, ``state/`` says what is remembered, ``streams/`` makes it run; imports point one
way: streams → topologies → state. The imports below are the list of the public names: type checkers read them as they are,
and when the program runs each is carried out when its name is first used, so that importing a lower room never loads an
upper one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    # Families whose names are too plain to stand alone are modules: ps.aggregators.count(), ps.triggers.after_count(3).
    from penstock.state.errors import EnvironmentFault as EnvironmentFault
    from penstock.state.errors import IncompatibleError as IncompatibleError
    from penstock.state.errors import PenstockError as PenstockError
    from penstock.state.errors import ProcessingError as ProcessingError
    from penstock.state.errors import RetriableError as RetriableError
    from penstock.state.errors import SerdeError as SerdeError
    from penstock.state.errors import SettingsError as SettingsError
    from penstock.state.errors import StateCorruptedError as StateCorruptedError
    from penstock.state.errors import TaskMigratedError as TaskMigratedError
    from penstock.state.errors import TopologyError as TopologyError
    from penstock.state.errors import UserError as UserError
    from penstock.state.log import Record as Record
    from penstock.state.log import Windowed as Windowed
    from penstock.state.rocksdb.tuning import RocksDBOptions as RocksDBOptions
    from penstock.state.serdes.change_serde import Change as Change
    from penstock.state.serdes.serde import Serde as Serde
    from penstock.state.serdes.serde import SerdeLike as SerdeLike
    from penstock.state.serdes.serde import serde_of as serde_of
    from penstock.state.serdes.serde import typed_json as typed_json
    from penstock.state.serdes.serde import typed_msgpack as typed_msgpack
    from penstock.state.serdes.text_serdes import TEXT_LINE as TEXT_LINE
    from penstock.state.serdes.text_serdes import csv_row as csv_row
    from penstock.state.serdes.versioned_serde import versioned as versioned
    from penstock.state.stores.store import StoreSpec as StoreSpec
    from penstock.state.stores.typed_stores import KeyValueStore as KeyValueStore
    from penstock.state.stores.typed_stores import KeyWindowStore as KeyWindowStore
    from penstock.state.stores.typed_stores import SessionStore as SessionStore
    from penstock.state.stores.typed_stores import WindowStore as WindowStore
    from penstock.state.stores.typed_stores import key_value_store as key_value_store
    from penstock.state.stores.typed_stores import key_window_store as key_window_store
    from penstock.state.stores.typed_stores import session_store as session_store
    from penstock.state.stores.typed_stores import window_store as window_store
    from penstock.streams.task.error_policies import Policies as Policies
    from penstock.streams.testing.test_driver import TopologyTestDriver as TopologyTestDriver
    from penstock.streams.worker.settings import WorkerSettings as WorkerSettings
    from penstock.streams.worker.worker import Worker as Worker
    from penstock.topologies import aggregators as aggregators
    from penstock.topologies import triggers as triggers
    from penstock.topologies.aggregators.base import Aggregator as Aggregator
    from penstock.topologies.aggregators.base import agg as agg
    from penstock.topologies.columnar.word_splitting import words as words
    from penstock.topologies.dsl.awaiting import awaiting as awaiting
    from penstock.topologies.dsl.builder import StreamsBuilder as StreamsBuilder
    from penstock.topologies.dsl.cogrouped_stream import CogroupedKStream as CogroupedKStream
    from penstock.topologies.dsl.cogrouped_stream import WindowedCogroupedKStream as WindowedCogroupedKStream
    from penstock.topologies.dsl.global_ktable import GlobalKTable as GlobalKTable
    from penstock.topologies.dsl.kgrouped_stream import KGroupedStream as KGroupedStream
    from penstock.topologies.dsl.kgrouped_table import KGroupedTable as KGroupedTable
    from penstock.topologies.dsl.kstream import KStream as KStream
    from penstock.topologies.dsl.kstream import ProcessedStream as ProcessedStream
    from penstock.topologies.dsl.kstream_extras import Loop as Loop
    from penstock.topologies.dsl.kstream_extras import PatternMatches as PatternMatches
    from penstock.topologies.dsl.ktable import KTable as KTable
    from penstock.topologies.dsl.ktable import WindowedTable as WindowedTable
    from penstock.topologies.dsl.micro_batches import MicroBatches as MicroBatches
    from penstock.topologies.dsl.panes import TriggeredStream as TriggeredStream
    from penstock.topologies.dsl.retries import hold_key as hold_key
    from penstock.topologies.dsl.retries import retry as retry
    from penstock.topologies.dsl.triggered_stream import KTriggeredStream as KTriggeredStream
    from penstock.topologies.dsl.windowed_stream import SessionWindowedKStream as SessionWindowedKStream
    from penstock.topologies.dsl.windowed_stream import TimeWindowedKStream as TimeWindowedKStream
    from penstock.topologies.dsl.windowed_stream import WindowedKStream as WindowedKStream
    from penstock.topologies.expressions import functions as _functions
    from penstock.topologies.expressions.functions import col as col
    from penstock.topologies.expressions.functions import header as header
    from penstock.topologies.expressions.functions import key as key
    from penstock.topologies.expressions.functions import lit as lit
    from penstock.topologies.expressions.functions import struct as struct
    from penstock.topologies.expressions.functions import timestamp as timestamp
    from penstock.topologies.expressions.functions import value as value
    from penstock.topologies.expressions.functions import when as when
    from penstock.topologies.expressions.tree import Expression as Expression
    from penstock.topologies.graph.topology import GraphBuilder as GraphBuilder
    from penstock.topologies.graph.topology import Topology as Topology
    from penstock.topologies.operator_api.batch import Batch as Batch
    from penstock.topologies.operator_api.edge_kinds import is_retraction as is_retraction
    from penstock.topologies.operator_api.pane_info import PaneInfo as PaneInfo
    from penstock.topologies.operator_api.pane_info import pane_of as pane_of
    from penstock.topologies.operator_api.watermark_strategies import WatermarkStrategy as WatermarkStrategy
    from penstock.topologies.operator_api.watermark_strategies import (
        bounded_out_of_orderness as bounded_out_of_orderness,
    )
    from penstock.topologies.operator_api.watermark_strategies import punctuated as punctuated
    from penstock.topologies.operators.joins.side_input import SideView as SideView
    from penstock.topologies.operators.processors.keyed_timers import Timer as Timer
    from penstock.topologies.operators.processors.processor import Processor as Processor
    from penstock.topologies.operators.processors.processor import ProcessorContext as ProcessorContext
    from penstock.topologies.operators.records.feedback_loop import iteration_of as iteration_of
    from penstock.topologies.operators.records.load_shedding import rate_of as rate_of
    from penstock.topologies.operators.tables.suppress import until_time_limit as until_time_limit
    from penstock.topologies.operators.tables.suppress import until_window_closes as until_window_closes
    from penstock.topologies.patterns.pattern import Pattern as Pattern
    from penstock.topologies.patterns.pattern import pattern as pattern
    from penstock.topologies.patterns.skip import no_skip as no_skip
    from penstock.topologies.patterns.skip import skip_past_last_event as skip_past_last_event
    from penstock.topologies.patterns.skip import skip_to_first as skip_to_first
    from penstock.topologies.patterns.skip import skip_to_last as skip_to_last
    from penstock.topologies.patterns.skip import skip_to_next as skip_to_next
    from penstock.topologies.triggers import Trigger as Trigger
    from penstock.topologies.windows import TumblingWindows as TumblingWindows
    from penstock.topologies.windows import Windows as Windows
    from penstock.topologies.windows import calendar as calendar
    from penstock.topologies.windows import count_sliding as count_sliding
    from penstock.topologies.windows import count_tumbling as count_tumbling
    from penstock.topologies.windows import custom as custom
    from penstock.topologies.windows import delta_tumbling as delta_tumbling
    from penstock.topologies.windows import evicting as evicting
    from penstock.topologies.windows import global_window as global_window
    from penstock.topologies.windows import hopping as hopping
    from penstock.topologies.windows import punctuated_by as punctuated_by
    from penstock.topologies.windows import session as session
    from penstock.topologies.windows import sliding as sliding
    from penstock.topologies.windows import tumbling as tumbling
    from penstock.topologies.windows import unlimited as unlimited

    expressions = _functions  # col, key, value … under one name
else:
    import ast
    from importlib import import_module

    def _public_names() -> dict[str, tuple[str, str]]:
        """By public name: the module that has it, and its name there, as the imports above say."""
        block = next(node for node in ast.parse(__spec__.loader.get_source(__name__)).body if isinstance(node, ast.If))
        imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
        names = {alias.asname: (node.module, alias.name) for node in imports for alias in node.names}
        others = [node for node in block.body if isinstance(node, ast.Assign)]
        return names | {node.targets[0].id: names.pop(node.value.id) for node in others}

    _NAMES = _public_names()
    __all__ = sorted(_NAMES)

    def __getattr__(name: str) -> object:
        if name not in _NAMES:
            raise AttributeError(f"penstock has no {name!r}; public names: {', '.join(__all__)}")
        module, attribute = _NAMES[name]
        home = import_module(module)
        return getattr(home, attribute) if hasattr(home, attribute) else import_module(f"{module}.{attribute}")

    def __dir__() -> list[str]:
        return [*globals(), *__all__]
