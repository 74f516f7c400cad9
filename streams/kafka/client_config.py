"""Merge our defaults and the user's librdkafka keys into one client configuration.

The user's key wins, under any of its names (aliases are folded into one), unless another value would break a promise;
such keys are refused with the reason. Pure: dictionaries in, dictionaries out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import confluent_kafka

from penstock.state.errors import SettingsError
from penstock.streams.runtime.memory_budget import RECEIVED_MAX_BYTES, SENT_MAX_BYTES

_ALIASES = {
    "metadata.broker.list": "bootstrap.servers",
    "queue.buffering.max.ms": "linger.ms",
    "compression.codec": "compression.type",
    "request.required.acks": "acks",
    "delivery.timeout.ms": "message.timeout.ms",
    "message.send.max.retries": "retries",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
}

_OURS = {
    "bootstrap.servers": "use the setting bootstrap_servers, which all clients of the application share",
    "group.id": "the group is the application_id",
    "group.instance.id": "use the setting group_instance_id",
    "enable.auto.commit": "positions are committed together with state and output, never by the clock",
    "enable.auto.offset.store": "positions are committed together with state and output, never by the clock",
    "auto.offset.reset": "every position is explicit; a silent jump would lose records",
    "enable.partition.eof": "the feed learns from it which partition is caught up",
    "session.timeout.ms": "use the setting session_timeout_ms, which also sets the heartbeat and the revoke limit",
    "heartbeat.interval.ms": "it is a third of the setting session_timeout_ms, and at most 3 s",
    "transactional.id": "it fences this worker's older self and is made from the application_id",
    "transaction.timeout.ms": "use the setting transaction_timeout_ms",
    "delivery.report.only.error": "the changelog's offsets come from delivery reports",
    "error_cb": "Penstock needs the client's errors itself",
    "on_delivery": "Penstock needs the delivery reports itself",
    "delivery_callback": "Penstock needs the delivery reports itself",
    "dr_cb": "Penstock needs the delivery reports itself",
    "partitioner_callback": "co-partitioning needs murmur2_random",
    "on_commit": "commits are synchronous",
}

_CONSUMER_DEFAULTS: dict[str, Any] = {
    # After the queue was full, the client waits this long before it fetches again. The default of a second costs most
    # of the fetch rate; asking more often only wakes the client's thread.
    "fetch.queue.backoff.ms": 10,
    # The queue's limit counts what is queued, but one more decompressed answer comes on top of it. With the default
    # size per partition that is far more memory for well compressible records, and not faster.
    "max.partition.fetch.bytes": 262_144,
    # The compiled reader takes this many out of the queue at once; the queue's limits do not count them.
    "consume.callback.max.messages": 1_000,
    # Off by default in librdkafka, on in every Java client: without it, a bit that flips on the way from the broker goes
    # into answers and stores without a word.
    "check.crcs": True,
    # The client does not look for the next leader of a partition whose leader is gone and that it is asked about; it learns
    # of it with the metadata. The default of five minutes is too long for a commit or a restore (see ``log_ends``).
    "topic.metadata.refresh.interval.ms": 5_000,
    "fetch.wait.max.ms": 100,
    "socket.nagle.disable": True,
    "allow.auto.create.topics": False,
}

_PRODUCER_DEFAULTS: dict[str, Any] = {
    "compression.type": "lz4",
    # A turn hands over all its records at once, so a worker that is behind sends large batches anyway; one that keeps up
    # adds this to each record's latency. A shorter linger makes the client's thread wake up thousands of times a second
    # for small batches. A commit does not wait for it: flushing sends what is queued at once.
    "linger.ms": 2,
    "batch.size": 1_000_000,
    "socket.nagle.disable": True,
    "allow.auto.create.topics": False,
}

# Each queued record costs memory besides its bytes, which the byte limits do not count, hence the limits on records. A
# consumer counts per partition, of which there are about four. Larger queues are not faster; a poll always takes a
# whole answer.
_FETCHED_MAX_RECORDS, _FETCHED_BYTES = 20_000, 800
_SENT_MAX_RECORDS, _SENT_BYTES = 100_000, 320

# The first record of a transaction waits while the broker still ends the previous one, and is tried again after this
# time. The client's default adds most of it to every commit.
# Readers see a record only when its transaction commits, which sends the queue at once. A shorter linger only gives the
# broker more requests, and its CPU then slows the commits.
_TRANSACTION_DEFAULTS: dict[str, Any] = {"retry.backoff.ms": 10, "linger.ms": 10}

# For low latency: a record does not wait to be batched, at the price of more and smaller requests.
_LOW_LATENCY_CONSUMER: dict[str, Any] = {"fetch.queue.backoff.ms": 2}
_LOW_LATENCY_PRODUCER: dict[str, Any] = {"linger.ms": 1}

# A member learns of a group change from its next heartbeat, and members that have given up their tasks wait for the
# last one. A third of the default session, 15 s, would be that long a pause.
_HEARTBEAT_MAX_MS = 3_000

_GROUP_PROMISES = {
    "partition.assignment.strategy": ("range", "only range puts equal partitions of joined topics on one worker"),
    "group.remote.assignor": ("range", "only range puts equal partitions of joined topics on one worker"),
}
_COMMITTED_ONLY = {"isolation.level": ("read_committed", "uncommitted records would break exactly_once")}
_PRODUCER_PROMISES = {
    "partitioner": ("murmur2_random", "records must lie where Java clients and joined topics have them"),
    "enable.idempotence": ("true", "a retry could duplicate or reorder records"),
    "acks": ("all", "an acknowledged record could be lost"),
}
_GAPLESS_PROMISES = {
    "enable.gapless.guarantee": ("true", "a refused record in the middle would vanish without an error"),
    "message.timeout.ms": ("0", "a record that times out would leave a gap behind committed positions"),
}


def folded(user: Mapping[str, Any]) -> dict[str, Any]:
    """Return the user's keys under their main names. Raises ``SettingsError`` for keys that Penstock owns, and for a
    key that is given under two names."""
    out: dict[str, Any] = {}
    for name, value in user.items():
        main = _ALIASES.get(name, name)
        if main in _OURS:
            raise SettingsError(f"librdkafka key {name!r} cannot be set: {_OURS[main]}; remove it")
        if main in out:
            raise SettingsError(f"librdkafka key {name!r} is given under two names; keep one of them")
        out[main] = value
    return out


def _text(value: Any) -> str:
    text = str(value).lower()
    return "all" if text == "-1" else text


def _keep(promises: Mapping[str, tuple[str, str]], user: dict[str, Any]) -> None:
    """Remove promised keys from ``user``. Raises ``SettingsError`` if one has another value."""
    for name, (needed, why) in promises.items():
        if name in user and _text(user[name]) != needed:
            raise SettingsError(f"librdkafka key {name!r} must be {needed!r}, not {user[name]!r}: {why}; remove it")
        user.pop(name, None)


def uses_consumer_protocol(user: Mapping[str, Any]) -> bool:
    """Whether the user asks for the broker's own group protocol (KIP-848), where assignments are incremental."""
    return _text(user.get("group.protocol", "classic")) == "consumer"


def consumer_config(
    bootstrap_servers: str,
    group_id: str,
    user: Mapping[str, Any],
    *,
    session_timeout_ms: int = 45_000,
    group_instance_id: str | None = None,
    read_committed: bool = True,
    low_latency: bool = False,
    queue_max_bytes: int = RECEIVED_MAX_BYTES,
) -> dict[str, Any]:
    """Return a consumer's configuration. ``read_committed`` is a promise if true, and the default if not. ``low_latency``:
    latency matters more than throughput. ``queue_max_bytes``: the limit of fetched records that wait, unless the user's
    keys set it.

    Raises ``SettingsError`` naming the key that cannot be set and why.
    """
    mine = folded(user)
    _keep(_GROUP_PROMISES, mine)
    if read_committed:
        _keep(_COMMITTED_ONLY, mine)
    defaults = {
        **_CONSUMER_DEFAULTS,
        **(_LOW_LATENCY_CONSUMER if low_latency else {}),
        "isolation.level": "read_committed",
    }
    defaults["queued.max.messages.kbytes"] = queue_max_bytes >> 10
    defaults["queued.min.messages"] = min(queue_max_bytes // _FETCHED_BYTES, _FETCHED_MAX_RECORDS)
    config = {**defaults, **mine}
    if uses_consumer_protocol(user):
        config["group.remote.assignor"] = "range"
    else:
        config["partition.assignment.strategy"] = "range"
        config["session.timeout.ms"] = session_timeout_ms
        config["heartbeat.interval.ms"] = max(min(session_timeout_ms // 3, _HEARTBEAT_MAX_MS), 1)
        # librdkafka refuses a poll interval below the session timeout.
        config.setdefault("max.poll.interval.ms", max(300_000, session_timeout_ms))
    if group_instance_id is not None:
        config["group.instance.id"] = group_instance_id
    config |= {
        "bootstrap.servers": bootstrap_servers,
        "group.id": group_id,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
    }
    return config


def producer_config(
    bootstrap_servers: str,
    user: Mapping[str, Any],
    *,
    transactional_id: str | None = None,
    transaction_timeout_ms: int = 10_000,
    low_latency: bool = False,
    queue_max_bytes: int = SENT_MAX_BYTES,
) -> dict[str, Any]:
    """Return a producer's configuration. Without a transactional id it is gapless: if the broker refuses a record, the
    producer stops instead of leaving a gap. ``low_latency``: latency matters more than throughput. ``queue_max_bytes``: the
    limit of records that wait for acknowledgement, unless the user's keys set it. Raises ``SettingsError``, naming the
    key that cannot be set and why."""
    mine = folded(user)
    _keep(_PRODUCER_PROMISES, mine)
    if transactional_id is None:
        _keep(_GAPLESS_PROMISES, mine)
    defaults = {**_PRODUCER_DEFAULTS, **(_LOW_LATENCY_PRODUCER if low_latency else {})}
    defaults["queue.buffering.max.kbytes"] = queue_max_bytes >> 10
    defaults["queue.buffering.max.messages"] = min(queue_max_bytes // _SENT_BYTES, _SENT_MAX_RECORDS)
    if transactional_id is not None:
        defaults |= _TRANSACTION_DEFAULTS
    config = {**defaults, **mine}
    config |= {
        "bootstrap.servers": bootstrap_servers,
        "partitioner": "murmur2_random",
        "enable.idempotence": True,
        "acks": "all",
    }
    if transactional_id is None:
        config |= {"enable.gapless.guarantee": True, "message.timeout.ms": 0}
    else:
        config |= {"transactional.id": transactional_id, "transaction.timeout.ms": transaction_timeout_ms}
    return config


def admin_config(bootstrap_servers: str, user: Mapping[str, Any]) -> dict[str, Any]:
    """Return an admin client's configuration. ``user``: the keys common to all clients (security and such)."""
    return {**folded(user), "bootstrap.servers": bootstrap_servers}


def librdkafka_version() -> str:
    """The version of the C library that does the clients' work."""
    return str(confluent_kafka.libversion()[0])
