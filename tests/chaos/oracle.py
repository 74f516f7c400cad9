"""The judge: from the records of the input it works out, in plain Python, what the output must be, and counts what differs.

It knows the topology only as its docstring describes it (``tests/chaos/application.py``), and the engine not at all. Values
of changelogs are 8 bytes of a number, big-endian, as Kafka Streams writes longs.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from tests.chaos.log_reading import Read, Topic, by_key

WINDOW_MS = 10_000
SHOWN_MAX = 12


@dataclasses.dataclass
class Verdict:
    """What was found. ``lost``: results that are missing; ``doubled``: results that came again or are too high; ``torn``:
    parts of one commit without the others; ``regressions``: values below one before them; ``stale``: last values that are
    too low. ``examples`` has some of them in words."""

    lost: int = 0
    doubled: int = 0
    torn: int = 0
    regressions: int = 0
    stale: int = 0
    results: int = 0
    examples: list[str] = dataclasses.field(default_factory=list)

    def note(self, text: str) -> None:
        """Add an example, unless there are enough."""
        if len(self.examples) < SHOWN_MAX:
            self.examples.append(text)

    def exact(self) -> bool:
        """What exactly-once promises."""
        return not (self.lost or self.doubled or self.torn or self.regressions or self.stale)

    def nothing_lost(self) -> bool:
        """What at-least-once promises: all is there, and no last value is too low."""
        return not (self.lost or self.stale)


@dataclasses.dataclass(frozen=True)
class Wanted:
    """What must come out: the number of orders per user, per city, per window, and the window's sums."""

    users: dict[str, int]
    cities: dict[str, int]
    windows: dict[str, list[int]]

    @classmethod
    def of(cls, orders: Topic, users: Topic) -> Wanted:
        """From the input alone. Users are written once, before any order."""
        city = {key.decode(): json.loads(found[-1].value or b"")["city"] for key, found in by_key(users).items()}
        per_user: Counter[str] = Counter()
        per_city: Counter[str] = Counter()
        windows: dict[str, list[int]] = {}
        for records in orders.values():
            for record in records:
                assert record.key is not None
                assert record.value is not None
                user, order = record.key.decode(), json.loads(record.value)
                per_user[user] += 1
                assert order["n"] == per_user[user], "the input itself is not in order"
                per_city[city[user]] += 1
                start = record.timestamp_ms // WINDOW_MS * WINDOW_MS
                windows.setdefault(f"{city[user]}@{start}", []).append(order["amount"])
        return cls(dict(per_user), dict(per_city), windows)


def judge(wanted: Wanted, outputs: Mapping[str, Topic], changelogs: Mapping[str, Topic]) -> Verdict:
    """Compare the outputs, by their names without prefix, and the changelogs, by the names of their stores."""
    verdict = Verdict()
    orders, audits = split(outputs["joined"])
    windows = numbers(outputs["windows"], "n")
    sizes = {key: len(amounts) for key, amounts in wanted.windows.items()}
    sequences(verdict, "joined", wanted.users, orders)
    sequences(verdict, "counts", wanted.users, numbers(outputs["counts"]))
    sequences(verdict, "cities", wanted.cities, numbers(outputs["cities"]))
    sequences(verdict, "windows", sizes, windows)
    sums(verdict, wanted.windows, windows, numbers(outputs["windows"], "total"))
    sequences(verdict, "behind", wanted.users, users_of(outputs["behind"]))
    commits(verdict, wanted.users, outputs["joined"], audits, numbers(outputs["audit"], "audit"))
    for store, counts in (("per-user", wanted.users), ("per-commit", wanted.users), ("per-city", wanted.cities)):
        if store in changelogs:
            stored(verdict, store, counts, changelogs[store])
    return verdict


def sequences(verdict: Verdict, where: str, wanted: Mapping[str, int], found: Mapping[str, Sequence[int]]) -> None:
    """Each key must have 1, 2, … its number, once each and in order."""
    for key in wanted.keys() | found.keys():
        n, values = wanted.get(key, 0), list(found.get(key, ()))
        verdict.results += n
        if values == list(range(1, n + 1)):
            continue
        times = Counter(values)
        lost = sum(1 for i in range(1, n + 1) if i not in times)
        doubled = sum(c - 1 for c in times.values()) + sum(1 for i in times if not 1 <= i <= n)
        falls = descents(values)
        verdict.lost += lost
        verdict.doubled += doubled
        verdict.regressions += falls
        verdict.stale += (values[-1] if values else 0) < n
        verdict.note(f"{where} {key}: wanted 1 to {n}, lost {lost}, doubled {doubled}: {around(values)}")


def sums(
    verdict: Verdict,
    wanted: Mapping[str, Sequence[int]],
    counts: Mapping[str, Sequence[int]],
    totals: Mapping[str, Sequence[int]],
) -> None:
    """The steps of each window's sum must be its amounts, each once, in any order."""
    for key, amounts in wanted.items():
        seen = [0, *totals.get(key, ())]
        steps = Counter(b - a for a, b in pairwise(seen))
        if len(seen) - 1 == len(counts.get(key, ())) and steps == Counter(amounts):
            continue
        if seen[-1] < sum(amounts):
            verdict.stale += 1
            verdict.lost += 1
        else:
            verdict.doubled += 1
        verdict.note(f"windows {key}: the sum is {seen[-1]}, wanted {sum(amounts)}")


def commits(
    verdict: Verdict,
    wanted: Mapping[str, int],
    joined: Topic,
    audits: Mapping[str, Sequence[int]],
    audit: Mapping[str, Sequence[int]],
) -> None:
    """Each commit's audit lies behind its orders, in one topic, and is the same in the other."""
    for key in wanted:
        if list(audits.get(key, ())) != list(audit.get(key, ())):
            verdict.torn += 1
            verdict.note(f"commits of {key}: {around(audits.get(key, ()))} and {around(audit.get(key, ()))}")
        if (list(audit.get(key, ())) or [0])[-1] < wanted[key]:
            verdict.stale += 1
            verdict.note(f"audit of {key}: the last is {(list(audit.get(key, ())) or [0])[-1]}, wanted {wanted[key]}")
    seen: Counter[bytes] = Counter()
    for records in joined.values():
        for record in records:
            value = json.loads(record.value or b"null")
            if "audit" not in value:
                seen[record.key or b""] += 1
            elif value["audit"] != seen[record.key or b""]:
                verdict.torn += 1
                verdict.note(
                    f"commit of {record.key!r}: audit {value['audit']} behind {seen[record.key or b'']} orders"
                )


def stored(verdict: Verdict, store: str, wanted: Mapping[str, int], changelog: Topic) -> None:
    """No value of the changelog is below one before it, and the last one is the number of records."""
    found = {key.decode(): [int.from_bytes(r.value or b"", "big") for r in rs] for key, rs in by_key(changelog).items()}
    for key, n in wanted.items():
        values = found.get(key, [0])
        falls = descents(values)
        verdict.regressions += falls
        verdict.stale += values[-1] < n
        verdict.doubled += values[-1] > n
        if falls or values[-1] != n:
            verdict.note(
                f"changelog of {store}, {key}: wanted {n}, last {values[-1]}, fell {falls} times: {around(values)}"
            )


def split(joined: Topic) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
    """The numbers of the orders and the audits of the topic ``joined``, by user."""
    orders: dict[str, list[int]] = {}
    audits: dict[str, list[int]] = {}
    for key, records in by_key(joined).items():
        for record in records:
            value = json.loads(record.value or b"null")
            (audits if "audit" in value else orders).setdefault(key.decode(), []).append(
                value.get("audit", value.get("n"))
            )
    return orders, audits


def numbers(topic: Topic, field: str | None = None) -> dict[str, list[int]]:
    """Numbers by key: the values, or one field of them."""

    def number(record: Read) -> int:
        value: Any = json.loads(record.value or b"null")
        return int(value if field is None else value[field])

    return {key.decode(): [number(r) for r in records] for key, records in by_key(topic).items()}


def users_of(behind: Topic) -> dict[str, list[int]]:
    """The numbers of the orders behind the repartition, by user."""
    out: dict[str, list[int]] = {}
    for records in behind.values():
        for record in records:
            value = json.loads(record.value or b"null")
            out.setdefault(value["user"], []).append(value["n"])
    return out


def descents(values: Iterable[int]) -> int:
    """How often a value is below the one before it."""
    seen = list(values)
    return sum(b < a for a, b in pairwise(seen))


def around(values: Sequence[int]) -> str:
    """The values around the first that is not one above the one before it."""
    at = next((i for i in range(1, len(values)) if values[i] != values[i - 1] + 1), len(values))
    shown = list(values[max(at - 3, 0) : at + 5])
    return f"{shown} of {len(values)}"
