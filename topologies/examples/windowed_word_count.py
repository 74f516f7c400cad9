"""Word counts in windows, each written when its window has closed. Lines are at most 2 s late."""

from __future__ import annotations

import re
from collections.abc import Callable

from penstock.topologies.columnar.word_splitting import words
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operator_api.watermark_strategies import bounded_out_of_orderness
from penstock.topologies.windows import TumblingWindows, tumbling


def beam_words(line: str) -> list[str]:
    """Split the line into words as Beam's examples do, without changing case."""
    return [word for word in re.split("[^a-zA-Z']+", line) if word]


def build(
    windows: TumblingWindows, split: Callable[[str], list[str]], source: str = "lines", output: str = "word-counts"
) -> Topology:
    """Counts (longs) under words and windows."""
    builder = StreamsBuilder("windowed-word-count", value=str)
    lines = builder.stream(source, watermark=bounded_out_of_orderness("2s"))
    by_word = lines.flat_map_values(split).group_by(lambda _, word: word).windowed_by(windows)
    by_word.count(name="counts", emission="on_close").to(output)
    return builder.build()


def five_seconds() -> Topology:
    """Words in lower case, every five seconds."""
    return build(tumbling("5s", grace=0), words)


def five_minutes() -> Topology:
    """Beam's words, every five minutes."""
    return build(tumbling("5m", grace=0), beam_words)
