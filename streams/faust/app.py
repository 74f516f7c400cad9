"""A Faust application that runs a topology.

Faust owns the membership, the fetching and the process. Its agents pass messages to a Penstock worker in a thread next
to its event loop, with the same tasks, stores, changelogs and commits as in every host. Faust's own commits, tables and
producer are not used.

``exactly_once`` is refused: a transaction must carry the consumer's membership to be fenced by it, and Faust's consumer
does not expose its membership.

Of Faust's assignor it relies only on what Faust promises: joined inputs have equal partition counts, and Faust assigns
them together.
"""

from __future__ import annotations

import asyncio
from typing import Any

import faust
from faust.transport.drivers import aiokafka as driver
from faust.types import TP

from penstock.state.errors import PenstockError, SettingsError
from penstock.state.log import TIMESTAMP_ZERO, TopicPartition
from penstock.streams.faust.consumer import Arrived, FaustConsumer
from penstock.streams.kafka.client_config import consumer_config
from penstock.streams.kafka.consumer import KafkaConsumer
from penstock.streams.worker.settings import WorkerSettings
from penstock.streams.worker.worker import Worker
from penstock.topologies.graph.topology import Topology

CALL_TIMEOUT_S = 5.0


def faust_app(topology: Any, settings: WorkerSettings, **options: Any) -> faust.App:
    """Return the application; run it like any Faust worker. ``options`` go to ``faust.App``; its id, by default
    ``<application_id>-faust``, names Faust's own group. Raises ``SettingsError`` for ``exactly_once``."""
    if settings.guarantee == "exactly_once":
        raise SettingsError(
            "exactly_once cannot be kept inside Faust: its consumer does not give away the group membership that a "
            "transaction is fenced by; run penstock worker for it, or choose at_least_once here"
        )
    graph: Topology = topology if isinstance(topology, Topology) else topology.build()
    defaults: dict[str, Any] = {
        "id": f"{settings.application_id}-faust",
        "broker": f"kafka://{settings.bootstrap_servers.replace(',', ';kafka://')}",
        "consumer_auto_offset_reset": "earliest",
        "broker_session_timeout": settings.session_timeout_ms / 1000,
        "broker_heartbeat_interval": settings.session_timeout_ms / 3000,
        "topic_allow_declare": False,
        "topic_disable_leader": True,
        "stream_wait_empty": False,
        "store": "memory://",
        "web_enabled": False,
    }
    app = faust.App(**{**defaults, **options})
    host = FaustHost(app, graph, settings)
    host.attach()
    return app


class FaustHost:
    """Ties an application to a worker."""

    def __init__(self, app: faust.App, topology: Topology, settings: WorkerSettings) -> None:
        self.app = app
        self._topology = topology
        self._settings = settings
        self._loop: asyncio.AbstractEventLoop | None = None
        self.consumer: FaustConsumer | None = None
        self.worker: Worker | None = None
        self._stopping = False

    def attach(self) -> None:
        """Attach agents, signals, and the transport whose consumer continues from Penstock's positions."""
        app = self.app
        app.transport = _transport(self)(self.app.conf.broker, app, loop=app.loop)
        for topic in self._topology.source_topics(self._settings.application_id):
            self._add_agent(topic)
        revoked: Any = self._revoked
        app.on_partitions_revoked.connect(revoked)
        app.on_before_shutdown.connect(self._shutdown)
        app.timer(interval=1.0)(self._watch)

    def _add_agent(self, topic: str) -> None:
        source = self.app.topic(
            topic, key_type=bytes, value_type=bytes, key_serializer="raw", value_serializer="raw", internal=False
        )

        async def feed(stream: Any) -> None:
            async for event in stream.noack().events():
                if self.consumer is not None:
                    await self.consumer.put(_arrived(event.message))

        self.app.agent(source, name=f"penstock-{topic}")(feed)

    # -- Faust's signals -----------------------------------------------------------------------------------------

    async def positions_of(self, assigned: set[TP]) -> dict[TP, int]:
        """Where Faust is to read these on. Asked before messages flow after every rebalance, so the tasks of newly
        assigned partitions are made here; nothing of them can have arrived before."""
        await self.start()
        assert self.consumer is not None
        mine = _partitions(assigned, self._topics)
        self.consumer.expect(mine, self.app.consumer_generation_id)
        known = set(self.consumer.positions())
        fresh = [tp for tp in mine if tp not in known]
        if fresh:
            await self.consumer.offer("assign", fresh)
        held = self.consumer.positions()
        return {TP(*tp): held[tp] for tp in mine if tp in held}

    async def _revoked(self, _: Any, revoked: Any = (), *__: Any, **___: Any) -> None:
        if self.consumer is not None and revoked:
            held = set(self.consumer.positions())
            await self.consumer.offer("revoke", [tp for tp in _partitions(revoked, self._topics) if tp in held])

    async def _shutdown(self, *_: Any, **__: Any) -> None:
        self._stopping = True
        if self.worker is not None:
            worker, self.worker = self.worker, None
            await asyncio.get_running_loop().run_in_executor(None, worker.stop)

    async def _watch(self) -> None:
        if self.worker is not None and not self.worker.running:
            worker, self.worker = self.worker, None
            try:
                worker.stop()
            except PenstockError as exc:
                await self.app.crash(exc)

    @property
    def _topics(self) -> set[str]:
        return set(self._topology.source_topics(self._settings.application_id))

    async def start(self) -> None:
        """Start the worker, which also creates the internal topics that Faust then subscribes to. Idempotent."""
        if self.worker is None:
            self._loop = asyncio.get_running_loop()
            self.worker = Worker(self._topology, self._settings, open_consumer=self._open_consumer)
            await self._loop.run_in_executor(None, self.worker.start)

    # -- the run loop's side -------------------------------------------------------------------------------------

    def _open_consumer(self) -> FaustConsumer:
        s = self._settings
        config = consumer_config(s.bootstrap_servers, s.application_id, {**s.common, **s.consumer})
        self.consumer = FaustConsumer(KafkaConsumer(config), self._at_end)
        return self.consumer

    def _at_end(self, partition: TopicPartition) -> bool:
        if self._stopping:
            return False  # Faust's consumer may be gone already
        try:
            return bool(self._call(self._asks_end(TP(*partition))))
        except TimeoutError:
            return False  # asked again at the next poll; until then the feed waits

    async def _asks_end(self, partition: TP) -> bool:
        position = await self.app.consumer.position(partition)
        highwater = self.app.consumer.highwater(partition)
        return position is not None and highwater is not None and position >= highwater

    def _call(self, coroutine: Any) -> Any:
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(CALL_TIMEOUT_S)


def _transport(host: FaustHost) -> Any:
    """Return Faust's transport, with a consumer that asks Penstock where to continue."""

    class Consumer(driver.Consumer):
        async def seek_to_committed(self) -> dict[TP, int]:
            positions = await host.positions_of(set(self.assignment()))
            if positions:
                await self.seek_wait(positions)
            return positions

        async def subscribe(self, topics: Any) -> None:
            await host.start()
            await super().subscribe(topics)

    class Transport(driver.Transport):
        pass

    Transport.Consumer = Consumer

    def make(urls: Any, app: faust.App, loop: Any) -> Any:
        return Transport(urls, app, loop=loop)

    return make


def _partitions(tps: set[TP], topics: set[str]) -> list[TopicPartition]:
    return sorted(TopicPartition(tp.topic, tp.partition) for tp in tps if tp.topic in topics)


def _arrived(message: Any) -> Arrived:
    raw = message.headers or ()
    pairs = raw.items() if isinstance(raw, dict) else raw
    headers = tuple((name, value) for name, value in pairs)
    timestamp_ms = round(message.timestamp * 1000)
    if TIMESTAMP_ZERO in headers:
        headers = tuple(h for h in headers if h != TIMESTAMP_ZERO)
        timestamp_ms = 0
    return Arrived(
        TopicPartition(message.topic, message.partition),
        message.offset,
        message.key,
        message.value,
        timestamp_ms,
        headers,
        message.generation_id,
    )
