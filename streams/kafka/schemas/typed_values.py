"""Values of a type, from what a schema's library reads and to what it writes: dicts of fields."""

from __future__ import annotations

import datetime
import decimal
import uuid
from dataclasses import dataclass
from typing import Any

import msgspec

from penstock.state.errors import SettingsError
from penstock.state.serdes.models import converted, plain

AVRO_KINDS = (
    bytes,
    bytearray,
    datetime.datetime,
    datetime.date,
    datetime.time,
    datetime.timedelta,
    decimal.Decimal,
    uuid.UUID,
)
"""The types that Avro's library reads and writes as they are, by logical types."""


@dataclass(frozen=True)
class TypedValues:
    """``type`` is a msgspec Struct, a dataclass, an attrs class or a pydantic model; ``None``: values are what the library
    gives. ``kinds`` are the types that the library takes as they are."""

    type: Any = None
    kinds: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        if self.type is None:
            return
        try:
            msgspec.inspect.type_info(self.type)
        except TypeError as exc:
            raise SettingsError(
                f"{self.type!r} cannot be the type of values: {exc}; give a Struct, a dataclass, an attrs class or a "
                "pydantic model"
            ) from exc

    def read(self, value: Any) -> Any:
        """The value of the type. Raises ``msgspec.ValidationError`` or ``SerdeError`` naming the field that does not fit."""
        return value if self.type is None else converted(value, self.type, kinds=self.kinds)

    def write(self, value: Any) -> Any:
        """The fields of the value."""
        if self.type is None:
            return value
        if isinstance(self.type, type) and not isinstance(value, self.type):
            raise TypeError(f"expected {self.type.__name__}, got {type(value).__name__}")
        return plain(value, kinds=self.kinds)
