"""No secret is printed, wherever it lies."""

from __future__ import annotations

import pytest

from penstock.streams.worker.secret_redaction import is_secret, redacted
from penstock.streams.worker.settings import WorkerSettings

MARKER = "s3cr3t-marker"


@pytest.mark.parametrize(
    "key",
    [
        "sasl.password",
        "ssl.key.password",
        "ssl.key.pem",
        "ssl.keystore.password",
        "sasl.oauthbearer.config",
        "sasl.oauthbearer.client.secret",
        "sasl.jaas.config",
        "sasl.pasword",
        "ssl.kye.pem",
        "SASL_PASWD",
    ],
)
def test_secret_keys_are_hidden(key: str) -> None:
    assert is_secret(key)
    settings = WorkerSettings(
        application_id="a", common={key: MARKER}, consumer={key: MARKER}, producer={"nested": {key: MARKER}}
    )
    assert MARKER not in repr(settings)
    assert key in repr(settings)


def test_userinfo_in_urls_is_hidden() -> None:
    for settings in (
        WorkerSettings(application_id="a", snapshots=f"s3://user:{MARKER}@host/path"),
        WorkerSettings(application_id="a", common={"registry": [f"https://{MARKER}@host"]}),
    ):
        assert MARKER not in repr(settings)
        assert "host" in repr(settings)


def test_what_is_no_secret_stays() -> None:
    plain = {
        "client.id": "x",
        "sasl.username": "me",
        "sasl.mechanism": "PLAIN",
        "ssl.ca.location": "/ca",
        "ports": [1, 2],
        "snapshots": "file:///a@b",
    }
    assert redacted(plain) == plain
