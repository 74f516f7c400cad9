"""Micro-batches in the DSL: the result of ``KStream.micro_batches``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, overload

from penstock.state.serdes.serde import SerdeLike
from penstock.state.type_parameters import KR, V2, VR, A, K, V
from penstock.topologies.aggregators.base import Aggregator
from penstock.topologies.aggregators.numeric import count as counting
from penstock.topologies.dsl.internals import micro_batches
from penstock.topologies.dsl.internals.micro_batches import Batches, KeptSides
from penstock.topologies.operators.micro_batches.micro_batches import Intervals
from penstock.topologies.windows.durations import Duration

if TYPE_CHECKING:
    from penstock.topologies.dsl.kstream import KStream


class MicroBatches(Generic[K, V]):
    """A stream in batches: see ``KStream.micro_batches`` and
    ``penstock.topologies.operators.micro_batches.micro_batches``. Methods that work on batches return batches of their
    results, in the same intervals. Methods that work record by record (``map``…) keep the batches. ``stream`` is the
    stream that is cut."""

    def __init__(self, stream: KStream[K, V], intervals: Intervals) -> None:
        self.stream = stream
        self.intervals = intervals

    @property
    def _batches(self) -> Batches:
        return Batches(self.stream._flow, self.intervals)

    def _made(self, batches: Batches) -> MicroBatches[Any, Any]:
        return MicroBatches(batches.flow.wiring.handles.stream(batches.flow), batches.intervals)

    # -- record by record ------------------------------------------------------------------------------------------

    def map(
        self,
        fn: Callable[[K, V], tuple[KR, VR]],
        *,
        key: SerdeLike[KR] | None = None,
        value: SerdeLike[VR] | None = None,
        name: str | None = None,
    ) -> MicroBatches[KR, VR]:
        """As ``KStream.map``."""
        return MicroBatches(self.stream.map(fn, key=key, value=value, name=name), self.intervals)

    def flat_map(
        self,
        fn: Callable[[K, V], Iterable[tuple[KR, VR]]],
        *,
        key: SerdeLike[KR] | None = None,
        value: SerdeLike[VR] | None = None,
        name: str | None = None,
    ) -> MicroBatches[KR, VR]:
        """As ``KStream.flat_map``."""
        return MicroBatches(self.stream.flat_map(fn, key=key, value=value, name=name), self.intervals)

    def map_values(
        self, fn: Callable[[V], VR], *, value: SerdeLike[VR] | None = None, name: str | None = None
    ) -> MicroBatches[K, VR]:
        """As ``KStream.map_values``."""
        return MicroBatches(self.stream.map_values(fn, value=value, name=name), self.intervals)

    def filter(self, fn: Callable[[K, V], object], *, name: str | None = None) -> MicroBatches[K, V]:
        """As ``KStream.filter``."""
        return MicroBatches(self.stream.filter(fn, name=name), self.intervals)

    def to_stream(self) -> KStream[K, V]:
        """Return the records as a stream."""
        return self.stream

    def to(self, topic: str, **how: Any) -> None:
        """As ``KStream.to``."""
        self.stream.to(topic, **how)

    # -- windows ---------------------------------------------------------------------------------------------------

    def window(self, length: Duration, slide: Duration | None = None) -> MicroBatches[K, V]:
        """Return batches of the last ``length``, every ``slide`` (``None``: every interval); both multiples of the
        interval."""
        return MicroBatches(self.stream, micro_batches.windowed(self._batches, length, slide))

    # -- whole batches ---------------------------------------------------------------------------------------------

    def transform(
        self,
        fn: Callable[[list[tuple[K, V]]], Iterable[tuple[KR, VR]]],
        *,
        key: SerdeLike[KR] | None = None,
        value: SerdeLike[VR] | None = None,
        name: str | None = None,
    ) -> MicroBatches[KR, VR]:
        """Replace the pairs of a batch by ``fn(pairs)``. One task gets all pairs of key and value, in order of arrival,
        through a repartition topic."""
        return self._made(micro_batches.transformed(self._batches, fn, key, value, name))

    def foreach(self, fn: Callable[[list[tuple[K, V]]], object], *, name: str | None = None) -> None:
        """Call ``fn(pairs)`` with every batch for its effect, which may repeat after a restart."""
        micro_batches.called(self._batches, fn, name)

    def print(self, n: int = 10, *, write: Callable[[str], object] | None = None, name: str | None = None) -> None:
        """Print the time of every batch and its first ``n`` pairs (``write``: instead of standard output)."""
        micro_batches.printed(self._batches, n, write or print, name)

    @overload
    def join(
        self, other: MicroBatches[K, V2], *, how: KeptSides = "inner", name: str | None = None
    ) -> MicroBatches[K, list[Any]]: ...

    @overload
    def join(
        self,
        other: MicroBatches[K, V2],
        joiner: Callable[[V, V2], VR] | None = None,
        *,
        how: KeptSides = "inner",
        value: SerdeLike[VR] | None = None,
        name: str | None = None,
    ) -> MicroBatches[K, VR]: ...

    def join(
        self,
        other: MicroBatches[K, V2],
        joiner: Callable[[V, V2], VR] | None = None,
        *,
        how: KeptSides = "inner",
        value: SerdeLike[VR] | None = None,
        name: str | None = None,
    ) -> MicroBatches[K, VR] | MicroBatches[K, list[Any]]:
        """Emit ``joiner(left, right)`` (default: a list of both) for all pairs with equal keys in batches of the same
        time. With ``how`` left, right or outer, records without a partner are joined with ``None``."""
        return self._made(micro_batches.joined(self._batches, other, joiner, how=how, value=value, name=name))

    # -- aggregates ------------------------------------------------------------------------------------------------

    def count(self, *, name: str | None = None) -> MicroBatches[int, int]:
        """Count the records of each non-empty batch, keyed by the batch's start in milliseconds."""
        return self._made(micro_batches.aggregated(self._batches, counting(), name, "batch-count"))

    def reduce(self, fn: Callable[[V, V], V], *, name: str | None = None) -> MicroBatches[int, V]:
        """Fold the values of each batch with ``fn(a, b)``, keyed by its start; ``fn`` must be associative and
        commutative."""
        reducing = micro_batches.reducing(self._batches, fn, None, name)
        return self._made(micro_batches.aggregated(self._batches, reducing, name, "batch-reduce"))

    def reduce_by_window(
        self,
        fn: Callable[[V, V], V],
        inv: Callable[[V, V], V] | None,
        window: Duration,
        slide: Duration | None = None,
        *,
        name: str | None = None,
    ) -> MicroBatches[int, V]:
        """``window(window, slide).reduce(fn)``. With ``inv(total, x)``, which takes out what ``fn`` put in, each window
        is computed from the one before."""
        windowed = self.window(window, slide)
        reducing = micro_batches.reducing(self._batches, fn, inv, name)
        return self._made(micro_batches.aggregated(windowed._batches, reducing, name, "batch-reduce"))

    def aggregate(self, aggregator: Aggregator[A, V], *, name: str | None = None) -> MicroBatches[int, A]:
        """Aggregate each batch, whatever the keys, keyed by the batch's start: every task computes a partial, and one
        task merges them. Without a watermark strategy, if one task lags behind the others, a result is emitted again,
        more complete."""
        return self._made(micro_batches.aggregated(self._batches, aggregator, name, "batch-aggregate"))

    def reduce_by_key(self, fn: Callable[[V, V], V], *, name: str | None = None) -> MicroBatches[K, V]:
        """Fold the values of each key of a batch with ``fn(a, b)``; ``fn`` must be associative."""
        reducing = micro_batches.reducing(self._batches, fn, None, name)
        return self._made(micro_batches.aggregated_by_key(self._batches, reducing, name, "batch-reduce-by-key"))

    def reduce_by_key_and_window(
        self,
        fn: Callable[[V, V], V],
        inv: Callable[[V, V], V] | None,
        window: Duration,
        slide: Duration | None = None,
        *,
        name: str | None = None,
    ) -> MicroBatches[K, V]:
        """``window(window, slide).reduce_by_key(fn)``. With ``inv(total, x)``, which takes out what ``fn`` put in, each
        window is computed from the one before and the values that entered and left."""
        reducing = micro_batches.reducing(self._batches, fn, inv, name)
        windowed = self.window(window, slide)
        return self._made(micro_batches.aggregated_by_key(windowed._batches, reducing, name, "batch-reduce-by-key"))

    def count_by_key(self, *, name: str | None = None) -> MicroBatches[K, int]:
        """Count the records of each key of a batch."""
        return self._made(micro_batches.aggregated_by_key(self._batches, counting(), name, "batch-count-by-key"))

    def count_by_value(self, *, name: str | None = None) -> MicroBatches[V, int]:
        """Count how often each value occurs in a batch, keyed by the value."""
        return self._made(micro_batches.counted_by_value(self._batches, name))

    def aggregate_by_key(self, aggregator: Aggregator[A, V], *, name: str | None = None) -> MicroBatches[K, A]:
        """Aggregate each key of a batch. If the aggregate can be subtracted exactly, or is a reduce with an inverse, a
        window is computed from the one before and the values that entered and left."""
        made = micro_batches.aggregated_by_key(self._batches, aggregator, name, "batch-aggregate-by-key")
        return self._made(made)

    def update_state_by_key(
        self,
        fn: Callable[[list[V], A | None], A | None],
        initial_state: Mapping[K, A] | None = None,
        timeout: Duration | None = None,
        *,
        state: SerdeLike[A] | None = None,
        name: str | None = None,
    ) -> MicroBatches[K, A]:
        """Update per batch each key that has a state or new values: the new state is ``fn(values, state)``. ``None``
        stands for no state, as argument and as result. It is called for keys without new values too. ``initial_state``:
        states of keys before the first batch; the stream then goes through a repartition topic. ``timeout``: drop a
        key's state if it got no values for that time. ``state``: the serde of states (``None``: the serde of the
        stream's values)."""
        return self._made(micro_batches.with_states(self._batches, fn, initial_state, timeout, state=state, name=name))
