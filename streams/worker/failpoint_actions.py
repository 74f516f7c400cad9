"""Actions at failpoints, as the environment asks: ``PENSTOCK_FAILPOINTS="commit.sent=kill@3;restore.opened=sleep:2"``.

``NAME=ACTION@N`` acts at the nth passage (without ``@N``: the first). ``kill`` and ``stop`` send the process SIGKILL and
SIGSTOP; ``sleep:SECONDS`` waits; ``raise`` raises an error that nothing expects, ``raise:abortable`` one that aborts a
commit. ``*=note`` writes each name to stderr when it is passed first. For tests: no worker is run so for other reasons.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping

from penstock.state.errors import PenstockError, SettingsError
from penstock.state.failpoints import FAILPOINTS, arm
from penstock.streams.ports.log import AbortableError

VARIABLE = "PENSTOCK_FAILPOINTS"
ANY = "*"
ACTIONS = ("kill", "stop", "sleep", "raise", "note")


class FailpointError(PenstockError):
    """Raised by a failpoint, as an error that nobody has thought of."""


class Strikes:
    """See the module. ``text``: the variable's value. Raises ``SettingsError`` for what it does not know."""

    def __init__(self, text: str) -> None:
        self._passed: Counter[str] = Counter()
        self._noted: set[str] = set()
        self._lock = threading.Lock()
        self._orders: dict[tuple[str, int], tuple[str, str]] = {}
        self._notes = False
        for part in filter(None, (p.strip() for p in text.split(";"))):
            self._add(part)

    def _add(self, part: str) -> None:
        name, _, rest = part.partition("=")
        action, _, nth = rest.partition("@")
        kind, _, detail = action.partition(":")
        if (name not in FAILPOINTS and name != ANY) or kind not in ACTIONS or not (nth or "1").isdecimal():
            raise SettingsError(f"{VARIABLE}: {part!r} is not NAME={'|'.join(ACTIONS)}[:DETAIL][@N] with a known name")
        if kind == "note":
            self._notes = True
        else:
            self._orders[name, int(nth or 1)] = (kind, detail)

    def __call__(self, name: str) -> None:
        """The place was passed."""
        with self._lock:  # restores run in a thread of their own
            self._passed[name] += 1
            order = self._orders.get((name, self._passed[name]))
            first = self._notes and name not in self._noted
            self._noted.add(name)
        if first:
            _say(f"failpoint {name} passed")
        if order is not None:
            self._act(name, *order)

    def _act(self, name: str, kind: str, detail: str) -> None:
        _say(f"failpoint {name}: {kind} {detail}".rstrip())
        match kind:
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "stop":
                os.kill(os.getpid(), signal.SIGSTOP)
            case "sleep":
                time.sleep(float(detail))
            case _:
                raise (AbortableError if detail == "abortable" else FailpointError)(f"failpoint {name}")


def _say(line: str) -> None:
    """Write a line at once. ``print`` writes its end separately, and another thread's line may come in between."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def arm_from(env: Mapping[str, str]) -> None:
    """Arm what the environment asks for; nothing where it does not."""
    if text := env.get(VARIABLE):
        arm(Strikes(text))
