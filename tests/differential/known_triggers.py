"""The known departures of Penstock's triggers from Beam's, and what is not decided yet."""

from __future__ import annotations

from tests.differential.departures import Departure, any_order_at_once
from tests.differential.inputs import Run


def has_late_elements(run: Run) -> bool:
    """Some element comes behind the watermark, and lateness has a limit."""
    watermark = 0
    for entry in run.input:
        if "watermark" in entry:
            watermark = entry["watermark"]
        elif any(ts < watermark for ts, _ in entry["elements"]):
            return bool(run.nodes[0]["allowed_lateness"] != "unlimited")
    return False


DEPARTURES: tuple[Departure, ...] = (
    Departure(
        "order among windows",
        ("sliding_*", "session_*", "fixed_*"),
        "choice",
        "Windows that fire together come in order of their start. Beam promises no order.",
        seen_as=any_order_at_once,
    ),
    Departure(
        "expired sessions merged",
        ("session_*",),
        "Beam",
        "A session that is older than the allowed lateness is gone, as in Beam's model. Beam's Python driver never "
        "forgets one, so that late elements still merge with it.",
        where=has_late_elements,
    ),
)
"""Where the two differ for good."""

PENDING: dict[str, str] = {}
"""As in ``known.py``."""
