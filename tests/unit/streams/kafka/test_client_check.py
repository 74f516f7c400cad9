"""The check of the compiled reader and writer before they are used: it finds them right, and would find what is wrong.
Collected where they were built (``conftest.py``). The broker is one that the client's library pretends."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import confluent_kafka
import penstock_native
import pytest
from confluent_kafka import cimpl

from penstock.state import native as compiled_part
from penstock.state.errors import EnvironmentFault
from penstock.streams.kafka import client_check, native
from tests.unit.streams.kafka.test_native import are_native

KNOWN = (str(cimpl.__file__), confluent_kafka.libversion()[1], client_check.CLIENT_ID)


class Reading:
    """The compiled reader, but for what ``change`` does to its chunks and events."""

    def __init__(self, client: Any, change: Callable[[list[Any], list[Any]], Any]) -> None:
        self._reader, self._change = penstock_native.Reader(client, *KNOWN), change

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    def drain(self, most: int, timeout_ms: int) -> Any:
        return self._change(*self._reader.drain(most, timeout_ms))


class Writing:
    """The compiled writer, but for what ``change`` does to what it is given."""

    def __init__(self, client: Any, change: Callable[..., tuple[Any, ...]]) -> None:
        self._writer, self._change = penstock_native.Writer(client, *KNOWN), change

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writer, name)

    def send(self, topic: str, *given: Any) -> int:
        return self._writer.send(topic, *self._change(*given))


def reader(client: Any) -> Any:
    return penstock_native.Reader(client, *KNOWN)


def writer(client: Any) -> Any:
    return penstock_native.Writer(client, *KNOWN)


def read_with(change: Callable[[list[Any], list[Any]], Any]) -> str | None:
    return client_check.why_not_passing(client_check.Native(lambda client: Reading(client, change), writer))


def written_with(change: Callable[..., tuple[Any, ...]]) -> str | None:
    return client_check.why_not_passing(client_check.Native(reader, lambda client: Writing(client, change)))


def test_the_compiled_reader_and_writer_pass_and_take_no_time() -> None:
    both = client_check.Native(reader, writer)
    assert client_check.why_not_passing(both) is None
    before = time.process_time()
    assert client_check.why_not_passing(both) is None
    assert time.process_time() - before < 0.1


@pytest.mark.parametrize(
    "change",
    [
        lambda chunks, told: ([(*c[:5], bytes(len(c[5])), *c[6:]) for c in chunks], told),  # timestamps
        lambda chunks, told: ([(*c[:6], c[7], c[6], *c[8:]) for c in chunks], told),  # keys for values
        lambda chunks, told: ([(*c[:7], (*c[7][:2], None), *c[8:]) for c in chunks], told),  # nulls
        lambda chunks, told: ([(*c[:8], None, *c[9:]) for c in chunks], told),  # headers
        lambda chunks, told: ([(*c[:2], c[2] + 1, c[3] + 1, *c[4:]) for c in chunks], told),  # offsets
        lambda chunks, told: ([], told),  # all records
        lambda chunks, told: (chunks * 2, told),
        lambda chunks, told: (chunks, [(t, p, code, at - 1, text) for t, p, code, at, text in told]),
        lambda chunks, told: ([(c[0], 0, *c[2:]) for c in chunks], told),  # partition
    ],
)
def test_a_reader_that_is_wrong_is_found(change: Callable[[list[Any], list[Any]], Any]) -> None:
    found = read_with(change)
    assert found is not None and found.startswith("the compiled part is wrong at reading")


@pytest.mark.parametrize(
    "change",
    [
        lambda keys, values, *rest: (values, keys, *rest),
        lambda keys, values, times, *rest: (keys, values, [at + 1 for at in times], *rest),
        lambda keys, values, times, headers, *rest: (keys, values, times, None, *rest),
        lambda *given: (*given[:5], 1, 5),  # all but the first
    ],
)
def test_a_writer_that_is_wrong_is_found(change: Callable[..., tuple[Any, ...]]) -> None:
    found = written_with(change)
    assert found is not None and ("wrong at writing" in found or "the writer took 4 of 5" in found)


def test_what_fails_or_never_comes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(client: Any) -> Any:
        raise RuntimeError("no pointer")

    monkeypatch.setattr(client_check, "TIMEOUT_S", 0.3)
    assert "no pointer" in (client_check.why_not_passing(client_check.Native(refused, writer)) or "")
    assert "no pointer" in (client_check.why_not_passing(client_check.Native(reader, refused)) or "")
    assert "did not come back in 0.3 s" in (read_with(lambda chunks, told: (chunks, [])) or "")


def test_clients_are_plain_where_the_check_fails(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def dropping(client: Any, *known: Any) -> Any:
        return Reading(client, lambda chunks, told: ([], told))

    broken = ModuleType("broken")
    vars(broken).update(vars(penstock_native), Reader=dropping)
    monkeypatch.setattr(compiled_part, "_in_use", [broken])
    monkeypatch.delenv(native.MODE_ENV, raising=False)
    native._say.cache_clear()
    with caplog.at_level(logging.INFO, "penstock.kafka"):
        assert not are_native("auto")
    lines = [record.getMessage() for record in caplog.records if "without the native part" in record.getMessage()]
    assert [line.split()[0] for line in lines] == ["reading", "writing"]
    assert all("wrong at reading" in line for line in lines)
    with pytest.raises(EnvironmentFault, match="wrong at reading"):
        are_native("require")
    native._say.cache_clear()
