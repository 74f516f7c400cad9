"""Sinks and sources at the edge: databases, files and services, and the interfaces that yours implements.

Give a sink to ``KStream.sink``::

    totals = connectors.SqliteSink("totals", path="shop.db", key="city")
    orders.group_by(col("city")).count().to_stream().sink(totals, name="totals")

A ``Sink`` that keeps positions is exactly-once, under either guarantee of the worker. ``penstock.testing`` has the suites of
tests for sinks of your own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.topologies.operator_api.external_sinks import Sink, SinkPartition, SinkRows, SinkWriter

if TYPE_CHECKING:
    from penstock.streams.connectors.postgres_sink import PostgresSink
    from penstock.streams.connectors.sqlite_sink import SqliteSink
    from penstock.streams.connectors.table_rows import TableRow

__all__ = ["PostgresSink", "Sink", "SinkPartition", "SinkRows", "SinkWriter", "SqliteSink", "TableRow"]

_HOMES = {
    "PostgresSink": "penstock.streams.connectors.postgres_sink",
    "SqliteSink": "penstock.streams.connectors.sqlite_sink",
    "TableRow": "penstock.streams.connectors.table_rows",
}
"""Loaded when they are used first: each needs the library of its system."""
_EXTRAS = {"PostgresSink": "postgres"}


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"penstock.connectors has no {name!r}; it has: {', '.join(__all__)}")
    try:
        return getattr(import_module(_HOMES[name]), name)
    except ImportError as exc:
        if name not in _EXTRAS:
            raise
        from penstock.state.errors import SettingsError

        raise SettingsError(
            f"{exc.name} is not installed ({exc}); run: pip install 'penstock[{_EXTRAS[name]}]'"
        ) from exc
