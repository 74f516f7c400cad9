"""Randomness and ids that a replay repeats: derived from the position of the input record, not from the machine.

The same input record gets the same draws in the same operator, for any batch size, runner or restart; different records
get independent draws. Not for secrets: anyone who knows the log can compute them.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from hashlib import blake2b
from typing import Any, TypeVar

T = TypeVar("T")
_53 = 1 << 53


class Draws:
    """A stream of draws from a seed: each is the hash of the seed and how many came before."""

    def __init__(self) -> None:
        self._seed = b""
        self._count = 0

    def at(self, *place: Any) -> None:
        """Start at another place; the current place continues its sequence."""
        seed = repr(place).encode()
        if seed != self._seed:
            self._seed, self._count = seed, 0

    def bits(self, count: int = 64) -> int:
        """An integer of ``bits`` random bits, at most 256."""
        data = blake2b(self._seed, digest_size=32, salt=self._count.to_bytes(16, "big")).digest()
        self._count += 1
        return int.from_bytes(data, "big") >> (256 - count)

    def random(self) -> float:
        """A float in [0, 1)."""
        return self.bits(53) / _53

    def integer(self, below: int) -> int:
        """An integer in [0, below), all equally likely."""
        if below < 1:
            raise ValueError(f"integer(below={below}) has no values; give 1 or more")
        width = below.bit_length()
        while (drawn := self.bits(width)) >= below:
            pass
        return drawn

    def choice(self, of: Sequence[T]) -> T:
        """One of the elements."""
        return of[self.integer(len(of))]

    def shuffle(self, items: MutableSequence[Any]) -> None:
        """Shuffle in place."""
        for i in range(len(items) - 1, 0, -1):
            j = self.integer(i + 1)
            items[i], items[j] = items[j], items[i]

    def id(self) -> str:
        """A UUID (version 8: custom) as text."""
        value = self.bits(128)
        value = (value & ~(0xF << 76)) | (8 << 76)
        value = (value & ~(0x3 << 62)) | (2 << 62)
        text = f"{value:032x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
