"""The policy that calls a function again."""

from __future__ import annotations

from penstock.topologies.operator_api.on_error import ErrorPolicy, HoldKey, Retry
from penstock.topologies.windows.durations import Duration, duration_ms


def retry(attempts: int, backoff: Duration, *, then: ErrorPolicy = "fail") -> Retry:
    """For ``on_error``: call the function up to ``attempts`` times in all, with a pause of ``backoff`` before the second
    call and twice the last pause before each further one. If the last call fails too, ``then`` decides::

        orders.map_values(price).on_error(retry(3, "200ms", then="dead_letter"))

    Records behind it wait. The function runs again as it is, so it must not have changed anything when it raised."""
    return Retry(attempts, duration_ms(backoff), then)


def hold_key(backoff: Duration, *, backoff_max: Duration = "1m") -> HoldKey:
    """For ``on_error``: a record that fails waits, and all later records of its key wait behind it, in their order. The
    first one is tried again after ``backoff``, then after twice the last pause, up to ``backoff_max``, until it succeeds.
    Other keys go on::

        orders.map_values(booked).on_error(hold_key("1s"))

    Waiting records are in a store of the operator, so that they outlive the worker, and a corrected function lets them
    through. A record without a key ends the worker instead."""
    return HoldKey(duration_ms(backoff), duration_ms(backoff_max))
