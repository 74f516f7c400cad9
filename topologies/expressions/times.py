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


_KEPT = 1_000
_DAY_MS = 86_400_000


def _step_ms_in(zone: str, step_ms: int) -> int:
    """Zones may lie any number of whole seconds off UTC."""
    return step_ms if zone == "UTC" else min(step_ms, 1_000)


def _by_steps(compute: Callable[[int], Any], step_ms: int, zone: str) -> Callable[[int], Any]:
    """Call ``compute`` once per step of time within which it gives the same in UTC."""
    step_ms = _step_ms_in(zone, step_ms)
    kept: dict[int, Any] = {}

    def kernel(time_ms: int) -> Any:
        step = time_ms // step_ms
        found = kept.get(step)
        if found is None:
            if len(kept) >= _KEPT:
                kept.clear()
            found = kept[step] = compute(time_ms)
        return found

    return kernel


def _part(of: Callable[[datetime.datetime], int], step_ms: int) -> FunctionSignature:
    def make(constants: Sequence[Any]) -> Callable[[int], int]:
        zone = constants[0] if constants else "UTC"
        local = _local(_zone(zone))
        return _by_steps(lambda time_ms: of(local(time_ms)), step_ms, zone)

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


_STEPS_MS = {"L": 1, "S": 1_000, "M": 60_000, "H": 3_600_000}
"""Within steps of this length what a directive writes is the same in UTC; of others, within a day."""


def _directives(pattern: str) -> list[str]:
    """The texts of a pattern and, between them, its directives."""
    return re.split(r"%(.?)", pattern, flags=re.DOTALL)


def _format_step_ms(parts: Sequence[str]) -> int:
    return min((_STEPS_MS.get(d, _DAY_MS) for d in parts[1::2]), default=_DAY_MS)


def _formatting(constants: Sequence[Any]) -> Callable[[int], str]:
    pattern = constants[0]
    zone = constants[1] if len(constants) > 1 else "UTC"
    local = _local(_zone(zone))
    parts = _directives(pattern)
    unknown = [d for d in parts[1::2] if d not in _DIRECTIVES]
    if unknown:
        known = " ".join(f"%{d}" for d in _DIRECTIVES)
        raise Mismatch(f"format_time() does not know %{unknown[0]} in {pattern!r}; it knows {known}")
    makers = [(text, _DIRECTIVES[d]) for text, d in zip(parts[::2], parts[1::2], strict=False)]
    tail = parts[-1]

    def text_of(time_ms: int) -> str:
        moment = local(time_ms)
        return "".join([text + make(moment) for text, make in makers]) + tail

    return _by_steps(text_of, _format_step_ms(parts), zone)


_PARTS: dict[str, tuple[Callable[[datetime.datetime], int], int]] = {
    "year": (lambda t: t.year, _DAY_MS),
    "month": (lambda t: t.month, _DAY_MS),
    "day": (lambda t: t.day, _DAY_MS),
    "weekday": (datetime.datetime.isoweekday, _DAY_MS),
    "hour": (lambda t: t.hour, 3_600_000),
    "minute": (lambda t: t.minute, 60_000),
    "second": (lambda t: t.second, 1_000),
}


def step_ms_of(function: str, constants: Sequence[Any]) -> int | None:
    """The step of time within which a function with these constants gives the same; ``None``: none is known."""
    if function in _PARTS:
        step_ms, zone = _PARTS[function][1], constants[0] if constants else "UTC"
    elif function == "format_time":
        step_ms, zone = _format_step_ms(_directives(constants[0])), constants[1] if len(constants) > 1 else "UTC"
    else:
        return None
    return _step_ms_in(zone, step_ms)


FUNCTIONS: dict[str, FunctionSignature] = {
    **{name: _part(of, step_ms) for name, (of, step_ms) in _PARTS.items()},
    "floor_time": FunctionSignature(("time", "any"), TIMESTAMP, constants=1, make=_flooring),
    "format_time": FunctionSignature(("time", "string", "string"), STRING, optional=1, constants=2, make=_formatting),
}
