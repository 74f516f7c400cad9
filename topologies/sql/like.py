"""``LIKE`` as a regular expression that takes time in proportion to the text.

Between two ``%`` lies a segment, and its first place behind the segment before it is as good as any later one. So each is
an atomic group, which is never tried at another place; only the last segment is looked for from the end.
"""

from __future__ import annotations

import re


def like_pattern(pattern: str) -> str:
    """The expression that is found in the texts that are ``LIKE`` the pattern: ``_`` is one character, ``%`` any number."""
    first, *more = ("".join("." if c == "_" else re.escape(c) for c in part) for part in pattern.split("%"))
    if not more:
        return rf"(?s)\A{first}\Z"
    between = "".join(f"(?>.*?{segment})" for segment in more[:-1] if segment)
    return rf"(?s)\A{first}{between}" + (rf".*{more[-1]}\Z" if more[-1] else "")
