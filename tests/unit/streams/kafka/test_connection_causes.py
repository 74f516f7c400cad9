"""What is said where a broker is there and refuses: the client's words, and the setting to look at."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from penstock.state.errors import EnvironmentFault, UserError
from penstock.streams.kafka import connection_causes
from penstock.streams.kafka.connection_causes import ConnectionCauses

REFUSED = KafkaError(
    KafkaError._TRANSPORT, "b:1/bootstrap: Connect to ipv4#b:1 failed: Connection refused (after 0ms in state X)"
)
LOGIN = KafkaError(
    KafkaError._AUTHENTICATION, "sasl_ssl://b:1/1: SASL PLAIN mechanism failed (after 2ms in state AUTH)"
)


@pytest.mark.parametrize("more", ["", ", 3 identical error(s) suppressed"])
def test_what_the_client_said_is_quoted_without_its_noise(more: str) -> None:
    causes = ConnectionCauses()
    causes(KafkaError(KafkaError._TRANSPORT, REFUSED.str().replace(")", f"{more})")))
    causes(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
    fault = causes.fault("b:1")
    assert isinstance(fault, EnvironmentFault)
    assert str(fault).endswith("(Connect to ipv4#b:1 failed: Connection refused)")


def test_a_refusal_counts_when_it_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    causes = ConnectionCauses()
    causes(LOGIN)
    assert not causes.refused
    causes(REFUSED)
    causes(LOGIN)
    assert not causes.refused, "another error lay between"
    causes(LOGIN)
    assert causes.refused
    assert isinstance(causes.fault("b:1"), UserError)
    assert "b:1 refuses the connection: SASL PLAIN mechanism failed; check sasl.mechanism" in str(causes.fault("b:1"))
    alone = ConnectionCauses()
    alone(LOGIN)
    monkeypatch.setattr(connection_causes, "_LOOK_S", 0.0)
    assert alone.refused
