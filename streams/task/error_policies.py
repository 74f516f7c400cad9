"""Policies for records that cannot be processed. The default is to stop: nothing past it is committed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Literal

from penstock.state.errors import SettingsError
from penstock.topologies.operator_api.on_error import ErrorPolicy as ErrorPolicy
from penstock.topologies.operator_api.on_error import HoldKey, OnError, Retry, why_refused

TimestampErrorPolicy = Literal["fail", "skip", "clamp", "dead_letter"]
_NAME_IT = (
    "name a topic: dead_letter_topic under [penstock.policies] of the settings file, or in code and in a test driver "
    "policies=ps.Policies(dead_letter_topic=…)"
)


@dataclasses.dataclass(frozen=True)
class Policies:
    """``deserialization``: bytes that a serde cannot read. ``processing``: a user function that raises, or an output
    over ``max_record_bytes``. ``timestamp``: negative, or more than ``future_timestamp_max_ms`` ahead.

    ``fail`` measures "ahead" by the clock, in live runs only. ``skip``, ``clamp`` and ``dead_letter`` measure it
    against the partition's own stream time, so a replay decides the same. Records before the first stream time are
    measured against the clock when the first of them arrived, which is committed and which a replay reads. ``clamp``
    gives such a record the partition's stream time (0 before any). ``dead_letter`` sends the record's original bytes to
    ``dead_letter_topic``, with the error in its headers.

    ``retry_attempts`` above 1: a function that raises is called again, up to that many calls in all, with a pause of
    ``retry_backoff_ms`` before the second call, and twice the last one before each further; then ``processing`` decides.
    That is for operators that can call their function again, those to which ``retry`` can be given; see it.

    They hold for every source and operator that has no policy of its own (``on_error``). A table over its own topic
    has ``fail`` for ``deserialization`` and ``timestamp``, and a worker accepts no other one for it: a restore reads that
    topic with all that the table refused.
    """

    deserialization: ErrorPolicy = "fail"
    processing: ErrorPolicy = "fail"
    timestamp: TimestampErrorPolicy = "fail"
    dead_letter_topic: str | None = None
    future_timestamp_max_ms: int = 3_600_000
    max_record_bytes: int = 1_000_000
    retry_attempts: int = 1
    retry_backoff_ms: int = 200

    def __post_init__(self) -> None:
        chosen = (self.deserialization, self.processing, self.timestamp)
        for value in chosen:
            if value not in ("fail", "skip", "clamp", "dead_letter"):
                raise SettingsError(
                    f"{value!r} is not an error policy; choose fail, skip or dead_letter (timestamps: clamp too)"
                )
        if "clamp" in chosen[:2]:
            raise SettingsError("the policy clamp is for timestamps only; choose fail, skip or dead_letter")
        if "dead_letter" in chosen and not self.dead_letter_topic:
            raise SettingsError(f"a policy is dead_letter but no dead_letter_topic is set; {_NAME_IT}")
        if self.future_timestamp_max_ms < 0 or self.max_record_bytes < 1:
            raise SettingsError("future_timestamp_max_ms cannot be negative, and max_record_bytes must be at least 1")
        if self.retry_attempts < 1:
            raise SettingsError(f"retry_attempts={self.retry_attempts}; give 1 for a single call, or up to 100")
        general = self.retry_of(None)
        if general is not None and (why := why_refused(general)) is not None:
            raise SettingsError(f"retry_attempts and retry_backoff_ms: {why}")

    def retry_of(self, chosen: OnError | None) -> Retry | None:
        """How often the function of an operator is called again for which this was chosen."""
        if chosen is not None:
            return chosen if isinstance(chosen, Retry) else None
        if self.retry_attempts == 1:
            return None
        return Retry(self.retry_attempts, self.retry_backoff_ms, self.processing)

    def of_source(self, chosen: OnError | None) -> Policies:
        """The policies of a source: these, or what was chosen for it (bytes that cannot be read, and timestamps)."""
        if chosen is None:
            return self
        policy = then_of(chosen)
        return dataclasses.replace(self, deserialization=policy, timestamp=policy)

    def check(self, on_error: Mapping[str, OnError]) -> None:
        """Refuse dead letters that have nowhere to go. Raises ``SettingsError``."""
        sending = [name for name, chosen in on_error.items() if then_of(chosen) == "dead_letter"]
        if sending and not self.dead_letter_topic:
            raise SettingsError(
                f"on_error of operator {sending[0]!r} is dead_letter but no dead_letter_topic is set; {_NAME_IT}"
            )


def then_of(chosen: OnError) -> ErrorPolicy:
    """The policy for a record that fails, after its last attempt, or cannot be held because it has no key."""
    if isinstance(chosen, HoldKey):
        return "fail"
    return chosen.then if isinstance(chosen, Retry) else chosen
