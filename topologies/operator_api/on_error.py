"""The policy of one source or operator for a record that fails there, instead of the application's."""

from __future__ import annotations

import dataclasses
from typing import Final, Literal, get_args

from penstock.state.errors import TopologyError

ErrorPolicy = Literal["fail", "skip", "dead_letter"]
"""Stop the task; drop and count the record; also send it to the dead letter topic."""
PAUSES_MAX_MS: Final = 10_000
"""The longest that the attempts of one record may pause in all, and those of one batch: a longer pause would cost the
worker its transaction or its place in the group."""


@dataclasses.dataclass(frozen=True)
class Retry:
    """Call the function again: at most ``attempts`` calls in all, with a pause of ``backoff_ms`` before the second, and
    twice the last one before each further. If the last call fails too, the policy is ``then``. Other records wait."""

    attempts: int
    backoff_ms: int
    then: ErrorPolicy

    def pauses_ms(self) -> list[int]:
        """The pause before each further call."""
        return [self.backoff_ms << n for n in range(self.attempts - 1)]


@dataclasses.dataclass(frozen=True)
class HoldKey:
    """A record that fails waits, and all later records of its key behind it. The first one is tried again after
    ``backoff_ms``, then after twice the last pause, up to ``backoff_max_ms``, until it succeeds. Other keys go on."""

    backoff_ms: int
    backoff_max_ms: int

    def pause_ms(self, attempts: int) -> int:
        """The pause after this many attempts have failed."""
        return min(self.backoff_ms << min(attempts - 1, 40), self.backoff_max_ms)


OnError = ErrorPolicy | Retry | HoldKey


def why_refused(retry: Retry) -> str | None:
    """Why these attempts are refused; ``None`` if they are not."""
    if not 2 <= retry.attempts <= 100 or retry.backoff_ms < 0:
        return (
            f"retry with attempts={retry.attempts}, backoff={retry.backoff_ms} ms; give 2 to 100 attempts and a pause of 0 "
            "or more"
        )
    if (pauses_ms := sum(retry.pauses_ms())) > PAUSES_MAX_MS:
        return (
            f"the pauses of {retry.attempts} attempts add up to {pauses_ms} ms, and other records wait for them; "
            f"{PAUSES_MAX_MS} ms are allowed: give fewer attempts or a shorter backoff"
        )
    return None


def checked_on_error(chosen: object, name: str) -> OnError:
    """Return what was chosen for operator ``name``. Raises ``TopologyError`` if it is none of the policies."""
    if isinstance(chosen, Retry) and (why := why_refused(chosen)) is not None:
        raise TopologyError(f"operator {name!r}: {why}")
    if isinstance(chosen, HoldKey):
        if not 1 <= chosen.backoff_ms <= chosen.backoff_max_ms:
            raise TopologyError(
                f"operator {name!r}: hold_key with a backoff of {chosen.backoff_ms} ms and at most {chosen.backoff_max_ms} "
                "ms; give 1 ms or more, and a backoff_max that is not below"
            )
        return chosen
    policy = chosen.then if isinstance(chosen, Retry) else chosen
    for known in get_args(ErrorPolicy):
        if policy == known:
            return chosen if isinstance(chosen, Retry) else known
    raise TopologyError(
        f"operator {name!r}: {policy!r} is not an error policy; choose fail, skip, dead_letter, retry(attempts, backoff) or "
        "hold_key(backoff)"
    )
