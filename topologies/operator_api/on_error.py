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


OnError = ErrorPolicy | Retry


def checked_on_error(chosen: object, name: str) -> OnError:
    """Return what was chosen for operator ``name``. Raises ``TopologyError`` if it is none of the policies."""
    if isinstance(chosen, Retry):
        if not 2 <= chosen.attempts <= 100 or chosen.backoff_ms < 0:
            raise TopologyError(
                f"operator {name!r}: retry with attempts={chosen.attempts}, backoff={chosen.backoff_ms} ms; give 2 to 100 "
                "attempts and a pause of 0 or more"
            )
        if sum(chosen.pauses_ms()) > PAUSES_MAX_MS:
            raise TopologyError(
                f"operator {name!r}: the pauses of {chosen.attempts} attempts add up to {sum(chosen.pauses_ms())} ms, and "
                f"other records wait for them; {PAUSES_MAX_MS} ms are allowed: give fewer attempts or a shorter backoff"
            )
    policy = chosen.then if isinstance(chosen, Retry) else chosen
    for known in get_args(ErrorPolicy):
        if policy == known:
            return chosen if isinstance(chosen, Retry) else known
    raise TopologyError(
        f"operator {name!r}: {policy!r} is not an error policy; choose fail, skip, dead_letter or retry(attempts, backoff)"
    )
