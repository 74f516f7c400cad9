"""Times on the command line."""

from __future__ import annotations

from datetime import UTC, datetime

from penstock.state.errors import SettingsError

_OLDEST_YEAR = 1970


def time_ms(text: str, option: str, others: str = "") -> int:
    """Milliseconds of an ISO 8601 time, in UTC unless it names a zone. Raises ``SettingsError`` for anything else;
    ``others``: words that the option also takes, each with a comma behind it, for the message."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError as exc:
        raise SettingsError(
            f"{option} {text}: write {others}a time such as 2026-11-22T10:00 or 2026-11-22T10:00:00+01:00"
        ) from exc
    found = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    if found.year < _OLDEST_YEAR:
        raise SettingsError(f"{option} {text} is before 1970; write a later time")
    return int(found.timestamp() * 1000)
