"""The client's own log lines: equal ones once, with a count."""

from __future__ import annotations

import logging

import pytest

from penstock.state.errors import EnvironmentFault
from penstock.streams.kafka import admin
from penstock.streams.kafka.client_log import REPEATED_AFTER_S, Folding, client_logger, folded_lines

DOWN = "FAIL [rdkafka#%s] [thrd:127.0.0.1:%d]: Connect to ipv4#127.0.0.1:%d failed: Connection refused (after %dms)"


def line(text: str) -> logging.LogRecord:
    return logging.LogRecord("penstock.kafka", logging.ERROR, __file__, 1, text, None, None)


def test_equal_lines_pass_once_per_outage_and_are_counted() -> None:
    now_s = 0.0
    folding = Folding(lambda: now_s)
    texts = [DOWN % (f"{who}-{i}", 9092, 9092, i) for i in range(500) for who in ("consumer", "producer")]
    assert [folding.filter(line(text)) for text in texts].count(True) == 2
    assert folding.filter(line("SESSTMOUT [rdkafka#consumer-2]: Consumer group session timed out"))
    now_s = REPEATED_AFTER_S
    assert folding.filter(line(texts[0]))
    assert folding.take_left_out() == len(texts) - 2
    assert folding.take_left_out() == 0
    assert folding.filter(line(texts[0])), "the next outage is logged"


def test_what_is_wanted_is_not_complained_of() -> None:
    text = "CONFWARN [rdkafka#producer-1]: enable.gapless.guarantee is an experimental feature"
    assert not Folding().filter(line(text))


def test_a_new_brokers_loading_coordinator_is_no_warning_but_one_that_is_away_is() -> None:
    text = (
        "GETPID [rdkafka#producer-9] [thrd:main]: Failed to acquire idempotence PID from broker 127.0.0.1:1/0: Broker: "
    )
    assert not Folding().filter(line(text + "Coordinator load in progress: retrying"))
    assert Folding().filter(line(text + "Coordinator not available: retrying"))


def test_the_logger_folds_once() -> None:
    assert client_logger() is client_logger()
    assert sum(isinstance(f, Folding) for f in client_logger().filters) == 1


def test_why_no_broker_answers_is_logged(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "CONTACT_S", 0.3)
    folded_lines()
    with pytest.raises(EnvironmentFault, match="no broker answers"):
        admin.KafkaAdmin({"bootstrap.servers": "127.0.0.1:1"}).require_answer()
    assert "Connection refused" in caplog.text
