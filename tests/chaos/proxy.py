"""A proxy that knows Kafka's frames: one port per broker, and a thread of its own for all connections.

Frames pass whole and in order unless ``Sky`` says otherwise. A request that is late is delivered even if its client is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Mapping
from functools import partial
from typing import Self

from tests.chaos.frames import Api, batches_in, correlation_of, header_of, with_flipped_bit
from tests.chaos.rules import Fault, Link, Side, Sky

HOST = "127.0.0.1"
FRAME_MAX_BYTES = 128 << 20
POLL_S = 0.02
QUEUED_FRAMES_MAX = 256
_LENGTH = struct.Struct(">i")
_Queue = asyncio.Queue[tuple[float, bytes, Fault | None] | None]


class Network:
    """The proxies of a cluster. ``ports``: the port to listen on and the broker's own, by the number of the broker.

    ``sky`` may be changed from any thread. Use it in a ``with`` block.
    """

    def __init__(self, ports: Mapping[int, tuple[int, int]]) -> None:
        self.sky = Sky()
        self._ports = dict(ports)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)
        self._open: set[Connection] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(30)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()

    def reset(self, client: str = "", broker: int | None = None) -> int:
        """Tear down the connections of these clients to this broker; how many."""
        return asyncio.run_coroutine_threadsafe(self._reset(client, broker), self._loop).result(30)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    async def _listen(self) -> None:
        self._servers = [
            await asyncio.start_server(lambda r, w, b=broker, p=port: self._serve(b, p, r, w), HOST, listen)
            for broker, (listen, port) in self._ports.items()
        ]

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for connection in list(self._open):
            connection.tear()
        me = asyncio.current_task()
        tasks = [t for t in asyncio.all_tasks() if t is not me]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _reset(self, client: str, broker: int | None) -> int:
        torn = [c for c in self._open if c.link.client.startswith(client) and broker in (None, c.link.broker)]
        for connection in torn:
            connection.tear()
        return len(torn)

    async def _serve(self, broker: int, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            upstream = await asyncio.open_connection(HOST, port)
        except OSError:
            _tear(writer)
            return
        connection = Connection(self.sky, Link(broker), (reader, writer), upstream)
        self._open.add(connection)
        try:
            await connection.run()
        except asyncio.CancelledError:
            connection.tear()  # the network closes
        finally:
            self._open.discard(connection)


class Connection:
    """One client's connection to one broker."""

    def __init__(
        self,
        sky: Sky,
        link: Link,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        broker: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        self.link = link
        self._sky = sky
        self._client, self._broker = client, broker
        self._apis: dict[int, int] = {}
        for _, writer in (client, broker):
            writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    async def run(self) -> None:
        """Pass frames both ways until one end closes. What the client has sent is still delivered then, late or not."""
        there = asyncio.create_task(self._pass("request", self._client[0], self._broker[1]))
        back = asyncio.create_task(self._pass("response", self._broker[0], self._client[1]))
        try:
            await asyncio.wait({there, back}, return_when=asyncio.FIRST_COMPLETED)
            if not self._broker[0].at_eof():
                await there
        finally:
            for task in (there, back):
                task.cancel()
            await asyncio.gather(there, back, return_exceptions=True)
            for _, writer in (self._client, self._broker):
                writer.close()

    def tear(self) -> None:
        """End both connections with a reset."""
        _tear(self._client[1])
        _tear(self._broker[1])

    async def _pass(self, side: Side, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        queue: _Queue = asyncio.Queue(QUEUED_FRAMES_MAX)
        reading = asyncio.create_task(self._read(side, reader, queue))
        writing = asyncio.create_task(self._write(side, queue, writer))
        try:
            await asyncio.wait({reading, writing}, return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                await writing
        except OSError:
            return  # the other end is gone
        finally:
            for task in (reading, writing):
                task.cancel()
            await asyncio.gather(reading, writing, return_exceptions=True)

    async def _read(self, side: Side, reader: asyncio.StreamReader, queue: _Queue) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            while True:
                (size,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
                if not 0 <= size <= FRAME_MAX_BYTES:
                    self.tear()
                    break
                frame = await reader.readexactly(size)
                api = self._api(side, frame)
                fault = self._sky.striking(self.link, side, api, partial(has_records, side, api, frame))
                await queue.put((loop.time(), frame, fault))
        await queue.put(None)

    def _api(self, side: Side, frame: bytes) -> int:
        if side == "response":
            return self._apis.pop(correlation_of(frame), -1)
        header = header_of(frame)
        if header.client != self.link.client:
            self.link = Link(self.link.broker, header.client)
        self._apis[header.correlation] = header.api
        return header.api

    async def _write(self, side: Side, queue: _Queue, writer: asyncio.StreamWriter) -> None:
        late: set[asyncio.Task[None]] = set()
        while (item := await queue.get()) is not None:
            arrived, frame, fault = item
            if fault is None:
                await self._deliver(side, arrived, frame, writer)
            elif fault.action == "reset":
                self.tear()
                return
            elif fault.action == "flip":
                await self._deliver(side, arrived, with_flipped_bit(frame, fault.hits * 37) or frame, writer)
            elif fault.action == "delay" and fault.overtaken:
                late.add(asyncio.create_task(self._late(side, arrived + fault.delay_s, frame, writer)))
            elif fault.action == "delay":
                await self._late(side, arrived + fault.delay_s, frame, writer)
        await asyncio.gather(*late, return_exceptions=True)

    async def _late(self, side: Side, due: float, frame: bytes, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(max(due - asyncio.get_running_loop().time(), 0.0))
        await self._deliver(side, due, frame, writer)

    async def _deliver(self, side: Side, arrived: float, frame: bytes, writer: asyncio.StreamWriter) -> None:
        """Write one frame as the weather lets it through."""
        loop = asyncio.get_running_loop()
        while weathers := self._sky.over(self.link):
            if any(w.cut == "refused" for w in weathers):
                self.tear()
                raise ConnectionError("refused")
            due = arrived + max(w.latency_s for w in weathers)
            if not any(w.stops(side) for w in weathers) and loop.time() >= due:
                break
            await asyncio.sleep(POLL_S)
        whole = _LENGTH.pack(len(frame)) + frame
        slice_bytes = min((w.slice_bytes for w in weathers if w.slice_bytes), default=0)
        rate = min((w.bytes_per_s for w in weathers if w.bytes_per_s), default=0.0)
        if rate and not slice_bytes:
            slice_bytes = max(int(rate / 50), 1)
        for at in range(0, len(whole), slice_bytes or len(whole)):
            piece = whole[at : at + (slice_bytes or len(whole))]
            writer.write(piece)
            await writer.drain()
            if slice_bytes:
                await asyncio.sleep(len(piece) / rate if rate else 0)


def has_records(side: Side, api: int, frame: bytes) -> bool:
    """Whether there are records in the frame."""
    return side == "response" and api == Api.FETCH and bool(batches_in(frame))


def _tear(writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        found = writer.get_extra_info("socket")
        if found is not None:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
