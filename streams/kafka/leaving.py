"""How a member leaves its group so that its client can be closed.

The client's library waits for ever where a rebalance is served while the membership ends
(https://github.com/confluentinc/librdkafka/issues/4884): the answer to "this is what I read now" is thrown away with the
queue of a group that is over. So what the group told is served, and no more can come, before the client is closed.
"""

from __future__ import annotations

import contextlib
import time

from confluent_kafka import Consumer, KafkaException

SETTLE_LIMIT_S = 2.0
"""How long closing waits for the library to take back what it assigned, before it closes all the same."""
EVENTS_MAX = 100
"""Of the client's queue in one poll, where records are not read from it."""


def settle(client: Consumer, *, leave: bool) -> None:
    """Have a subscribed client serve what it was told, callbacks among it, and leave its group. ``leave`` is false for a
    static member, which stays one when it closes: there only what has come is served."""
    until_s = time.monotonic() + SETTLE_LIMIT_S
    with contextlib.suppress(KafkaException, RuntimeError, SystemError):  # closing goes on without
        if leave:
            client.unsubscribe()
        client.consume(EVENTS_MAX, 0.0)
        while leave and client.assignment() and time.monotonic() < until_s:
            client.consume(EVENTS_MAX, 0.01)
