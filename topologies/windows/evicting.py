"""Windows as a pair of policies, in the manner of IBM Streams: what leaves the window, and when its result is emitted.

Each policy is by count, delta, time or punctuation, and they may be paired freely:

    evicting(policies.count(10), trigger=policies.time("5s"))     # the last 10 records, every 5 s
    evicting(policies.delta("price", 2), trigger=policies.count(1))   # all within 2 of the newest, at every record
    evicting(policies.count(100))                                 # 100 after 100

Windows are per key and hold records in order of arrival. Without a trigger they tumble: when the policy says that the
window is full, its result is emitted and all records leave. With one they slide: the oldest leave.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import itemgetter
from typing import Any

from penstock.state.errors import TopologyError
from penstock.topologies.windows.base import Time, Windows, check_common
from penstock.topologies.windows.durations import Duration, duration_ms


@dataclasses.dataclass(frozen=True)
class CountPolicy:
    """Evict: keep the last n. Tumble: n are full. Trigger: at every nth record."""

    n: int


@dataclasses.dataclass(frozen=True)
class Delta:
    """``of(value)`` gives a number. Evict: those further than ``distance`` from the newest. Tumble: before a record
    further than that from the first. Trigger: at a record further than that from the one that triggered last (at first:
    from the first one)."""

    of: Callable[[Any], float]
    distance: float

    def measure(self, value: Any) -> float:
        """The number of a record. Raises ``TypeError`` for anything else."""
        x = self.of(value)
        if not isinstance(x, int | float):
            raise TypeError(f"a delta policy needs a number of each record, not {type(x).__name__} {x!r:.60}")
        return x


@dataclasses.dataclass(frozen=True)
class TimePolicy:
    """Evict: those whose time is ``ms`` or more ago; a record that comes so late is dropped and counted. Tumble: ``ms``
    after the first record. Trigger: every ``ms``, from the window's first record on, if the window is not as it was
    before."""

    ms: int


@dataclasses.dataclass(frozen=True)
class Punctuation:
    """``fn(value)`` says whether a record is a punctuation. Evict: all before it. Tumble and trigger: at it; it is part of
    the window that it closes, if ``inclusive``, else of the next one."""

    fn: Callable[[Any], Any]
    inclusive: bool = True


Policy = CountPolicy | Delta | TimePolicy | Punctuation


@dataclasses.dataclass(frozen=True)
class EvictingWindows(Windows):
    """A pair of policies: what leaves the window, and when its result is emitted; without ``trigger`` they tumble.
    ``time``: of ``TimePolicy`` policies; event time is the operator's stream time here."""

    evict: Policy
    trigger: Policy | None = None
    time: Time = "event"

    def __post_init__(self) -> None:
        check_common(0, self.time)
        for policy in (self.evict, self.trigger):
            if policy is not None and not isinstance(policy, Policy):
                raise TopologyError(
                    f"{policy!r:.100} is not a window policy; use policies.count(n), delta(of, d), time(t), "
                    "punctuation(fn)"
                )

    def describe(self) -> str:
        """The policies."""
        trigger = "" if self.trigger is None else f", trigger={_shown(self.trigger)}"
        return f"evicting({_shown(self.evict)}{trigger}{', time=processing' if self.time == 'processing' else ''})"


def _shown(policy: Policy) -> str:
    if isinstance(policy, CountPolicy):
        return f"count({policy.n})"
    if isinstance(policy, TimePolicy):
        return f"time({policy.ms} ms)"
    if isinstance(policy, Delta):
        return f"delta({_name(policy.of)}, {policy.distance})"
    return f"punctuation({_name(policy.fn)}{'' if policy.inclusive else ', inclusive=False'})"


def _name(fn: Callable[..., Any]) -> str:
    return str(getattr(fn, "__name__", type(fn).__name__))


def count(n: int) -> CountPolicy:
    """By number of records."""
    if n < 1:
        raise TopologyError(f"a policy by count needs at least 1 record, not {n}")
    return CountPolicy(n)


def delta(of: str | Callable[[Any], float], distance: float) -> Delta:
    """By how far a number of the record has moved: a field's name, or a function of the value."""
    if distance < 0:
        raise TopologyError(f"a policy by delta needs a distance of 0 or more, not {distance}")
    if isinstance(of, str):
        return Delta(_field(of), distance)
    if not callable(of):
        raise TopologyError(f"a policy by delta needs a field's name or a function, not {of!r:.60}")
    return Delta(of, distance)


def _field(name: str) -> Callable[[Any], Any]:
    item = itemgetter(name)

    def pick(value: Any) -> Any:
        return item(value) if isinstance(value, dict) else getattr(value, name)

    pick.__name__ = name
    return pick


def time(span: Duration) -> TimePolicy:
    """By time."""
    ms = duration_ms(span)
    if ms < 1:
        raise TopologyError(f"a policy by time needs at least 1 ms, not {span!r}")
    return TimePolicy(ms)


def punctuation(fn: Callable[[Any], Any], *, inclusive: bool = True) -> Punctuation:
    """By records that a function of the value picks."""
    if not callable(fn):
        raise TopologyError(f"a policy by punctuation needs a function, not {fn!r:.60}")
    return Punctuation(fn, inclusive)


def evicting(evict: Policy, *, trigger: Policy | None = None, time: Time = "event") -> EvictingWindows:
    """Windows by policies; without a trigger they tumble."""
    return EvictingWindows(evict, trigger, time)


def count_tumbling(n: int) -> EvictingWindows:
    """n records after n records."""
    return EvictingWindows(count(n))


def count_sliding(n: int, every: int = 1) -> EvictingWindows:
    """The last n records, at every ``every``-th one."""
    return EvictingWindows(count(n), count(every))


def delta_tumbling(of: str | Callable[[Any], float], distance: float) -> EvictingWindows:
    """A new window when a number has moved by more than ``distance`` since the window's first record."""
    return EvictingWindows(delta(of, distance))


def punctuated_by(fn: Callable[[Any], Any], *, inclusive: bool = True) -> EvictingWindows:
    """A record that ``fn(value)`` picks closes the window."""
    return EvictingWindows(punctuation(fn, inclusive=inclusive))
