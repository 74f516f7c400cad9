"""A JSON document that is read whole or not at all: ``{"version", "sha256", "<name>"}``, with the checksum of the raw bytes
of what stands under the name. Pure."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from typing import Any, Generic, TypeVar

import msgspec

T = TypeVar("T", bound=msgspec.Struct)
_UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)
"""The errors for bytes that are not a document; text that is not UTF-8 is a ``ValueError``."""


@dataclasses.dataclass(frozen=True)
class ChecksummedFormat(Generic[T]):
    """A kind of document. ``name``: of its content, an instance of ``type``."""

    name: str
    version: int
    type: type[T]

    def encode(self, content: T) -> bytes:
        """The document."""
        body = msgspec.json.encode(content)
        digest = hashlib.sha256(body).hexdigest()
        return msgspec.json.encode(_document(self.name)(self.version, digest, msgspec.Raw(body)))

    def decode(self, data: bytes) -> T:
        """The content. Raises ``ValueError``, which says what is wrong, for any other bytes."""
        try:
            document: Any = msgspec.json.decode(data, type=_document(self.name))
        except _UNREADABLE as exc:
            raise ValueError(f"it is not a {self.name} ({exc})") from exc
        if document.version != self.version:
            raise ValueError(f"it has version {document.version}, and this release reads version {self.version} only")
        body = bytes(getattr(document, self.name))
        if (found := hashlib.sha256(body).hexdigest()) != document.sha256:
            raise ValueError(f"its checksum is {found} where {document.sha256} was written")
        try:
            return msgspec.json.decode(body, type=self.type)
        except _UNREADABLE as exc:
            raise ValueError(f"the {self.name} is incomplete ({exc})") from exc


@functools.cache
def _document(name: str) -> type[msgspec.Struct]:
    return msgspec.defstruct("Document", [("version", int), ("sha256", str), (name, msgspec.Raw)])
