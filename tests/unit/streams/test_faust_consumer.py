"""What Faust's agents hand over around rebalances, without Faust."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

import pytest

from penstock.state.errors import RetriableError
from penstock.state.log import TopicPartition
from penstock.streams.faust import consumer as module
from penstock.streams.faust.consumer import Arrived, FaustConsumer

TP = TopicPartition("in", 0)


async def offered_before_it_subscribes() -> list[TopicPartition]:
    group: Any = None  # of no use here
    consumer, seen = FaustConsumer(group, lambda tp: False), list[TopicPartition]()
    consumer.expect([TP], 1)
    task = asyncio.create_task(consumer.offer("assign", [TP]))
    await asyncio.sleep(0)
    await asyncio.to_thread(consumer.poll, 0, 0.001)
    assert not task.done()
    consumer.subscribe(["in"], on_assign=seen.extend, on_revoke=lambda tps: None, on_lost=lambda tps: None)
    while not task.done():
        await asyncio.to_thread(consumer.poll, 0, 0.001)
    return seen


def test_what_is_offered_to_a_worker_that_waits_to_join_again_is_told_later() -> None:
    assert asyncio.run(offered_before_it_subscribes()) == [TP]


class Host:
    """The run loop and Faust's loop in one test. ``committed``: where the next assignment begins."""

    def __init__(self) -> None:
        group: Any = None  # positions are given by the test
        self.consumer = FaustConsumer(group, lambda tp: False)
        self.consumer.subscribe(["in"], on_assign=self._assigned, on_revoke=lambda tps: None, on_lost=lambda tps: None)
        self.committed = 0
        self.generation = 0

    def _assigned(self, tps: Sequence[TopicPartition]) -> None:
        self.consumer.assign_at(dict.fromkeys(tps, self.committed))

    async def served(self, offered: Coroutine[Any, Any, None]) -> None:
        """What Faust's loop awaits, while the run loop polls."""
        task = asyncio.create_task(offered)
        while not task.done():
            await asyncio.to_thread(self.consumer.poll, 0, 0.001)

    async def rebalance(self) -> None:
        if self.consumer.positions():
            await self.served(self.consumer.offer("revoke", [TP]))
        self.generation += 1
        self.consumer.expect([TP], self.generation)
        await self.served(self.consumer.offer("assign", [TP]))

    async def put(self, *offsets: int, generation: int | None) -> None:
        for offset in offsets:
            await self.consumer.put(Arrived(TP, offset, b"k", b"v", 0, (), generation))

    def polled(self) -> list[int]:
        return [o for chunk in self.consumer.poll(100, 0).chunks for o in chunk.offsets]


def test_a_message_that_waited_for_room_through_a_rebalance_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BUFFERED_MAX", 2)
    host = Host()

    async def story() -> None:
        await host.rebalance()
        await host.put(0, 1, generation=None)
        waits = asyncio.create_task(host.put(2, generation=None))
        await asyncio.sleep(0)
        assert not waits.done()
        # nothing was committed: the partition is taken again from its begin, before the agent wakes
        host.consumer.unassign([TP])
        host.consumer.assign_at({TP: 0})
        await waits
        for offset in range(4):
            await host.put(offset, generation=None)
            assert host.polled() == [offset]

    asyncio.run(story())


def test_a_message_that_was_in_fausts_queues_through_a_rebalance_is_read_again() -> None:
    host = Host()

    async def story() -> None:
        await host.rebalance()
        await host.put(0, 1, generation=1)
        await host.rebalance()
        await host.put(2, generation=1)
        await host.put(0, 1, 2, 3, generation=2)
        assert host.polled() == [0, 1, 2, 3]

    asyncio.run(story())


def test_a_partition_that_stays_through_a_rebalance_goes_on() -> None:
    host = Host()

    async def story() -> None:
        await host.rebalance()
        await host.put(0, 1, generation=1)
        host.consumer.expect([TP], 2)
        assert host.consumer.positions() == {TP: 2}
        await host.put(2, generation=1)
        await host.put(2, 3, generation=2)
        assert host.polled() == [0, 1, 2, 3]

    asyncio.run(story())


def test_a_partition_that_is_read_already_is_not_read_again_from_before() -> None:
    """A task that is opened anew asks for it. What is on its way through Faust would come first, and pass for the next."""
    host = Host()

    async def story() -> None:
        await host.rebalance()
        host.consumer.assign_at({TP: 0})
        await host.put(0, generation=1)
        with pytest.raises(RetriableError, match="start the process again"):
            host.consumer.assign_at({TP: 0})
        assert host.polled() == [0]

    asyncio.run(story())
