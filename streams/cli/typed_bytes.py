"""Bytes of the log as JSON and back, by a serde: what ``consume``, ``produce``, ``tail``, ``state`` and ``dlq`` show.

JSON has no bytes: those that are not UTF-8 are ``{"base64": "…"}``. A windowed key is
``{"key": …, "start": ms, "end": ms}``.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from penstock.state.errors import UserError
from penstock.state.serdes.models import converted, plain
from penstock.state.serdes.serde import BYTES, JSON, OptionalSerde, Serde
from penstock.state.serdes.window_keys import WindowedSerde

SHOWN_BYTES = 200
"""How much of what cannot be read a message shows."""


@dataclasses.dataclass(frozen=True)
class Codec:
    """``show`` makes of bytes what JSON can hold; ``read`` makes bytes of that again (``None``: it cannot). Both raise
    ``UserError``. ``name`` is the serde's."""

    name: str
    show: Callable[[bytes], Any]
    read: Callable[[Any], bytes] | None


class Undecodable(dict[str, Any]):
    """Stands for bytes that the serde cannot read."""


def codec_of(serde: Serde[Any]) -> Codec:
    """The codec of a serde."""

    def show(data: bytes) -> Any:
        try:
            return _shown(serde, serde.deserialize(data))
        except Exception as exc:
            raise UserError(
                f"{data[:SHOWN_BYTES]!r} cannot be read as {serde.name} ({type(exc).__name__}: {exc}); name the type that "
                "wrote it"
            ) from exc

    def read(value: Any) -> bytes:
        try:
            return serde.serialize(_given(serde, value))
        except Exception as exc:
            raise UserError(f"{value!r:.200} cannot be written as {serde.name} ({exc}); correct it") from exc

    return Codec(serde.name, show, read)


def shown_or_marked(codec: Codec, data: bytes | None) -> Any:
    """The value to show for bytes: null as ``None``, and an ``Undecodable`` where the serde cannot read them."""
    if data is None:
        return None
    try:
        return codec.show(data)
    except UserError as exc:
        return Undecodable(undecodable=raw_shown(data), error=str(exc))


def corrected(codec: Codec, data: bytes | None, given: Any) -> bytes | None:
    """The bytes in ``given`` if it is the ``Undecodable`` of ``data`` with a text that the serde can read, else ``None``.
    Raises ``UserError`` if it still cannot."""
    if not isinstance(shown_or_marked(codec, data), Undecodable) or not isinstance(given, dict):
        return None
    if set(given) != {"undecodable", "error"}:
        return None
    try:
        found = raw_given(given["undecodable"])
    except ValueError as exc:
        raise UserError(f"undecodable: {exc}") from exc
    codec.show(found)
    return found


def raw_shown(data: bytes) -> Any:
    """Bytes without a serde: text where they are UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def raw_given(value: Any) -> bytes:
    """The bytes that ``raw_shown`` made this of. Raises ``ValueError``."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and set(value) == {"base64"} and isinstance(value["base64"], str):
        try:
            return base64.b64decode(value["base64"], validate=True)
        except binascii.Error as exc:
            raise ValueError(f"this is not base64: {exc}") from exc
    raise ValueError('bytes are written as text, or as {"base64": "…"}')


RAW = Codec("bytes", raw_shown, raw_given)


def as_json(value: Any) -> bytes:
    """One line of JSON of what a codec has shown."""
    return msgspec.json.encode(value, enc_hook=str)


def as_text(value: Any) -> str:
    """The text, for people, of a value from a codec: text as it is, windows with their times, everything else as JSON."""
    if value is None:
        return "null"
    if isinstance(value, str):
        return value
    if isinstance(value, Undecodable):
        return f"<{value['error']}>"
    if isinstance(value, dict) and set(value) == {"key", "start", "end"}:
        return f"{as_text(value['key'])}@{moment(value['start'])}/{moment(value['end'])}"
    return as_json(value).decode()


def moment(ms: int) -> str:
    """A time of the log for people, in UTC."""
    try:
        found = datetime.fromtimestamp(ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{ms}ms"
    return found.isoformat(timespec="milliseconds" if ms % 1000 else "seconds").replace("+00:00", "Z")


def _shown(serde: Serde[Any], value: Any) -> Any:
    if isinstance(serde, WindowedSerde):
        return {"key": _shown(serde.inner, value.key), "start": value.start_ms, "end": value.end_ms}
    if isinstance(serde, OptionalSerde):
        return None if value[0] is None else _shown(serde.inner, value[0])
    if isinstance(value, bytes):
        return raw_shown(value)
    return plain(value, other=str)


def _given(serde: Serde[Any], value: Any) -> Any:
    from penstock.state.log import Windowed

    if isinstance(serde, WindowedSerde):
        if not isinstance(value, dict) or set(value) != {"key", "start", "end"}:
            raise ValueError('a windowed key is written as {"key": …, "start": milliseconds, "end": milliseconds}')
        return Windowed(_given(serde.inner, value["key"]), int(value["start"]), int(value["end"]))
    if isinstance(serde, OptionalSerde):
        return (None if value is None else _given(serde.inner, value),)
    if serde == BYTES:
        return raw_given(value)
    like = serde.exact if serde.declared is None else serde.declared
    if serde == JSON or like is None:
        return value
    return converted(value, like)
