"""The bytes of subscriptions and responses, laid out as Kafka Streams lays them out."""

from __future__ import annotations

import pytest

from penstock.state.errors import SerdeError
from penstock.topologies.operators.base.foreign_key_messages import (
    DELETE_NO_PROPAGATE,
    PROPAGATE_NULL_IF_NO_FK,
    RESPONSE,
    SUBSCRIPTION,
    Response,
    Subscription,
    after_prefix,
    hash_of,
    subscription_key,
)

HASH = bytes(range(16))


@pytest.mark.parametrize(
    ("subscription", "data"),
    [
        (Subscription(HASH, PROPAGATE_NULL_IF_NO_FK, b"pk", 3), b"\x01\x02" + HASH + b"pk\x00\x00\x00\x03"),
        (Subscription(None, DELETE_NO_PROPAGATE, b"pk", 258), b"\x81\x00pk\x00\x00\x01\x02"),
        (Subscription(None, PROPAGATE_NULL_IF_NO_FK, b"", 0), b"\x81\x02\x00\x00\x00\x00"),
    ],
)
def test_subscriptions(subscription: Subscription, data: bytes) -> None:
    assert SUBSCRIPTION.serialize(subscription) == data
    assert SUBSCRIPTION.deserialize(data) == subscription


@pytest.mark.parametrize(
    ("response", "data"),
    [
        (Response(HASH, b"right"), b"\x00" + HASH + b"right"),
        (Response(HASH, None), b"\x00" + HASH),
        (Response(None, None), b"\x80"),
        (Response(HASH, b""), b"\x40" + HASH),
    ],
)
def test_responses(response: Response, data: bytes) -> None:
    assert RESPONSE.serialize(response) == data
    assert RESPONSE.deserialize(data) == response


def test_the_partition_is_not_on_the_wire() -> None:
    assert RESPONSE.serialize(Response(HASH, b"right", 7)) == b"\x00" + HASH + b"right"


@pytest.mark.parametrize("data", [b"\x02\x02" + HASH + b"\x00" * 4, b"\x01\x02" + HASH, b"\x81\x07\x00\x00\x00\x00"])
def test_other_subscriptions_are_refused(data: bytes) -> None:
    with pytest.raises(SerdeError, match="not a subscription of version 1"):
        SUBSCRIPTION.deserialize(data)


@pytest.mark.parametrize("data", [b"\x01" + HASH, b"\x00short"])
def test_other_responses_are_refused(data: bytes) -> None:
    with pytest.raises(SerdeError, match="not a response of version 0"):
        RESPONSE.deserialize(data)


def test_hashes_are_stable_and_tell_values_apart() -> None:
    assert hash_of(b"left").hex() == "d7ffd31972ce714128dc72bec5fc1dad"
    assert hash_of(b"left") != hash_of(b"right")


@pytest.mark.parametrize("foreign", [b"", b"a", b"a\xff", b"\xff\xff"])
def test_the_prefix_of_a_foreign_key_holds_its_subscriptions_only(foreign: bytes) -> None:
    low = subscription_key(foreign, b"")
    high = after_prefix(low)
    others = [b"", b"a", b"a\xff", b"a\xff\xff", b"b", b"\xff\xff", b"\xff\xff\x00"]
    for key in (b"", b"\x00", b"\xff\xff"):
        assert low <= subscription_key(foreign, key) < high
        for other in others:
            if other != foreign:
                assert not low <= subscription_key(other, key) < high
