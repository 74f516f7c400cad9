"""Errors of a schema registry and its serializers, as Penstock's: who acts is in the class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from penstock.state.errors import EnvironmentFault, IncompatibleError, PenstockError, SerdeError, SettingsError
from penstock.streams.kafka.schemas.libraries import needed

_CONFLICT, _NOT_FOUND, _UNPROCESSABLE, _TOO_MANY, _SERVER = 409, 404, 422, 429, 500
_NO_RIGHTS = (401, 403)


def translated(
    error: Exception,
    url: str,
    subject: str,
    doing: Literal["reading", "writing"],
    latest_version: Callable[[], int | None] = lambda: None,
) -> PenstockError:
    """The error to raise for one that was met while reading or writing a value of the subject. ``latest_version`` asks the
    registry for that of the subject, where the error has to name it."""
    if isinstance(error, PenstockError):
        return error
    if isinstance(error, needed("confluent_kafka.schema_registry.error").SchemaRegistryError):
        return _of_answer(error, url, subject, doing, latest_version)
    oauth = needed("confluent_kafka.schema_registry.error").OAuthTokenError
    if isinstance(error, (OSError, needed("httpx2").HTTPError, oauth)):
        return _away(url, subject, f"{type(error).__name__}: {error}")
    return SerdeError(f"{doing} a value of subject {subject}: {type(error).__name__}: {error}")


def _of_answer(
    error: Any, url: str, subject: str, doing: str, latest_version: Callable[[], int | None]
) -> PenstockError:
    status, said = int(error.http_status_code), str(error.error_message)
    if status == _CONFLICT:
        version = latest_version()
        before = "the versions before" if version is None else f"version {version}, the latest"
        return IncompatibleError(
            f"the schema registry refuses the schema for subject {subject}, as its compatibility rule forbids the change "
            f"from {before}: {said:.1000}. Nothing was written. Change the schema so that it is compatible "
            "(a new field needs a default), or the subject's rule"
        )
    if status in _NO_RIGHTS:
        return SettingsError(
            f"the schema registry at {url} refuses access to subject {subject} (status {status}: {said:.300}); check "
            "basic.auth.user.info or the token in the registry's config"
        )
    if status == _NOT_FOUND and doing == "writing":
        return SettingsError(
            f"the schema registry at {url} has no such schema for subject {subject} ({said:.300}); register it, or give the "
            "serde its schema and leave auto.register.schemas on"
        )
    if status == _NOT_FOUND:
        return SerdeError(
            f"the bytes name a schema that the registry at {url} does not have ({said:.300}); were they written with "
            "another registry?"
        )
    if status == _UNPROCESSABLE:
        return SettingsError(f"the schema registry refuses the schema of subject {subject} as invalid: {said:.1000}")
    return _away(url, subject, f"status {status}: {said:.300}")


def _away(url: str, subject: str, why: str) -> EnvironmentFault:
    return EnvironmentFault(
        f"the schema registry at {url} does not answer for subject {subject} ({why}); check that it runs and that "
        "this machine reaches it. Nothing is lost: start again when it answers"
    )
