"""The producer of a commit group: opened, retired and replaced, with its transaction and its timeouts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from penstock.state.errors import PenstockError
from penstock.streams.events.facts import ProducerRetired
from penstock.streams.events.port import EventSink
from penstock.streams.ports.log import LogProducer, ProducerRetiredError
from penstock.streams.runtime.fixed_fence import FencedPositions

LEAST_WAIT_S = 0.05
"""The wait for an answer if the time is over: one that has already arrived is taken."""


@dataclasses.dataclass(frozen=True)
class CommitTimeouts:
    """``flush_s`` bounds the wait for acknowledgements, ``transaction_s`` each transactional request, and a third of the
    wait for an older producer's transaction to end."""

    flush_s: float = 30.0
    transaction_s: float = 10.0


class CommitProducer:
    """See the module. ``on_begun`` is called when a transaction has begun, ``on_open`` after a producer was opened:
    it raises if the tasks are not available. ``yields`` and ``positions``: see ``Committer``."""

    def __init__(
        self,
        open_producer: Callable[[], LogProducer],
        timeouts: CommitTimeouts,
        on_begun: Callable[[], None],
        *,
        transactional: bool,
        yields: bool,
        positions: FencedPositions | None,
        on_open: Callable[[], None] | None,
        events: EventSink,
    ) -> None:
        self._open_producer = open_producer
        self._whole_timeouts = timeouts
        self._on_begun = on_begun
        self._transactional = transactional
        self._yields = yields
        self._positions = positions
        self._on_open = on_open or (lambda: None)
        self._events = events
        self._left_s: Callable[[], float] | None = None
        self.client: LogProducer | None = None
        """``None``: there is none, or it was retired."""
        self.in_transaction = False

    @property
    def timeouts(self) -> CommitTimeouts:
        """Those of now."""
        if self._left_s is None:
            return self._whole_timeouts
        left_s = max(self._left_s(), LEAST_WAIT_S)
        return CommitTimeouts(
            min(self._whole_timeouts.flush_s, left_s), min(self._whole_timeouts.transaction_s, left_s / 3)
        )

    @contextmanager
    def within(self, limit_s: float, clock_s: Callable[[], float]) -> Iterator[None]:
        """Inside, all requests to the producer together wait for at most this time, and then count as not answered. A
        transactional request waits for a third of what is left, because a failed one is followed by an abort and
        perhaps by the end of an older transaction."""
        until_s = clock_s() + limit_s
        self._left_s = lambda: until_s - clock_s()
        try:
            yield
        finally:
            self._left_s = None

    def open(self) -> None:
        """Open the producer; under exactly-once this fences older ones and waits for their transactions to end."""
        if self.client is None:
            producer = self._open_producer()
            if self._transactional:
                try:
                    producer.init_transactions(self.timeouts.transaction_s * 3)
                except BaseException:
                    producer.close()
                    raise
            self.client = producer
            self.in_transaction = False
            try:
                if self._positions is not None:
                    self._positions.open()
                self._on_open()
            except BaseException:
                self.retire()
                raise

    def retire(self, cause: PenstockError | None = None) -> None:
        """Retire the producer; its open transaction ends by fencing or timeout. ``cause``: reported if given."""
        if self.client is not None:
            self.client.close()
            if cause is not None:
                self._events.emit(ProducerRetired(cause))
        if self._positions is not None:
            self._positions.close()
        self.client = None
        self.in_transaction = False

    def ready(self) -> LogProducer:
        """Return the producer, opened, with a transaction open under exactly-once. Raises ``ProducerRetiredError`` if
        it was retired and must not be replaced."""
        if self.client is None and self._yields:
            raise ProducerRetiredError("the producer of these fixed partitions was retired; see who owns them first")
        self.open()
        assert self.client is not None
        if self._transactional and not self.in_transaction:
            try:
                self.client.begin()
            except ProducerRetiredError as exc:
                if self._yields:
                    raise  # the abort first checks who owns the partition
                # retired after its last commit, with nothing sent since: nothing is lost with it
                self.retire(exc)
                self.open()
                self.client.begin()
            self.in_transaction = True
            self._on_begun()
        return self.client
