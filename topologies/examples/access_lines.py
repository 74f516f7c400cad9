"""Lines of web servers' access logs, in Apache's common and combined formats.

127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif HTTP/1.0" 200 2326 "http://ref/" "Mozilla/4.08"
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, Literal

import msgspec

from penstock.state.errors import SerdeError
from penstock.state.log import Record
from penstock.state.serdes.serde import Serde

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
# Each part is matched once and never given back, and the time has a fixed length. So matching takes time in
# proportion to the line's length, even if the line has neither format.
_QUOTED = r'"((?:[^"\\]++|\\.)*+)"'
_STAMP = r"[0-9]{2}/[A-Z][a-z]{2}/[0-9]{4}:[0-9]{2}:[0-9]{2}:[0-9]{2} [+-][0-9]{4}"
_COMMON = rf"(\S++) (\S++) (.+?) \[({_STAMP})\] {_QUOTED} ([0-9]{{3}}) ([0-9]{{1,18}}|-)"
_PATTERNS = {
    "common": re.compile(_COMMON),
    "combined": re.compile(rf"{_COMMON} {_QUOTED} {_QUOTED}"),
    "any": re.compile(rf"{_COMMON}(?: {_QUOTED} {_QUOTED})?"),
}
_TIME = re.compile(r"([0-9]{2})/([A-Z][a-z]{2})/([0-9]{4}):([0-9]{2}):([0-9]{2}):([0-9]{2}) ([+-])([0-9]{2})([0-9]{2})")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class AccessLine(msgspec.Struct, frozen=True):
    """One request. Texts are as the server escaped them; a ``-`` in the log is ``None`` here. ``time_ms`` is Unix
    time, ``offset_min`` the server's offset from UTC. Only the combined format has ``referer`` and ``agent``."""

    host: str
    identity: str | None
    user: str | None
    time_ms: int
    offset_min: int
    request: str | None
    status: int
    size: int | None
    referer: str | None = None
    agent: str | None = None

    @property
    def method(self) -> str | None:
        """``GET`` of ``GET /a HTTP/1.1``; ``None`` if the request does not have these three parts."""
        return self._part(0)

    @property
    def path(self) -> str | None:
        """``/a`` of ``GET /a HTTP/1.1``."""
        return self._part(1)

    @property
    def protocol(self) -> str | None:
        """``HTTP/1.1`` of ``GET /a HTTP/1.1``."""
        return self._part(2)

    def _part(self, index: int) -> str | None:
        parts = (self.request or "").split(" ")
        return parts[index] if len(parts) == 3 else None


AccessLogFormat = Literal["common", "combined", "any"]


def access_log(form: AccessLogFormat = "any") -> Serde[AccessLine]:
    """The serde of access log lines. ``any`` reads both formats, and writes the combined one unless a request has
    neither referer nor agent. Raises ``SerdeError`` for an unknown format; a line of another form is a ``SerdeError``
    too."""
    if form not in _PATTERNS:
        raise SerdeError(f"access log format {form!r} is unknown; use {', '.join(_PATTERNS)}")
    pattern = _PATTERNS[form]

    def deserialize(data: bytes) -> AccessLine:
        try:
            line = data.decode().rstrip("\r\n")
        except UnicodeDecodeError as exc:
            raise SerdeError(f"{data!r:.200} is not an access log line: it is not UTF-8") from exc
        match = pattern.fullmatch(line)
        if match is None:
            raise SerdeError(f"{line!r:.300} is not an access log line of the format {form!r}")
        texts: list[Any] = [None if t == "-" else t for t in match.groups()]
        host, identity, user, at, request, status, size, *more = texts
        time_ms, offset_min = _read_time(at)
        return AccessLine(
            host or "-",
            identity,
            user,
            time_ms,
            offset_min,
            request,
            int(status),
            None if size is None else int(size),
            *more,
        )

    def serialize(line: AccessLine) -> bytes:
        if not isinstance(line, AccessLine):
            raise SerdeError(f"the access log serde cannot write a {type(line).__name__}; give it an AccessLine")
        text = _written(line, form == "combined" or (form == "any" and (line.referer or line.agent) is not None))
        data = text.encode()
        if deserialize(data) != line:
            raise SerdeError(f"{line!r:.300} has no line in the format {form!r}; its texts must be escaped")
        return data

    return Serde(f"access-log:{form}", serialize, deserialize, immutable=True, exact=AccessLine)


def access_time(record: Record) -> int:
    """The time of the request, for ``builder.stream(…, timestamp=access_time)``."""
    line: AccessLine = record.value
    return line.time_ms


def _read_time(text: str | None) -> tuple[int, int]:
    match = None if text is None else _TIME.fullmatch(text)
    if match is None or match[2] not in _MONTHS:
        raise SerdeError(f"{text!r:.60} is not a time of an access log, such as 10/Oct/2000:13:55:36 -0700")
    day, month, year, hour, minute, second, sign, zone_h, zone_m = match.groups()
    offset_min = (int(zone_h) * 60 + int(zone_m)) * (-1 if sign == "-" else 1)
    try:
        zone = timezone(timedelta(minutes=offset_min))
        at = datetime(int(year), _MONTHS.index(month) + 1, int(day), int(hour), int(minute), int(second), tzinfo=zone)
    except ValueError as exc:
        raise SerdeError(f"{text!r} is not a time of an access log: {exc}") from exc
    return (at - _EPOCH) // timedelta(milliseconds=1), offset_min


def _written(line: AccessLine, combined: bool) -> str:
    at = _EPOCH.astimezone(timezone(timedelta(minutes=line.offset_min))) + timedelta(milliseconds=line.time_ms)
    zone = f"{'-' if line.offset_min < 0 else '+'}{abs(line.offset_min) // 60:02}{abs(line.offset_min) % 60:02}"
    stamp = f"{at.day:02}/{_MONTHS[at.month - 1]}/{at.year:04}:{at.hour:02}:{at.minute:02}:{at.second:02} {zone}"
    size = "-" if line.size is None else line.size
    texts = [t or "-" for t in (line.identity, line.user, line.request, line.referer, line.agent)]
    text = f'{line.host} {texts[0]} {texts[1]} [{stamp}] "{texts[2]}" {line.status} {size}'
    return f'{text} "{texts[3]}" "{texts[4]}"' if combined else text
