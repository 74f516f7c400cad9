"""A rolling word count: every word of every line increments its count, and each new count is written."""

from __future__ import annotations

from penstock.topologies.columnar.word_splitting import words
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.graph.topology import Topology
from penstock.topologies.operator_api.operator import Emission


def build(source: str = "lines", output: str = "word-counts", *, emission: Emission = "every_update") -> Topology:
    """Counts (text) under their words. ``per_commit`` writes the last count per word and commit."""
    builder = StreamsBuilder("word-count", value=str, emission=emission)
    counts = builder.stream(source).flat_map_values(words).group_by(lambda _, word: word).count(name="counts")
    counts.to_stream().map_values(str, value=str).to(output)
    return builder.build()
