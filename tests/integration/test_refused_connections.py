"""Wrong security settings against a real broker: the client's own words, soon, and the setting to look at."""

from __future__ import annotations

import pytest

from penstock.streams.cli.main import main

LOGIN = ("security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN", "sasl.username=a", "sasl.password=hunter2")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (LOGIN, "SASL PLAIN mechanism handshake failed"),
        (("security.protocol=SSL",), "SSL handshake failed"),
    ],
)
def test_a_broker_that_refuses_is_not_called_away(
    given: tuple[str, ...], said: str, kafka: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [word for pair in given for word in ("--client-config", pair)]
    assert main(["topics", "list", "--bootstrap-server", kafka, *options]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith(f"penstock: the broker at {kafka} refuses the connection: ")
    assert said in error
    assert "security.protocol" in error
    assert "hunter2" not in error


def test_the_doctor_reads_what_a_broker_says(kafka: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--bootstrap-server", kafka]) == 0
    said = capsys.readouterr().out
    assert f"1 at {kafka}, cluster " in said
    assert "good  penstock" in said
    options = ("--bootstrap-server", kafka, "--config")
    assert main(["doctor", *options, "absent.toml"]) == 2
