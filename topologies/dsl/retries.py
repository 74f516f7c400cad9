"""The policy that calls a function again."""

from __future__ import annotations

from penstock.topologies.operator_api.on_error import ErrorPolicy, Retry
from penstock.topologies.windows.durations import Duration, duration_ms


def retry(attempts: int, backoff: Duration, *, then: ErrorPolicy = "fail") -> Retry:
    """For ``on_error``: call the function up to ``attempts`` times in all, with a pause of ``backoff`` before the second
    call and twice the last pause before each further one. If the last call fails too, ``then`` decides::

        orders.map_values(price).on_error(retry(3, "200ms", then="dead_letter"))

    Records behind it wait. The function runs again as it is, so it must not have changed anything when it raised."""
    return Retry(attempts, duration_ms(backoff), then)
