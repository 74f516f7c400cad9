"""``LIKE``: which texts it takes, by rows and by columns, and texts on which trying every place would never end."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.streams.task.task_options import TaskOptions
from penstock.topologies.sql.like import like_pattern


def alike(text: str, pattern: str) -> bool:
    """By the definition, character by character."""
    if not pattern:
        return not text
    if pattern[0] == "%":
        return any(alike(text[i:], pattern[1:]) for i in range(len(text) + 1))
    return bool(text) and pattern[0] in ("_", text[0]) and alike(text[1:], pattern[1:])


@given(st.text("ab%.\n\\", max_size=7), st.text("ab_%.\\", max_size=6))
def test_the_same_as_the_definition(text: str, pattern: str) -> None:
    assert (re.search(like_pattern(pattern), text) is not None) == alike(text, pattern)


@pytest.mark.parametrize("pattern", ["%a%b%c%", "%a%b%_c", "%ab%ab%ab%c"])
@pytest.mark.parametrize("text", ["a" * 50_000 + "b" * 50_000, "ab" * 50_000])
def test_long_texts_are_looked_through_once(pattern: str, text: str) -> None:
    """Where each segment was tried at every place, these took hours."""
    assert re.search(like_pattern(pattern), text) is None
    assert re.search(like_pattern(pattern), text + "abababxc") is not None


class Text(msgspec.Struct):
    """A record."""

    text: str | None


@pytest.mark.parametrize("pattern", ["a%b_%c", "%b%", "abc", "", "%", "_%_", "%a.c"])
def test_rows_and_columns_agree(pattern: str) -> None:
    texts = ["", "a", "ab", "abc", "a.c", "abxc", "aabbcc", "a\nb\nc", None] * 20
    found: dict[str, list[Any]] = {}
    for columns in ("auto", "off"):
        builder = ps.StreamsBuilder("like", value=Text)
        builder.sql(f"SELECT text FROM texts WHERE text LIKE '{pattern}'", texts=builder.stream("texts")).to("out")
        options: Any = TaskOptions(columns=columns)
        with ps.TopologyTestDriver(builder.build(), options=options) as driver:
            driver.pipe_all("texts", [ps.Record("", Text(text), i) for i, text in enumerate(texts)])
            found[columns] = [r.timestamp_ms for r in driver.read("out")]
    expected = [i for i, text in enumerate(texts) if text is not None and alike(text, pattern)]
    assert found == {"auto": expected, "off": expected}
