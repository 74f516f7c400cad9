"""Choose TCP ports on the loopback address."""

from __future__ import annotations

import errno
import random
import socket
import time

from penstock.state.errors import EnvironmentFault
from penstock.streams.kafka.embedded.properties import HOST, BrokerAddress

# Below every platform's range for outgoing connections. Otherwise, while a broker is down, a reconnecting client could
# get the broker's own port as its source port and keep the broker from starting.
_RANDOM_FIRST, _RANDOM_LAST = 20_000, 32_000
_TRIES_MAX = 500
_POLL_S = 0.05


def is_free(port: int) -> bool:
    """Whether ``port`` can be listened on now.

    Raises ``EnvironmentFault`` if the system forbids it (ports below 1024).
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections in TIME_WAIT do not count
        try:
            probe.bind((HOST, port))
            probe.listen(1)
        except PermissionError as exc:
            raise EnvironmentFault(
                f"port {port} is reserved for root. Choose another: penstock up --port 9092"
            ) from exc
        except OSError as exc:
            if exc.errno in (errno.EADDRINUSE, errno.EADDRNOTAVAIL):
                return False
            raise EnvironmentFault(
                f"cannot listen on {HOST}:{port}: {exc.strerror or exc}. Choose another port"
            ) from exc
    return True


def choose_addresses(brokers: int, port: int | None) -> tuple[BrokerAddress, ...]:
    """Choose addresses for ``brokers`` brokers: clients at ``port``, ``port + 1`` … or at random free ports.

    Raises ``EnvironmentFault`` if a requested port is busy.
    """
    taken: set[int] = set()
    addresses = []
    for index in range(brokers):
        wanted = None if port is None else port + index
        if wanted is not None:
            require_free(wanted)
            taken.add(wanted)
        client = wanted if wanted is not None else _random_port(taken)
        addresses.append(BrokerAddress(index, client, _random_port(taken)))
    return tuple(addresses)


def require_free(port: int, *, timeout_s: float = 0.0) -> None:
    """Raise ``EnvironmentFault`` if ``port`` is still busy after ``timeout_s``."""
    until = time.monotonic() + timeout_s
    while not is_free(port):
        if time.monotonic() < until:
            time.sleep(_POLL_S)
            continue
        raise EnvironmentFault(
            f"port {port} on {HOST} is in use by another process. Choose another: penstock up --port N, or "
            f"leave --port out for a random free one; to see who has it: ss -ltnp 'sport = :{port}'"
        )


def _random_port(taken: set[int]) -> int:
    for _ in range(_TRIES_MAX):
        port = random.randint(_RANDOM_FIRST, _RANDOM_LAST)
        if port not in taken and is_free(port):
            taken.add(port)
            return port
    raise EnvironmentFault(
        f"no free port among {_RANDOM_FIRST}–{_RANDOM_LAST} on {HOST}. Name one: penstock up --port N"
    )
