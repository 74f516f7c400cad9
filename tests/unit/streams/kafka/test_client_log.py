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
    assert [folding.filter(line(text)) for text in texts].count(True) == 1
    assert folding.filter(line("SESSTMOUT [rdkafka#consumer-2]: Consumer group session timed out"))
    now_s = REPEATED_AFTER_S
    assert folding.filter(line(texts[0]))
    assert folding.take_left_out() == len(texts) - 1
    assert folding.take_left_out() == 0
    assert folding.filter(line(texts[0])), "the next outage is logged"


def outage() -> list[str]:
    """The lines of a consumer and a producer about a broker that has ended, and one about another broker."""
    closed = "Disconnected: connection closed by peer: receive 0 after POLLIN (after %dms in state UP)"
    refused = "Connect to ipv4#127.0.0.1:9092 failed: Connection refused (after 0ms in state CONNECT%s)"
    late = "Timed out %sRequest in flight (after %dms, timeout #0)"
    group, transactions = "[pay-0#consumer-6] [thrd:GroupCoordinator]", "[rdkafka#producer-3] [thrd:TxnCoordinator]"
    broker = "[pay-0#consumer-6] [thrd:127.0.0.1:9092/0]"
    return [
        f"FAIL {group}: GroupCoordinator: 127.0.0.1:9092: {closed % 40_186}",
        f"FAIL {broker}: 127.0.0.1:9092/0: {closed % 40_188}",
        f"FAIL {group}: GroupCoordinator: {refused % ''}",
        f"FAIL {broker}: 127.0.0.1:9092/0: {refused % ''}",
        f"FAIL {transactions}: TxnCoordinator: 127.0.0.1:9092: {closed % 7}",
        f"FAIL {transactions}: TxnCoordinator: {refused % ', 1 identical error(s) suppressed'}",
        f"REQTMOUT {group}: GroupCoordinator/0: {late % ('Heartbeat', 6_015)}",
        f"REQTMOUT {group}: GroupCoordinator/1: {late % ('ApiVersion', 10_010)}",
        f"FAIL {broker}: 127.0.0.1:9093/1: {refused % ''}".replace("9092", "9093"),
    ]


def test_an_outage_is_a_line_for_each_thing_that_is_said_of_a_broker() -> None:
    folding = Folding()
    passed = [number for number, text in enumerate(outage()) if folding.filter(line(text))]
    assert passed == [0, 2, 6, 8], "the last one is another broker's"


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
