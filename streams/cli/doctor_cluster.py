"""Checks of ``penstock doctor`` beyond settings: the brokers' addresses and clock, ports, and rights."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from penstock.streams.kafka.broker_clock import ClockDifference
    from penstock.streams.runtime.least_rights import Right

Verdict = Literal["good", "look", "wrong"]
_CONNECT_S = 3.0
_CLOCK_LOOK_MS, _CLOCK_WRONG_MS = 1_000, 60_000


class Finding(NamedTuple):
    """One thing that was looked at. ``advice`` is empty where there is nothing to do."""

    what: str
    verdict: Verdict
    seen: str
    advice: str = ""


def connects(host: str, port: int) -> str | None:
    """Why a connection fails; ``None`` where it opens."""
    try:
        socket.create_connection((host, port), _CONNECT_S).close()
    except OSError as exc:
        return exc.strerror or str(exc)
    return None


def addresses(
    brokers: Mapping[int, tuple[str, int]], reach: Callable[[str, int], str | None] = connects
) -> Iterator[Finding]:
    """The address that each broker gives to its clients, which must be reached from here."""
    for number, (host, port) in sorted(brokers.items()):
        why = reach(host, port)
        if why is None:
            yield Finding(f"broker {number}", "good", f"reached at {host}:{port}")
        else:
            yield Finding(
                f"broker {number}",
                "wrong",
                f"{host}:{port} cannot be reached: {why}",
                "clients are sent there: correct the broker's advertised.listeners, or the firewall and the names",
            )


def clock(difference: ClockDifference) -> Finding:
    """Judge the difference of the clocks."""
    seen = f"the broker's is {difference.least_ms:+,} to {difference.most_ms:+,} ms from this machine's"
    if difference.certain_ms > _CLOCK_WRONG_MS:
        advice = "records look as if they came from the future or the past: run a time service (NTP) on both machines"
        return Finding("clock", "wrong", seen, advice)
    if difference.certain_ms > _CLOCK_LOOK_MS:
        return Finding("clock", "look", seen, "run a time service (NTP) on both machines")
    return Finding("clock", "good", seen)


def port(number: int, host: str) -> Finding:
    """Whether the metrics can be served."""
    if not number:
        return Finding("metrics port", "look", "off", "set metrics_port to have /metrics, /health and /ready")
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, number))
        except OSError as exc:
            advice = (
                f"if it is not this application's worker, choose another metrics_port; ss -ltnp 'sport = :{number}'"
            )
            return Finding("metrics port", "look", f"{host}:{number}: {exc.strerror or exc}", advice)
    return Finding("metrics port", "good", f"{host}:{number} is free")


def rights(
    needed: Sequence[Right],
    topics: Mapping[str, frozenset[str] | None],
    groups: Mapping[str, frozenset[str] | None],
) -> Iterator[Finding]:
    """The rights that this principal lacks. ``topics`` and ``groups``: what it has, by name."""
    lacking = 0
    unasked: list[str] = []
    for right in needed:
        granted: frozenset[str] | None = None
        if right.kind != "transactional-id":
            granted = (topics if right.kind == "topic" else groups).get(right.name)
        if granted is None:
            unasked.append(f"{right.name}*" if right.prefixed else right.name)
            continue
        missing = [o for o in right.operations if o != "CREATE" and o not in granted]
        if missing:
            lacking += 1
            seen = f"{right.kind} {right.name}: no {', '.join(missing)}"
            yield Finding("rights", "wrong", seen, f"the worker {right.why}; penstock acls prints what to grant")
    if not lacking:
        yield Finding("rights", "good", f"{len(needed) - len(unasked)} of {len(needed)} asked for, all granted")
    if unasked:
        yield Finding("rights", "look", f"brokers do not say: {_some(unasked)}", "compare with: penstock acls")


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    return ", ".join(listed[:4]) + (f" and {len(listed) - 4} more" if len(listed) > 4 else "")
