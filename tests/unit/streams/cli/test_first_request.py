"""Commands that talk to a cluster first ask whether anybody answers, which ends sooner than their own requests do."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace

import pytest

from penstock.state.errors import EnvironmentFault
from penstock.streams.cli.client_options import answering
from penstock.streams.cli.main import main
from penstock.streams.kafka import admin

NOBODY = "127.0.0.1:1"
TOPOLOGY = "penstock.topologies.examples.word_count:build"
COMMANDS = [
    ["groups"],
    ["lag", "app"],
    ["apps"],
    ["topics", "list"],
    ["dlq", "list", "letters"],
    ["consume", "in"],
    ["tail", "in", "out"],
    ["produce", "in"],
    ["tasks", TOPOLOGY, "--application-id", "app"],
    ["reset", TOPOLOGY, "--application-id", "app"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command[:2]))
def test_nothing_else_is_asked_before(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(self: admin.KafkaAdmin) -> None:
        raise EnvironmentFault(f"asked {self._servers} first")

    monkeypatch.setattr(admin.KafkaAdmin, "require_answer", refuse)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"line\n")))
    assert main([*command, "--bootstrap-server", NOBODY]) != 0
    assert f"asked {NOBODY} first" in capsys.readouterr().err


def test_the_answer_says_what_the_clients_own_lines_say(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(admin, "CONTACT_S", 0.5)
    with pytest.raises(EnvironmentFault, match=f"no broker answers at {NOBODY}.*Connection refused"):
        answering(NOBODY, {})
    assert not [record for record in caplog.records if record.name == "penstock.kafka"]
