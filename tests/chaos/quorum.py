"""Which node leads the metadata quorum: asked in Kafka's own words, since the client library has none for it."""

from __future__ import annotations

import socket
import struct

DESCRIBE_QUORUM = 55
_TOPIC = b"__cluster_metadata"


def leader_of_quorum(server: str) -> int:
    """The id of the active controller, as the broker at ``server`` knows it. Raises ``OSError`` or ``ValueError`` if it does
    not answer as expected."""
    host, _, port = server.rpartition(":")
    topics = b"\x02" + _compact(_TOPIC) + b"\x02" + struct.pack(">i", 0) + b"\x00\x00"
    request = struct.pack(">hhi", DESCRIBE_QUORUM, 0, 1) + struct.pack(">h", -1) + b"\x00" + topics + b"\x00"
    with socket.create_connection((host, int(port)), 10) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        (size,) = struct.unpack(">i", _exactly(connection, 4))
        answer = _exactly(connection, size)
    # correlation id, tags; error; one topic: its name; one partition: its index, its error, the leader
    at = 4 + 1
    (error,) = struct.unpack_from(">h", answer, at)
    at += 2
    if error or answer[at] != 2:
        raise ValueError(f"DescribeQuorum answers {answer!r}")
    at += 1 + 1 + len(_TOPIC)
    if answer[at] != 2:
        raise ValueError(f"DescribeQuorum answers {answer!r}")
    _, error, leader = struct.unpack_from(">ihi", answer, at + 1)
    if error:
        raise ValueError(f"DescribeQuorum answers the error {error}")
    return int(leader)


def _compact(text: bytes) -> bytes:
    return bytes([len(text) + 1]) + text


def _exactly(connection: socket.socket, size: int) -> bytes:
    out = b""
    while len(out) < size:
        piece = connection.recv(size - len(out))
        if not piece:
            raise OSError("the broker closed the connection")
        out += piece
    return out
