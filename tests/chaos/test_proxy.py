"""The proxy does what its rules say, in front of a server that speaks in Kafka's frames and answers each request."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.streams.kafka.embedded.ports import choose_addresses
from tests.chaos.frames import Api, batches_in, correlation_of, crc32c, header_of, with_flipped_bit
from tests.chaos.proxy import HOST, Network
from tests.chaos.rules import Fault, Weather
from tests.chaos.workers import until

WAIT_S = 20.0
LATE_S = 0.3


def request(api: Api, correlation: int, client: str = "c1", body: bytes = b"") -> bytes:
    """A request's frame, without its length."""
    name = client.encode()
    return struct.pack(">hhih", api, 0, correlation, len(name)) + name + body


class Server:
    """Stands for a broker: remembers the requests in the order of their arrival, and answers each one."""

    def __init__(self, port: int) -> None:
        self.arrived: list[int] = []
        self._listening = socket.create_server((HOST, port))
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._answer, args=(client,), daemon=True).start()

    def _answer(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client:
            while (frame := read_frame(client)) is not None:
                header = header_of(frame)
                self.arrived.append(header.correlation)
                write_frame(client, struct.pack(">i", header.correlation) + frame[-8:])

    def close(self) -> None:
        """No more connections."""
        self._listening.close()


class Client:
    """One connection through the proxy."""

    def __init__(self, port: int, name: str = "c1") -> None:
        self._name = name
        self._socket = socket.create_connection((HOST, port), WAIT_S)

    def ask(self, *apis: Api, first: int = 1, body: bytes = b"") -> None:
        """Send requests, numbered from ``first`` on."""
        for correlation, api in enumerate(apis, first):
            write_frame(self._socket, request(api, correlation, self._name, body))

    def answers(self, count: int, limit_s: float = WAIT_S) -> list[int]:
        """The numbers of the next answers; fewer if the time is over or the connection ends."""
        out = []
        self._socket.settimeout(limit_s)
        with contextlib.suppress(OSError):
            while len(out) < count and (frame := read_frame(self._socket)) is not None:
                out.append(correlation_of(frame))
        return out

    def close(self) -> None:
        """Close it."""
        self._socket.close()


def read_frame(of: socket.socket) -> bytes | None:
    """The next frame; ``None`` at the end of the connection."""
    head = _exactly(of, 4)
    return None if head is None else _exactly(of, int.from_bytes(head, "big"))


def _exactly(of: socket.socket, size: int) -> bytes | None:
    out = b""
    while len(out) < size:
        piece = of.recv(size - len(out))
        if not piece:
            return None
        out += piece
    return out


def write_frame(to: socket.socket, frame: bytes) -> None:
    """Write one frame."""
    to.sendall(struct.pack(">i", len(frame)) + frame)


@pytest.fixture
def world() -> Iterator[tuple[Network, Server, int]]:
    """A network of one broker, the broker, and the port of the proxy."""
    (address,) = choose_addresses(1, None)
    server = Server(address.port)
    with Network({0: (address.controller_port, address.port)}) as network:
        yield network, server, address.controller_port
    server.close()


World = tuple[Network, Server, int]


def test_frames_pass_unchanged_and_in_order(world: World) -> None:
    _, server, port = world
    client = Client(port)
    client.ask(*[Api.PRODUCE] * 50, body=b"x" * 10_000)
    assert client.answers(50) == list(range(1, 51))
    assert server.arrived == list(range(1, 51))


def test_dropped_request_does_not_arrive(world: World) -> None:
    network, server, port = world
    fault = network.sky.fault(Fault("drop", (Api.END_TXN,), nth=2))
    client = Client(port)
    client.ask(Api.END_TXN, Api.PRODUCE, Api.END_TXN, Api.END_TXN)
    assert client.answers(3) == [1, 2, 4]
    assert server.arrived == [1, 2, 4]
    assert (fault.hits, fault.spent) == (1, True)


def test_dropped_response_has_arrived(world: World) -> None:
    network, server, port = world
    network.sky.fault(Fault("drop", (Api.END_TXN,), "response"))
    client = Client(port)
    client.ask(Api.END_TXN, Api.PRODUCE)
    assert client.answers(1) == [2]
    assert server.arrived == [1, 2]


def test_delayed_request_holds_up_what_follows(world: World) -> None:
    network, server, port = world
    network.sky.fault(Fault("delay", (Api.END_TXN,), delay_s=LATE_S))
    client = Client(port)
    begun = time.monotonic()
    client.ask(Api.END_TXN, Api.PRODUCE)
    assert client.answers(2) == [1, 2]
    assert time.monotonic() - begun >= LATE_S
    assert server.arrived == [1, 2]


def test_delayed_request_can_be_overtaken(world: World) -> None:
    network, server, port = world
    network.sky.fault(Fault("delay", (Api.END_TXN,), delay_s=LATE_S, overtaken=True))
    client = Client(port)
    client.ask(Api.END_TXN, Api.PRODUCE)
    assert client.answers(2) == [2, 1]
    assert server.arrived == [2, 1]


def test_delayed_request_arrives_when_its_client_is_gone(world: World) -> None:
    """And behind what the client has sent on another connection: a late EndTxn."""
    network, server, port = world
    network.sky.fault(Fault("delay", (Api.END_TXN,), delay_s=2 * LATE_S))
    first = Client(port)
    first.ask(Api.END_TXN)
    first.close()
    second = Client(port)
    second.ask(Api.PRODUCE, first=7)
    assert second.answers(1) == [7]
    until("the late one arrives", lambda: server.arrived == [7, 1], WAIT_S)


def test_delayed_response_comes_late(world: World) -> None:
    network, server, port = world
    network.sky.fault(Fault("delay", (Api.END_TXN,), "response", delay_s=LATE_S))
    client = Client(port)
    begun = time.monotonic()
    client.ask(Api.END_TXN)
    until("it arrives", lambda: server.arrived == [1], WAIT_S)
    assert client.answers(1) == [1]
    assert time.monotonic() - begun >= LATE_S


@pytest.mark.parametrize(("side", "arrived"), [("request", []), ("response", [1])])
def test_reset_ends_the_connection(world: World, side: str, arrived: list[int]) -> None:
    network, server, port = world
    network.sky.fault(Fault("reset", (Api.END_TXN,), "request" if side == "request" else "response"))
    client = Client(port)
    client.ask(Api.END_TXN)
    assert client.answers(1) == []
    assert server.arrived == arrived
    again = Client(port)
    again.ask(Api.END_TXN, first=5)
    assert again.answers(1) == [5]


def test_requests_can_be_counted_only(world: World) -> None:
    network, _, port = world
    seen = network.sky.fault(Fault("pass", (Api.END_TXN,), times=0))
    client = Client(port)
    client.ask(Api.END_TXN, Api.PRODUCE, Api.END_TXN)
    assert client.answers(3) == [1, 2, 3]
    assert (seen.hits, seen.brokers) == (2, {0})


def test_fault_is_of_one_client(world: World) -> None:
    network, server, port = world
    network.sky.fault(Fault("drop", (Api.END_TXN,), client="w1"))
    other, mine = Client(port, "w2"), Client(port, "w1-producer")
    other.ask(Api.END_TXN, first=1)
    assert other.answers(1) == [1]
    mine.ask(Api.END_TXN, Api.PRODUCE, first=2)
    assert mine.answers(1) == [3]
    assert server.arrived == [1, 3]


def test_silent_cut_holds_everything_until_it_heals(world: World) -> None:
    network, server, port = world
    client, other = Client(port, "w1"), Client(port, "w2")
    client.ask(Api.METADATA)
    assert client.answers(1) == [1]
    cut = network.sky.weather(Weather("w1", cut="silent"))
    client.ask(Api.PRODUCE, first=2)
    other.ask(Api.PRODUCE, first=3)
    assert other.answers(1) == [3]
    assert client.answers(1, LATE_S) == []
    assert server.arrived == [1, 3]
    network.sky.end(cut)
    assert client.answers(1) == [2]


def test_half_open_connection_carries_requests_only(world: World) -> None:
    network, server, port = world
    network.sky.weather(Weather(cut="half_open"))
    client = Client(port)
    client.ask(Api.PRODUCE)
    until("it arrives", lambda: server.arrived == [1], WAIT_S)
    assert client.answers(1, LATE_S) == []
    network.sky.clear()
    assert client.answers(1) == [1]


def test_refused_clients_are_reset(world: World) -> None:
    network, server, port = world
    network.sky.weather(Weather(cut="refused"))
    client = Client(port)
    client.ask(Api.PRODUCE)
    assert client.answers(1) == []
    assert server.arrived == []


def test_open_connections_are_reset_at_once(world: World) -> None:
    network, _, port = world
    client = Client(port, "w1")
    client.ask(Api.PRODUCE)
    assert client.answers(1) == [1]
    assert network.reset("w2") == 0
    assert network.reset("w1") == 1
    assert client.answers(1) == []


def test_latency_bandwidth_and_slices_change_no_frame(world: World) -> None:
    network, server, port = world
    network.sky.weather(Weather(latency_s=LATE_S, bytes_per_s=20_000, slice_bytes=1))
    client = Client(port)
    begun = time.monotonic()
    client.ask(Api.PRODUCE, Api.FETCH, body=b"y" * 1_000)
    assert client.answers(2) == [1, 2]
    assert time.monotonic() - begun >= LATE_S
    assert server.arrived == [1, 2]


def test_connection_to_a_broker_that_is_down_ends(world: World) -> None:
    _, server, port = world
    server.close()
    client = Client(port)
    assert client.answers(1) == []


def batch(records: bytes, offset: int = 0) -> bytes:
    """A record batch with a right checksum."""
    body = b"\x00" * 40 + records
    return struct.pack(">qiibI", offset, 49 + len(records), 0, 2, crc32c(body)) + body


@given(st.binary(min_size=1, max_size=80), st.binary(min_size=1, max_size=80), st.integers(0, 10_000))
def test_one_bit_of_the_last_batch_is_flipped(first: bytes, second: bytes, bit: int) -> None:
    head = b"\x00\x00\x00\x07" + b"\xff" * 30
    frame = head + batch(first) + batch(second, 9)
    assert batches_in(frame)[0] == (len(head), len(head) + 61 + len(first))
    flipped = with_flipped_bit(frame, bit)
    assert flipped is not None
    changed = [i for i, (a, b) in enumerate(zip(frame, flipped, strict=True)) if a != b]
    assert len(changed) == 1
    assert changed[0] >= len(frame) - len(second)
    assert (frame[changed[0]] ^ flipped[changed[0]]).bit_count() == 1


def test_checksum_is_castagnolis() -> None:
    assert crc32c(b"123456789") == 0xE3069283


def test_frame_without_records_cannot_be_flipped() -> None:
    wrong = bytearray(batch(b"records"))
    wrong[-1] ^= 1
    assert with_flipped_bit(b"\x00\x00\x00\x07" + bytes(wrong)) is None, "only what looks like a batch"
    assert with_flipped_bit(b"\x00\x00\x00\x07" + b"\xff" * 100) is None
