"""Leave a group so that the client can be closed.

The client library waits forever if a rebalance is served while the membership ends
(https://github.com/confluentinc/librdkafka/issues/4884): the acknowledgement of the assignment is dropped with the
queue of the former group. So all pending group events are served, and no more can arrive, before the client is closed.
"""

from __future__ import annotations

import contextlib
import time

from confluent_kafka import Consumer, KafkaException

SETTLE_LIMIT_S = 2.0
"""How long closing waits for the library to revoke its assignment, before it closes anyway."""
EVENTS_MAX = 100
"""The number of messages taken from the client's queue in one poll, if records are not read from it."""


def settle(client: Consumer, *, leave: bool) -> None:
    """Serve a subscribed client's pending events, callbacks included, and leave its group. ``leave`` is false for a
    static member, which stays a member when it closes: then only pending events are served."""
    until_s = time.monotonic() + SETTLE_LIMIT_S
    with contextlib.suppress(KafkaException, RuntimeError, SystemError):  # closing continues without it
        if leave:
            client.unsubscribe()
        client.consume(EVENTS_MAX, 0.0)
        while leave and client.assignment() and time.monotonic() < until_s:
            client.consume(EVENTS_MAX, 0.01)
