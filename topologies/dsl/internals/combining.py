"""Decide which aggregations combine before their repartition topic, and wire them: see
``penstock.topologies.operators.aggregates.combine``."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Final

from penstock.state.errors import TopologyError
from penstock.state.serdes.serde import BYTES
from penstock.state.serdes.window_keys import WindowedSerde
from penstock.topologies.aggregators.members_apart import part_at
from penstock.topologies.dsl.wiring import Flow
from penstock.topologies.operator_api.edge_kinds import ANY_KIND
from penstock.topologies.operator_api.internal_names import REPARTITION
from penstock.topologies.operators.aggregates.combine import CombineSpec
from penstock.topologies.operators.aggregates.fold import Aggregation, Fold, FoldApart
from penstock.topologies.operators.records.source_sink import SourceSpec, Split
from penstock.topologies.windows import SessionWindows, SpanWindows

LEAST_GRACE_MS: Final = 10_000
"""From this grace on, windows that stream time closes are combined by default. With combining, tasks that write one
topic may be one more commit interval apart, which must not make records late."""


class Grouping:
    """Records with their keys, sent through a repartition topic when an aggregation needs them: ``flow`` is the stream
    before it; ``send`` sends all records."""

    def __init__(
        self,
        flow: Flow,
        send: Callable[[], Flow],
        *,
        partitions: int | None,
        sends: bool,
        ways: int | None = None,
    ) -> None:
        self.flow = flow
        self.ways = ways
        """The number of sub-keys over which each key's records are spread."""
        self.partitions = partitions
        self.sends = sends
        """Whether there is a topic in between."""
        self._send = send
        self._sent: Flow | None = None

    @property
    def sent(self) -> Flow:
        """The records behind the topic."""
        if self.ways is not None:
            raise TopologyError(
                f"group of {self.flow.out}: split({self.ways}) is for aggregations that merge partial ones (count, reduce, "
                "aggregate, agg); leave split out here"
            )
        if self._sent is None:
            self._sent = self._send()
        return self._sent

    def split(self, ways: int) -> Grouping:
        """Spread each key's records over sub-keys."""
        if type(ways) is not int or ways < 2:
            raise TopologyError(f"group of {self.flow.out}: split({ways!r:.60}) does not split; give at least 2")
        return Grouping(self.flow, self._send, partitions=self.partitions, sends=True, ways=ways)


def input_of(
    grouping: Grouping, request: Aggregation, combine: bool | None, merge: Callable[[Any, Any], Any] | None
) -> tuple[Flow, Aggregation]:
    """Return the input of an aggregation: the records, or partials of them with the request to merge these.
    ``combine``: what the user set, ``None`` for the default. ``merge``: merges two partials, if it is exact enough for
    the user.

    Raises ``TopologyError`` if ``combine=True`` is not possible."""
    why_not = _obstacle(grouping.flow, request, merge)
    if grouping.ways is not None:
        why_not = why_not or _obstacle_to_split(request, combine)
        if why_not is not None:
            raise TopologyError(f"operator {request.name!r}: split({grouping.ways}), but {why_not}; leave split out")
        assert merge is not None
        return _combined(grouping, _spread(grouping, request, grouping.ways), request, merge)
    if not grouping.sends or combine is False:
        return grouping.sent, request
    if why_not is not None:
        if combine:
            raise TopologyError(f"operator {request.name!r}: combine=True, but {why_not}; leave combine out")
        return grouping.sent, request
    if combine is None and not _by_default(request, combines=grouping.flow.wiring.combines):
        return grouping.sent, request
    assert merge is not None
    return _combined(grouping, grouping.flow, request, merge)


def _obstacle_to_split(request: Aggregation, combine: bool | None) -> str | None:
    """Return why a key's records cannot be spread over several tasks."""
    windows = request.windows
    if combine is False:
        return "combine=False: splitting needs combining to merge the parts"
    if windows is None or windows.horizon_ms is None or request.by_watermark:
        return None
    return "which records are late would depend on how tasks interleave (give the source a watermark strategy)"


def _spread(grouping: Grouping, request: Aggregation, ways: int) -> Flow:
    """Key the records by sub-keys."""
    flow = grouping.flow
    return flow.wiring.repartition(
        flow, partitions=grouping.partitions, name=f"{request.name}-split", route=Split(ways)
    )


def _obstacle(flow: Flow, request: Aggregation, merge: Callable[[Any, Any], Any] | None) -> str | None:
    """Return why records cannot be combined."""
    windows = request.windows
    if merge is None:
        return (
            "nothing says that its partial aggregates merge exactly (give merge=, take an aggregate that merges, with "
            "number=int or Decimal, or allow the rest with approximate=True)"
        )
    if request.emission == "every_update":
        return "emission='every_update' shows every record's update; use 'per_commit' or 'on_close'"
    if request.late:
        return "late=True needs the original records"
    if request.ttl_ms is not None:
        return "a ttl depends on the time of every record"
    if isinstance(windows, SessionWindows):
        return _obstacle_of_sessions(windows, request)
    if windows is not None and not windows.ordered:
        return f"{windows.describe()} do not follow from the timestamp alone"
    if getattr(windows, "before_epoch", False):
        return "windows that start before 1970 are kept record by record"
    if isinstance(flow.key, WindowedSerde):
        return "its keys are windowed"
    return None


def _obstacle_of_sessions(windows: SessionWindows, request: Aggregation) -> str | None:
    """Return why records of sessions cannot be combined."""
    if windows.gap_fn is not None or windows.gap_ms == 0:
        return f"{windows.describe()} do not follow from the timestamp alone"
    if not request.fold.counts:
        return "sessions of other aggregates than counts are kept record by record"
    if not request.by_watermark and windows.time == "event":
        return (
            "which records sessions reach would depend on how tasks interleave (give the source a watermark strategy)"
        )
    return None


def _by_default(request: Aggregation, *, combines: bool) -> bool:
    """Whether an aggregation is combined by default."""
    windows = request.windows
    if _by_the_clock(request):
        return combines
    if request.emission == "on_close":
        return combines and request.by_watermark
    if request.emission != "per_commit" or not combines:
        return False
    return windows is None or request.by_watermark or windows.horizon_ms is None or windows.grace_ms >= LEAST_GRACE_MS


def _by_the_clock(request: Aggregation) -> bool:
    """Whether its windows are those of the moment at which it takes a record."""
    return request.windows is not None and request.windows.time == "processing"


def _combined(
    grouping: Grouping, flow: Flow, request: Aggregation, merge: Callable[[Any, Any], Any]
) -> tuple[Flow, Aggregation]:
    """Wire the combining operator after a flow of records, and the topic of partials."""
    wiring = flow.wiring
    windows, by_the_clock = request.windows, _by_the_clock(request)
    gap_ms = windows.gap_ms if isinstance(windows, SessionWindows) and not by_the_clock else None
    assert windows is None or isinstance(windows, SpanWindows | SessionWindows)
    topic = f"{request.name}-partials{REPARTITION}"
    spec = CombineSpec(
        topic=topic,
        fold=request.fold,
        key_serde=flow.key,
        record_serde=flow.value,
        partial_serde=request.value,
        windows=windows if isinstance(windows, SpanWindows) and not by_the_clock else None,
        by_watermark=request.by_watermark,
        at_once=by_the_clock or gap_ms is not None,
        gap_ms=gap_ms,
    )
    wiring.add(f"{request.name}-combine", spec, flow)
    partials = dataclasses.replace(
        flow, operator=f"{request.name}-combine", port=None, value=request.value, route="key", rekeyed=False
    )
    written = partials if spec.keeps_keys else dataclasses.replace(partials, key=BYTES)
    sink = dataclasses.replace(wiring.internal_sink(topic, written, grouping.partitions), packs=True)
    wiring.add(f"{topic}-sink", sink, partials)
    source = SourceSpec(
        topic=topic,
        key_serde=flow.key,
        value_serde=request.value,
        internal=True,
        partitions=grouping.partitions,
        packed=True,
        partials_of="" if request.windows is None else request.windows.describe(),
        accepts=ANY_KIND,
    )
    wiring.add_source(topic, source)
    merging = dataclasses.replace(request, fold=_of_partials(request.fold, merge), record=request.value)
    return dataclasses.replace(partials, operator=topic), merging


def _of_partials(fold: Fold, merge: Callable[[Any, Any], Any]) -> Fold:
    """Return the fold that merges partials of this fold."""
    return dataclasses.replace(
        fold,
        adders=(lambda key, partial, aggregate: merge(aggregate, partial),),
        init=None,
        timed=False,
        counts=False,
        sums=fold.counts,
        partials=True,
        apart=None if fold.apart is None else _partials_apart(fold.apart),
    )


def _partials_apart(apart: FoldApart) -> FoldApart:
    """Return the form with members apart of the fold that merges partials, which hold their members themselves."""
    merge, distinct = apart.merge, apart.fold.distinct
    assert merge is not None and distinct is not None
    paths = distinct.paths

    def members(partial: Any) -> list[tuple[int, bytes]]:
        return [(number, member) for number, path in enumerate(paths) for member, _ in part_at(partial, path)]

    fold = dataclasses.replace(
        apart.fold,
        adders=(lambda key, partial, aggregate: merge(aggregate, partial),),
        timed=False,
        partials=True,
        distinct=distinct._replace(members=members),
    )
    return apart._replace(fold=fold)
