"""When the content of a window is emitted: triggers as values, each a state machine.

``base`` has the machine's rules, ``simple`` the triggers on time and counts, ``composite`` those that combine others.
"""

from __future__ import annotations

from penstock.topologies.triggers.base import Trigger
from penstock.topologies.triggers.composite import (
    after_all,
    after_any,
    after_each,
    after_watermark,
    or_finally,
    purging,
    repeatedly,
)
from penstock.topologies.triggers.simple import (
    after_count,
    after_processing_time,
    continuous_event_time,
    count,
    default_trigger,
    event_time,
    never,
    processing_time,
)

__all__ = [
    "Trigger",
    "after_all",
    "after_any",
    "after_count",
    "after_each",
    "after_processing_time",
    "after_watermark",
    "continuous_event_time",
    "count",
    "default_trigger",
    "event_time",
    "never",
    "or_finally",
    "processing_time",
    "purging",
    "repeatedly",
]
