"""Panes: the results of windows with triggers."""

from __future__ import annotations

from typing import Generic

from penstock.state.log import Windowed
from penstock.state.type_parameters import K, V, VIn
from penstock.topologies.dsl.internals.triggering import late_records
from penstock.topologies.dsl.kstream import KStream
from penstock.topologies.dsl.wiring import Flow


class TriggeredStream(KStream[Windowed[K], V], Generic[K, V, VIn]):
    """The panes: a stream whose keys are ``Windowed`` (sessions: ``[first, last + gap)``). ``VIn``: the type of the
    records' values."""

    def __init__(self, flow: Flow, records: Flow) -> None:
        super().__init__(flow)
        self._records = records
        self._late: KStream[K, VIn] | None = None

    @property
    def late(self) -> KStream[K, VIn]:
        """The records that arrived after all their windows had closed, unchanged."""
        if self._late is None:
            self._late = KStream(late_records(self._records, self.name))
        return self._late
