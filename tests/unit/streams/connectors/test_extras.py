"""Connectors whose library is not installed."""

from __future__ import annotations

import sys

import pytest

from penstock import connectors
from penstock.state.errors import SettingsError


def test_a_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.delitem(sys.modules, "penstock.streams.connectors.postgres_sink", raising=False)
    with pytest.raises(SettingsError, match=r"psycopg is not installed .*; run: pip install 'penstock\[postgres\]'"):
        _ = connectors.PostgresSink


def test_a_missing_pyarrow_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "penstock.streams.connectors.parquet_source", raising=False)
    with pytest.raises(SettingsError, match=r"pip install 'penstock\[parquet\]'"):
        _ = connectors.ParquetSource


def test_names_that_it_lacks() -> None:
    with pytest.raises(AttributeError, match="has no 'OracleSink'; it has: CsvSink, CsvSource, "):
        _ = connectors.OracleSink  # type: ignore[attr-defined]  # that is the test
