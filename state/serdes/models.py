"""pydantic models, and pydantic's dataclasses, as values. pydantic is imported when the first model is met, so it need not
be installed otherwise. Its classes are known by what it leaves on them.

Models are read and written by pydantic itself, so that its validators, converters and serializers run.
"""

from __future__ import annotations

import functools
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.state.errors import SerdeError

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError

_DUMPED: Final[Mapping[str, Any]] = {"by_alias": True, "round_trip": True, "warnings": "error"}
"""Writes what is read again: under aliases, without computed fields, and nothing of another type."""


def is_model(cls: object) -> bool:
    """Whether it is a pydantic model or a dataclass of pydantic's."""
    return isinstance(cls, type) and hasattr(cls, "__pydantic_validator__")


def has_model(tp: Any) -> bool:
    """Whether it is a model, or a generic type such as ``list`` of one."""
    return is_model(typing.get_origin(tp) or tp) or any(map(has_model, typing.get_args(tp)))


def model_fields(cls: type) -> Mapping[str, Any]:
    """The fields of a model, as pydantic describes them."""
    found: Mapping[str, Any] = getattr(cls, "model_fields", None) or getattr(cls, "__pydantic_fields__", {})
    return found


def check_model(cls: type) -> None:
    """Raise ``SerdeError`` if an instance of the model would not come back as it was: fields and attributes that are not
    written, and fields that are written under a name by which they are not read."""
    hidden = next(iter(getattr(cls, "__private_attributes__", ())), None)
    if hidden is not None:
        raise SerdeError(
            f"{cls.__name__}.{hidden} is private, and such attributes are not written; give it another name, or give a "
            "Serde of your own"
        )
    for name, field in model_fields(cls).items():
        if field.exclude:
            raise SerdeError(
                f"{cls.__name__}.{name} is not written (exclude=True), so that it would be lost; remove exclude, or give a "
                "Serde of your own"
            )
        written = field.serialization_alias or name
        if written not in _read_as(cls, name, field):
            raise SerdeError(
                f"{cls.__name__}.{name} is written as {written!r} and not read by that name; give it one alias for both: "
                "alias=…"
            )


def _read_as(cls: type, name: str, field: Any) -> list[object]:
    """The names by which a field is read."""
    alias = field.validation_alias
    config = getattr(cls, "model_config", None) or getattr(cls, "__pydantic_config__", {})
    by_name = alias is None or config.get("populate_by_name") or config.get("validate_by_name")
    return [*getattr(alias, "choices", [alias]), *([name] if by_name else [])]


class ModelCoder:
    """Writes and reads values of a type with models in it, as JSON or, by way of it, as MessagePack (``form``)."""

    def __init__(self, form: str, tp: Any) -> None:
        self.form = form
        self._adapter, self._packs = _adapter(tp), form == "msgpack"

    def encode(self, value: Any) -> bytes:
        """The bytes of a value. Raises ``SerdeError`` for one that does not fit the type."""
        try:
            data = self._adapter.dump_json(value, **_DUMPED)
        except ValueError as exc:  # PydanticSerializationError is one
            raise SerdeError(f"{value!r:.100}: {_first_line(exc)}") from exc
        return msgspec.msgpack.encode(msgspec.json.decode(data)) if self._packs else data

    def encode_fields(self, value: Any) -> bytes:
        """The bytes of a value, or of a dict of its fields, which is validated."""
        return self.encode(_validated(self._adapter.validate_python, value) if isinstance(value, dict) else value)

    def decode(self, data: bytes) -> Any:
        """The value of these bytes. Raises ``SerdeError`` that names the fields that do not fit."""
        if self._packs:
            data = msgspec.json.encode(msgspec.msgpack.decode(data))
        return _validated(self._adapter.validate_json, data)


@functools.cache
def _adapter(tp: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(tp)


def _validated(validate: Callable[[Any], Any], given: Any) -> Any:
    from pydantic import ValidationError

    try:
        return validate(given)
    except ValidationError as exc:
        raise SerdeError(_problems(exc)) from exc


def _problems(error: ValidationError) -> str:
    """In one line: the fields, and what is wrong with each."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(": ".join(filter(None, (".".join(map(str, e["loc"])), e["msg"]))) for e in found)


def _first_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


def converted(value: Any, tp: Any, *, strict: bool = True, kinds: Sequence[Any] = ()) -> Any:
    """``msgspec.convert`` that knows models: plain values as an instance of the type. ``kinds``: types that stay as they
    are. Raises ``msgspec.ValidationError`` or ``SerdeError`` naming the field that does not fit."""
    if has_model(tp):
        return _validated(_adapter(tp).validate_python, value)
    return msgspec.convert(value, tp, strict=strict, builtin_types=kinds)


def plain(
    value: Any, *, kinds: Sequence[Any] = (), other: Callable[[Any], Any] | None = None, str_keys: bool = False
) -> Any:
    """``msgspec.to_builtins`` that knows models: a value as plain ones. ``kinds``: types that stay as they are. ``other``:
    what becomes of values of unknown types, which raise ``TypeError`` without it."""

    def unknown(found: Any) -> Any:
        kind: Any = type(found)
        if is_model(kind):
            return _adapter(kind).dump_python(found, **_DUMPED)
        if other is None:
            raise TypeError(f"{type(found).__name__} is not a type that can be written: {found!r:.100}")
        return other(found)

    return msgspec.to_builtins(value, builtin_types=kinds, enc_hook=unknown, str_keys=str_keys)
