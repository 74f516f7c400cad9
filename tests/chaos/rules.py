"""What a proxy does to frames and connections: faults that strike by request type, and the state of the network. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Literal

from tests.chaos.frames import Api

Side = Literal["request", "response"]
Action = Literal["pass", "drop", "delay", "reset", "flip"]
Cut = Literal["none", "silent", "half_open", "refused"]


@dataclasses.dataclass(frozen=True)
class Link:
    """Whose connection it is, as far as it is known: ``client`` is empty before its first request."""

    broker: int
    client: str = ""


@dataclasses.dataclass
class Fault:
    """Strikes the matching frames from the ``nth`` on, ``times`` of them (0: all).

    ``pass``: nothing happens, it only counts. ``drop``: the frame vanishes. ``delay``: it comes ``delay_s`` later, a request
    also when the client has closed its connection meanwhile; what follows waits behind it, or goes ahead if ``overtaken``.
    ``reset``: the connection is torn down instead of passing the frame on. ``flip``: one bit of the fetched records changes;
    frames without records do not count. ``apis``: empty for all. ``client``: how the client's id begins. ``hits`` counts the
    frames that were struck, and ``brokers`` has those that they were for or from.
    """

    action: Action
    apis: tuple[Api, ...] = ()
    side: Side = "request"
    client: str = ""
    broker: int | None = None
    nth: int = 1
    times: int = 1
    delay_s: float = 0.0
    overtaken: bool = False
    met: int = 0
    hits: int = 0
    brokers: set[int] = dataclasses.field(default_factory=set)

    def matches(self, link: Link, side: Side, api: int) -> bool:
        """Whether the frame is one of those that it may strike."""
        return (
            side == self.side
            and (not self.apis or api in self.apis)
            and link.client.startswith(self.client)
            and self.broker in (None, link.broker)
        )

    def strikes(self, link: Link, side: Side, api: int) -> bool:
        """Whether it strikes this frame, which is counted."""
        if not self.matches(link, side, api):
            return False
        self.met += 1
        if self.met < self.nth or (self.times and self.hits >= self.times):
            return False
        self.hits += 1
        self.brokers.add(link.broker)
        return True

    @property
    def spent(self) -> bool:
        """Whether it will strike no more."""
        return bool(self.times) and self.hits >= self.times


@dataclasses.dataclass
class Weather:
    """The state of the connections of some clients to some brokers.

    ``cut``: ``silent``: nothing passes and nobody is told, as with a pulled cable, until it heals; ``half_open``: the same
    for answers only; ``refused``: connections are reset, new ones too. ``slice_bytes``: so many are written at once.
    """

    client: str = ""
    broker: int | None = None
    cut: Cut = "none"
    latency_s: float = 0.0
    bytes_per_s: float = 0.0
    slice_bytes: int = 0

    def covers(self, link: Link) -> bool:
        """Whether it holds for the connection."""
        return link.client.startswith(self.client) and self.broker in (None, link.broker)

    def stops(self, side: Side) -> bool:
        """Whether frames of this side wait."""
        return self.cut == "silent" or (self.cut == "half_open" and side == "response")


class Sky:
    """All faults and weathers of a network. ``fault`` and ``weather`` add one; ``clear`` ends all of them."""

    def __init__(self) -> None:
        self._faults: tuple[Fault, ...] = ()
        self._weathers: tuple[Weather, ...] = ()

    def fault(self, fault: Fault) -> Fault:
        """Add a fault; returns it."""
        self._faults = (*self._faults, fault)
        return fault

    def weather(self, weather: Weather) -> Weather:
        """Add a weather; returns it."""
        self._weathers = (*self._weathers, weather)
        return weather

    def end(self, *gone: Fault | Weather) -> None:
        """End these."""
        self._faults = tuple(f for f in self._faults if not any(f is g for g in gone))
        self._weathers = tuple(w for w in self._weathers if not any(w is g for g in gone))

    def clear(self) -> None:
        """End all of them."""
        self._faults, self._weathers = (), ()

    def striking(self, link: Link, side: Side, api: int, has_records: Callable[[], bool]) -> Fault | None:
        """The first fault that strikes the frame."""
        for fault in self._faults:
            if fault.action == "flip" and not (fault.matches(link, side, api) and not fault.spent and has_records()):
                continue
            if fault.strikes(link, side, api) and fault.action != "pass":
                return fault
        return None

    def over(self, link: Link) -> list[Weather]:
        """The weathers of a connection."""
        return [w for w in self._weathers if w.covers(link)]
