"""``LIKE`` as a regular expression that takes time in proportion to the text.

Between two ``%`` lies a segment. Its first match after the previous segment is as good as any later one, so each
segment is an atomic group, which is never tried at another place. Only the last segment is searched from the end.
"""

from __future__ import annotations

import re


def like_pattern(pattern: str) -> str:
    """The regular expression for texts that are ``LIKE`` the pattern: ``_`` is one character, ``%`` any number."""
    first, *more = ("".join("." if c == "_" else re.escape(c) for c in part) for part in pattern.split("%"))
    if not more:
        return rf"(?s)\A{first}\Z"
    between = "".join(f"(?>.*?{segment})" for segment in more[:-1] if segment)
    return rf"(?s)\A{first}{between}" + (rf".*{more[-1]}\Z" if more[-1] else "")
