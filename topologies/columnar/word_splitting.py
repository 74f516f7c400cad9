"""Functions of texts that operators recognize: called row by row like any function, and run over columns if batches
have them."""

from __future__ import annotations


def words(text: str) -> list[str]:
    """The words of a text in lower case, split at white space as by ``str.split``. For ``flat_map_values``."""
    return text.lower().split()
