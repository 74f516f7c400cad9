"""Which clients are used natively: the choice, and what happens where it cannot be had. No broker is asked."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

from penstock.state import native as compiled_part
from penstock.state.errors import EnvironmentFault, SettingsError
from penstock.streams.kafka import native
from penstock.streams.kafka.client_config import consumer_config, producer_config
from penstock.streams.kafka.consumer import KafkaConsumer
from penstock.streams.kafka.producer import KafkaProducer

NOWHERE = "127.0.0.1:1"


def are_native(mode: str) -> bool:
    """Whether both clients are, which must agree."""
    consumer = KafkaConsumer(consumer_config(NOWHERE, "g", {}), native=mode)
    producer = KafkaProducer(producer_config(NOWHERE, {}), native=mode)
    found = consumer.is_native
    assert producer.is_native == found
    consumer.close()
    producer.close()
    return found


@pytest.fixture
def no_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where it was not built."""
    monkeypatch.setattr(compiled_part, "_in_use", [None])
    monkeypatch.delenv(native.MODE_ENV, raising=False)
    native._say.cache_clear()


def test_it_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not are_native("off")
    monkeypatch.setenv(native.MODE_ENV, "off")
    assert not are_native("auto")


@pytest.mark.usefixtures("no_part")
def test_without_it_clients_are_plain_and_one_line_says_so(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "penstock.kafka"):
        assert not are_native("auto")
        assert not are_native("auto")
    lines = [r.getMessage() for r in caplog.records if "without the native part" in r.getMessage()]
    assert [line.split()[0] for line in lines] == ["reading", "writing"]


@pytest.mark.usefixtures("no_part")
def test_requiring_it_fails_where_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EnvironmentFault, match="required"):
        are_native("require")
    monkeypatch.setenv(native.MODE_ENV, "require")
    with pytest.raises(EnvironmentFault, match="required"):
        are_native("auto")


def test_a_client_whose_sources_nobody_read_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_part, "_in_use", [logging])  # any module: it must not be reached
    monkeypatch.setattr(native, "_CLIENTS", ((0, 1), (0, 2)))
    native._why_not_this_client.cache_clear()
    try:
        assert not are_native("auto")
        with pytest.raises(EnvironmentFault, match="releases"):
            are_native("require")
    finally:
        native._why_not_this_client.cache_clear()


def test_an_unknown_choice_is_refused() -> None:
    with pytest.raises(SettingsError, match="native='sometimes'"):
        are_native("sometimes")


def test_a_part_whose_kernels_are_wrong_is_not_used(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(compiled_part, "_in_use", [None])
    monkeypatch.setattr(compiled_part, "_FITTING", SimpleNamespace())
    monkeypatch.setattr(compiled_part, "why_not", lambda: None)
    native._why_not_trusted.cache_clear()
    native._say.cache_clear()
    with caplog.at_level(logging.INFO, "penstock.kafka"):
        native.choose("auto")
    assert compiled_part.compiled() is None
    (said,) = [r for r in caplog.records if "without the native part" in r.getMessage()]
    assert said.levelname == "WARNING"
    assert said.getMessage().startswith("going on without the native part: the compiled part fails at")
    with pytest.raises(EnvironmentFault, match="make native"):
        native.choose("require")
    native._why_not_trusted.cache_clear()


def test_choosing_holds_for_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_part, "_in_use", [None])
    monkeypatch.delenv(native.MODE_ENV, raising=False)
    native.choose("auto")
    assert compiled_part.compiled() is compiled_part._FITTING
    native.choose("off")
    assert compiled_part.compiled() is None
