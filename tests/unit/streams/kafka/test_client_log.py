"""Which of the client's log lines reach the log."""

from __future__ import annotations

import logging
import time

import pytest

from penstock.streams.kafka import client_log
from penstock.streams.kafka.admin import KafkaAdmin
from penstock.streams.kafka.client_config import consumer_config
from penstock.streams.kafka.consumer import KafkaConsumer


def test_brokers_that_are_away_are_one_line_however_many_clients_look_for_them(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    logger = client_log.client_logger()
    monkeypatch.setattr(logger, "filters", [])
    client_log.client_logger()
    servers = "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"
    consumers = [KafkaConsumer(consumer_config(servers, f"g{n}", {})) for n in range(3)]
    admin = KafkaAdmin({"bootstrap.servers": servers})
    until = time.monotonic() + 4.0
    while time.monotonic() < until:
        for consumer in consumers:
            consumer.poll(1, 0.1)
        admin._client.poll(0.1)
    for consumer in consumers:
        consumer.close()
    lines = [record.getMessage() for record in caplog.records if record.name == "penstock.kafka"]
    assert len(lines) == 1, lines


def test_other_lines_pass(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    logger = client_log.client_logger()
    monkeypatch.setattr(logger, "filters", [])
    client_log.client_logger()
    for text in (
        "MAXPOLL [c] too late",
        "FAIL [c] refused",
        "MAXPOLL [c] too late",
        "FAIL [c] refused",
        "FAIL [d] refused",
    ):
        logger.log(logging.WARNING, text)
    logger.log(logging.WARNING, "CONFWARN [c] enable.gapless.guarantee is experimental")
    assert [text.partition(" ")[0] for text in caplog.messages] == ["MAXPOLL", "FAIL", "MAXPOLL"]
