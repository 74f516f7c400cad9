"""Translate librdkafka's errors into Penstock's. Every ``KafkaException`` of this package passes through here.

The order of the checks matters: a duplicate of this process first, then fencing (it is fatal too), then rights that are
missing (a new transaction lacks them too), then the transaction's own verdict (abort), then fatal, then retriable, then
what only the user can fix. Everything else is an
``EnvironmentFault``: an unknown code is never taken as retriable.
"""

from __future__ import annotations

import re

from confluent_kafka import KafkaError, KafkaException

from penstock.state.errors import (
    EnvironmentFault,
    PenstockError,
    RetriableError,
    SettingsError,
    TaskMigratedError,
    UserError,
)
from penstock.streams.ports.log import AbortableError, ProducerRetiredError, StaleEpochError

FENCED = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
        KafkaError.TRANSACTION_COORDINATOR_FENCED,
        KafkaError.FENCED_MEMBER_EPOCH,
        KafkaError.STALE_MEMBER_EPOCH,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.GROUP_ID_NOT_FOUND,  # its only member lost its place, and the group was removed
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError._ASSIGNMENT_LOST,
    }
)
"""Another process owns the transactional id, the membership or the partition now."""

_STALE = frozenset({KafkaError.ILLEGAL_GENERATION, KafkaError.STALE_MEMBER_EPOCH})

RETRIABLE = frozenset(
    {
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._DESTROY_BROKER,
        KafkaError._UNKNOWN_BROKER,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._RESOLVE,
        KafkaError._WAIT_COORD,
        KafkaError._WAIT_CACHE,
        KafkaError._RETRY,
        KafkaError._IN_PROGRESS,
        KafkaError._PREV_IN_PROGRESS,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_CONTROLLER,
        KafkaError.CONCURRENT_TRANSACTIONS,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.PREFERRED_LEADER_NOT_AVAILABLE,
        KafkaError.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        KafkaError.LISTENER_NOT_FOUND,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.THROTTLING_QUOTA_EXCEEDED,
    }
)
"""Errors that pass while brokers come, go and elect leaders, as Kafka's protocol guide marks them; none that are
refused after the record was appended. A client whose broker is gone reports ``_DESTROY_BROKER`` or ``_UNKNOWN_BROKER``;
if no name server answers, ``_RESOLVE``; if its metadata is incomplete, ``_UNKNOWN_PARTITION`` for existing
partitions."""

SILENT = frozenset({KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE})
"""No broker has answered."""

_HINTS = {
    KafkaError._UNKNOWN_PARTITION: "if it stays, the topic has fewer partitions than the topology expects: compare them",
    KafkaError._RESOLVE: "if it stays, correct the host's name in bootstrap_servers or advertised.listeners",
    KafkaError.UNRELEASED_INSTANCE_ID: "another process has the same group_instance_id, or the broker still counts this "
    "one's former self as a member, until group.consumer.session.timeout.ms is over",
}
RIGHTS = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    }
)
"""This principal may not do it. The cluster's administrator changes that, not a retry."""

_USER = {
    KafkaError.UNKNOWN_TOPIC_OR_PART: "create the topic or correct its name",
    KafkaError._UNKNOWN_TOPIC: "create the topic or correct its name",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "grant this principal the topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "grant this principal the group",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "grant this principal the transactional id",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "grant this principal the cluster operation",
    KafkaError.SASL_AUTHENTICATION_FAILED: "check the SASL settings",
    KafkaError._AUTHENTICATION: "check the SASL settings",
    KafkaError._SSL: "check the TLS settings",
    KafkaError._INVALID_ARG: "check the settings",
    KafkaError.INVALID_CONFIG: "check the topic's settings",
    KafkaError.INVALID_PARTITIONS: "ask for at least one partition",
    KafkaError.INVALID_REPLICATION_FACTOR: "lower replication_factor to the number of brokers, or start more",
    KafkaError.INVALID_TRANSACTION_TIMEOUT: "keep transaction_timeout_ms below the broker's transaction.max.timeout.ms",
    KafkaError.INVALID_SESSION_TIMEOUT: "keep session_timeout_ms between the broker's group.min and group.max limits",
    KafkaError.FENCED_INSTANCE_ID: "another process has the same group_instance_id; give each process an id of its own",
    KafkaError.INCONSISTENT_GROUP_PROTOCOL: "the group has members of another kind; stop them or use another group",
    KafkaError.OFFSET_METADATA_TOO_LARGE: "fewer stores or operators per task, or raise offset.metadata.max.bytes",
    KafkaError.POLICY_VIOLATION: "the cluster's policy refuses it; adjust the topic's settings",
    KafkaError.NON_EMPTY_GROUP: "stop the group's members first",
}


_RIGHTS_TEXTS = {code: KafkaError(code).str() for code in sorted(RIGHTS)}
_TWIN = KafkaError(KafkaError.FENCED_INSTANCE_ID).str()
_PLACE_TAKEN = KafkaError(KafkaError.UNRELEASED_INSTANCE_ID).str()
"""A consumer reports its fatal errors by their texts only."""


def error_of(exc: BaseException) -> KafkaError | None:
    """Return the ``KafkaError`` in an exception of confluent_kafka or in its cause; ``None`` if there is none.

    The client raises a fatal error inside any Python call that is running, so it may be the cause of a ``SystemError``
    ("returned a result with an exception set").
    """
    seen: BaseException | None = exc
    while seen is not None:
        if isinstance(seen, KafkaException) and seen.args and isinstance(seen.args[0], KafkaError):
            return seen.args[0]
        seen = seen.__cause__ or seen.__context__
    return None


class NoBrokerError(EnvironmentFault):
    """No broker answers. A worker waits for one; other commands end."""


def no_answer(servers: str, said: str = "") -> NoBrokerError:
    """Return the fault to raise if no broker answers. ``said``: what the client said of its connections."""
    why = f" ({said})" if said else ""
    return NoBrokerError(
        f"no broker answers at {servers}. Start one with: penstock up, or name another: --bootstrap-server HOST:PORT{why}"
    )


def show(err: KafkaError) -> str:
    """Return name and text of an error, for a message."""
    return f"{err.name()} ({err.str()})"


def missing_right(err: KafkaError) -> int | None:
    """The code of ``RIGHTS`` that this error is or was caused by. A client that became unusable has it in its text only."""
    if err.code() in RIGHTS:
        return int(err.code())
    return next((code for code, text in _RIGHTS_TEXTS.items() if err.fatal() and text in err.str()), None)


def translate(err: KafkaError, doing: str) -> PenstockError:
    """Return the error to raise when ``doing`` failed with ``err``."""
    seen = f"{doing}: {show(err)}"
    code = err.code()
    if code == KafkaError.FENCED_INSTANCE_ID or (code == KafkaError._FATAL and _TWIN in err.str()):
        # before all other checks: joining again would fence the other process
        return UserError(f"{seen}; {_USER[KafkaError.FENCED_INSTANCE_ID]}")
    if code == KafkaError.UNRELEASED_INSTANCE_ID or (code == KafkaError._FATAL and _PLACE_TAKEN in err.str()):
        return RetriableError(f"{seen}; {_HINTS[KafkaError.UNRELEASED_INSTANCE_ID]}")
    if code in FENCED:
        kind = StaleEpochError if code in _STALE else TaskMigratedError
        return kind(f"{seen}; discard uncommitted work and join the group again")
    if (right := missing_right(err)) is not None:
        return UserError(f"{seen}; {_USER[right]}")
    if err.txn_requires_abort():
        return AbortableError(f"{seen}; abort the transaction, drop uncommitted work, use a new producer")
    if code == KafkaError._GAPLESS_GUARANTEE:
        return AbortableError(f"{seen}; a record was refused, so nothing after it may be committed: use a new producer")
    if err.fatal() or code == KafkaError._FATAL:
        return ProducerRetiredError(f"{seen}; this client is unusable, open a new one")
    if err.retriable() or code in RETRIABLE:
        return RetriableError(f"{seen}; {_HINTS.get(code, 'nothing happened, try again')}")
    if code == KafkaError.INVALID_REPLICATION_FACTOR and "fenced" in err.str():
        # There are enough brokers; the controller only waits for their heartbeats.
        return RetriableError(f"{seen}; brokers are away for the moment, try again")
    if code in _USER:
        return UserError(f"{seen}; {_USER[code]}")
    return EnvironmentFault(f"{seen}; see the broker's log")


def translated(exc: BaseException, doing: str) -> PenstockError:
    """``translate`` for an exception; one without a ``KafkaError`` is a closed or broken client."""
    err = error_of(exc)
    if err is None:
        return ProducerRetiredError(f"{doing}: {exc}; this client is closed or broken, open a new one")
    return translate(err, doing)


def refused_config(exc: BaseException) -> SettingsError:
    """Return the error for a configuration that librdkafka refuses. Its own text may quote the value, which may be a
    secret, so only the key is taken from it."""
    err = error_of(exc)
    text = err.str() if err is not None else str(exc)
    key = _PROPERTY.search(text)
    named = f"the client setting {key[1]!r}" if key else "the client settings"
    why = "there is no such key" if "No such configuration property" in text else "its value or combination is invalid"
    return SettingsError(
        f"librdkafka refuses {named}: {why}. Correct it in --client-config KEY=VALUE, or under [penstock.common], "
        "[penstock.consumer] or [penstock.producer] of the settings; the keys are in librdkafka's CONFIGURATION.md"
    )


def not_opened(exc: BaseException, doing: str) -> PenstockError:
    """Return the error for a client that cannot be opened: with its key, if librdkafka names one."""
    err = error_of(exc)
    names = _PROPERTY.search(err.str() if err is not None else str(exc))
    return translated(exc, doing) if names is None else refused_config(exc)


_PROPERTY = re.compile(r'property:? "([^"]+)"')
