"""Functions of time, for one row. A timestamp is an int: milliseconds since 1970, UTC."""

from __future__ import annotations

import datetime
import re
import zoneinfo
from collections.abc import Callable, Sequence
from typing import Any

from penstock.state.errors import TopologyError
from penstock.topologies.expressions.errors import Fault
from penstock.topologies.expressions.numbers import within
from penstock.topologies.expressions.signature import FunctionSignature, Mismatch
from penstock.topologies.expressions.types import INT64, STRING, TIMESTAMP
from penstock.topologies.windows.durations import duration_ms

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def as_datetime(time_ms: int) -> datetime.datetime:
    """The moment in UTC. Raises ``Fault`` outside the years 1 to 9999."""
    try:
        return _EPOCH + datetime.timedelta(milliseconds=time_ms)
    except OverflowError as exc:
        raise Fault(f"{time_ms} ms since 1970 lies outside the years 1 to 9999; is it in milliseconds?") from exc


def _zone(name: str) -> datetime.tzinfo:
    if name == "UTC":
        return datetime.UTC
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as exc:
        raise Mismatch(
            f"there is no time zone {name!r}; use a name of the IANA database, such as Europe/Berlin"
        ) from exc


def _local(zone: datetime.tzinfo) -> Callable[[int], datetime.datetime]:
    def local(time_ms: int) -> datetime.datetime:
        try:
            return as_datetime(time_ms).astimezone(zone)
        except OverflowError as exc:
            raise Fault(f"{time_ms} ms since 1970 lies outside the years 1 to 9999 in this time zone") from exc

    return local


def _part(of: Callable[[datetime.datetime], int]) -> FunctionSignature:
    def make(constants: Sequence[Any]) -> Callable[[int], int]:
        local = _local(_zone(constants[0] if constants else "UTC"))
        return lambda time_ms: of(local(time_ms))

    return FunctionSignature(("time", "string"), INT64, optional=1, constants=1, make=make)


def _flooring(constants: Sequence[Any]) -> Callable[[int], int]:
    try:
        step = duration_ms(constants[0])
    except TopologyError as exc:
        raise Mismatch(str(exc)) from exc
    if step < 1:
        raise Mismatch(f"floor_time() to {step} ms; use at least 1 ms")

    def kernel(time_ms: int) -> int:
        return within(time_ms - time_ms % step)

    return kernel


_DIRECTIVES: dict[str, Callable[[datetime.datetime], str]] = {
    "Y": lambda t: f"{t.year:04d}",
    "m": lambda t: f"{t.month:02d}",
    "d": lambda t: f"{t.day:02d}",
    "H": lambda t: f"{t.hour:02d}",
    "M": lambda t: f"{t.minute:02d}",
    "S": lambda t: f"{t.second:02d}",
    "L": lambda t: f"{t.microsecond // 1000:03d}",
    "j": lambda t: f"{t.timetuple().tm_yday:03d}",
    "u": lambda t: str(t.isoweekday()),
    "z": lambda t: t.strftime("%z"),
    "%": lambda t: "%",
}
"""The supported formats; none depends on a locale or a platform, as ``strftime``'s may."""


_TEXTS_KEPT = 1_000
_STEPS_MS = {"L": 1, "S": 1_000, "M": 60_000, "H": 3_600_000}


def _constant_for_ms(directives: Sequence[str], *, is_utc: bool) -> int:
    """Within steps of this length the text is the same. Zones may lie any number of whole seconds off UTC."""
    finest = min((_STEPS_MS.get(d, 86_400_000) for d in directives), default=86_400_000)
    return finest if is_utc else min(finest, 1_000)


def _formatting(constants: Sequence[Any]) -> Callable[[int], str]:
    pattern = constants[0]
    local = _local(_zone(constants[1] if len(constants) > 1 else "UTC"))
    parts = re.split(r"%(.?)", pattern, flags=re.DOTALL)
    unknown = [d for d in parts[1::2] if d not in _DIRECTIVES]
    if unknown:
        known = " ".join(f"%{d}" for d in _DIRECTIVES)
        raise Mismatch(f"format_time() does not know %{unknown[0]} in {pattern!r}; it knows {known}")
    makers = [(text, _DIRECTIVES[d]) for text, d in zip(parts[::2], parts[1::2], strict=False)]
    tail = parts[-1]
    step_ms = _constant_for_ms(parts[1::2], is_utc=len(constants) < 2 or constants[1] == "UTC")
    texts: dict[int, str] = {}

    def kernel(time_ms: int) -> str:
        step = time_ms // step_ms
        found = texts.get(step)
        if found is None:
            moment = local(time_ms)
            if len(texts) >= _TEXTS_KEPT:
                texts.clear()
            found = texts[step] = "".join([text + make(moment) for text, make in makers]) + tail
        return found

    return kernel


FUNCTIONS: dict[str, FunctionSignature] = {
    "year": _part(lambda t: t.year),
    "month": _part(lambda t: t.month),
    "day": _part(lambda t: t.day),
    "weekday": _part(datetime.datetime.isoweekday),
    "hour": _part(lambda t: t.hour),
    "minute": _part(lambda t: t.minute),
    "second": _part(lambda t: t.second),
    "floor_time": FunctionSignature(("time", "any"), TIMESTAMP, constants=1, make=_flooring),
    "format_time": FunctionSignature(("time", "string", "string"), STRING, optional=1, constants=2, make=_formatting),
}
