"""Commits of positions that nobody waits for: the client is asked, and tells the answer in a later poll."""

from __future__ import annotations

from collections.abc import Mapping

import confluent_kafka
from confluent_kafka import KafkaError

from penstock.state.log import TopicPartition
from penstock.streams.kafka.errors import translate
from penstock.streams.ports import AskedCommit, Committed

_Places = set[tuple[str, int, int]]


class AskedCommits:
    """Finds the commit that an answer is for. ``on_commit`` is the client's callback of that name."""

    def __init__(self) -> None:
        self._open: list[tuple[_Places, AskedCommit]] = []

    def add(self, offsets: Mapping[TopicPartition, Committed]) -> AskedCommit:
        """One that is being asked for."""
        asked = AskedCommit()
        self._open.append(({(tp.topic, tp.partition, c.offset) for tp, c in offsets.items()}, asked))
        return asked

    def on_commit(self, err: KafkaError | None, partitions: list[confluent_kafka.TopicPartition]) -> None:
        """An answer. Of two commits of the same positions the one asked first is answered first."""
        places = {(p.topic, p.partition, p.offset) for p in partitions}
        for i, (wanted, asked) in enumerate(self._open):
            if wanted == places:
                del self._open[i]
                refused = err or next((p.error for p in partitions if p.error is not None), None)
                if refused is not None:
                    asked.error = translate(refused, f"committing positions of {len(places)} partitions")
                asked.answered = True
                return
