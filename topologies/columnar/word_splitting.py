"""Functions of texts that operators know: as any function row by row, and over columns where batches have them."""

from __future__ import annotations


def words(text: str) -> list[str]:
    """The words of a text in lower case: what white space parts, as ``str.split`` sees it. For ``flat_map_values``."""
    return text.lower().split()
