"""The oracle finds nothing in a right output, and each fault that is planted in one, under its name."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.chaos.ledger import BEGIN, COLUMNS, END, LEDGER, NUMBERS, rows_in, with_row, written
from tests.chaos.log_reading import Read, Topic
from tests.chaos.memory import growth
from tests.chaos.oracle import Verdict, Wanted, judge
from tests.chaos.restores import restores

USERS, CITIES, ORDERS = 6, 2, 200
Outputs = dict[str, Topic]


class Right:
    """An input, and the output of an engine that makes no mistakes and commits now and then."""

    def __init__(self, seed: int = 1) -> None:
        rng = random.Random(seed)
        names = ("joined", "audit", "counts", "cities", "windows", "behind")
        self.orders: Topic = {0: [], 1: []}
        self.users: Topic = {p: [read(f"u{i}", {"city": f"c{i % CITIES}"}) for i in range(p, USERS, 2)] for p in (0, 1)}
        self.outputs: Outputs = {name: {0: [], 1: []} for name in names}
        self.changelogs: Outputs = {name: {0: [], 1: []} for name in ("per-user", "per-city")}
        self._users, self._cities, self._dirty = [0] * USERS, [0] * CITIES, set[int]()
        self._windows: dict[str, tuple[int, int]] = {}
        for i in range(ORDERS):
            self._order(rng.randrange(USERS), rng.randint(1, 9), 300 * i)
            if i % 7 == 0 or i == ORDERS - 1:
                self._commit()

    def _order(self, user: int, amount: int, at_ms: int) -> None:
        p, city = user % 2, user % CITIES
        self._users[user] += 1
        self._cities[city] += 1
        n = self._users[user]
        self._dirty.add(user)
        self.orders[p].append(read(f"u{user}", {"n": n, "amount": amount}, at_ms))
        window = f"c{city}@{at_ms // 10_000 * 10_000}"
        count, total = self._windows.get(window, (0, 0))
        self._windows[window] = (count + 1, total + amount)
        self._put("joined", p, f"u{user}", {"n": n, "amount": amount, "city": f"c{city}"})
        self._put("counts", p, f"u{user}", n)
        self._put("behind", city, f"c{city}", {"n": n, "user": f"u{user}"})
        self._put("cities", city, f"c{city}", self._cities[city])
        self._put("windows", city, window, {"n": count + 1, "total": total + amount})
        self.changelogs["per-user"][p].append(Read(f"u{user}".encode(), n.to_bytes(8, "big"), at_ms))
        self.changelogs["per-city"][city].append(
            Read(f"c{city}".encode(), self._cities[city].to_bytes(8, "big"), at_ms)
        )

    def _commit(self) -> None:
        for user in sorted(self._dirty):
            for topic in ("joined", "audit"):
                self._put(topic, user % 2, f"u{user}", {"audit": self._users[user]})
        self._dirty.clear()

    def _put(self, topic: str, partition: int, key: str, value: Any) -> None:
        self.outputs[topic][partition].append(read(key, value))

    def verdict(self) -> Verdict:
        """The oracle's."""
        return judge(Wanted.of(self.orders, self.users), self.outputs, self.changelogs)


def read(key: str, value: Any, at_ms: int = 0) -> Read:
    """A record with a JSON value."""
    return Read(key.encode(), json.dumps(value).encode(), at_ms)


def test_right_output_is_exact() -> None:
    verdict = Right().verdict()
    assert verdict.exact(), verdict
    assert verdict.results == 5 * ORDERS


Plant = Callable[[Right], None]


def lose(topic: str) -> Plant:
    """Remove a record from the middle."""
    return lambda right: right.outputs[topic][0].pop(11) and None


def double(topic: str) -> Plant:
    """Repeat a record at once."""
    return lambda right: right.outputs[topic][0].insert(11, right.outputs[topic][0][11])


def fall_back(topic: str) -> Plant:
    """Go on from an older count, as a worker with a stale store does."""

    def plant(right: Right) -> None:
        records = right.outputs[topic][0]
        key = records[-1].key
        places = [i for i, r in enumerate(records) if r.key == key]
        values = [records[i] for i in places]
        for i, older in zip(places[-5:], values[-10:-5], strict=True):
            records[i] = older

    return plant


def changelog_falls(right: Right) -> None:
    """The last value of a changelog is an older one: a zombie wrote it."""
    records = right.changelogs["per-user"][0]
    key = records[-1].key
    records.append(next(r for r in records if r.key == key))


def tear(right: Right) -> None:
    """Of a whole commit, one topic's part is missing."""
    right.outputs["audit"][0].pop(3)


def tear_orders(right: Right) -> None:
    """The records of a commit came, and its audit came before the last of them."""
    records = right.outputs["joined"][0]
    values = [json.loads(r.value or b"") for r in records]
    at = next(i for i, value in enumerate(values) if i > 20 and "audit" in value)
    order = max(i for i in range(at) if records[i].key == records[at].key)
    records.insert(order, records.pop(at))


PLANTED: dict[str, tuple[Plant, str]] = {
    **{f"lost in {topic}": (lose(topic), "lost") for topic in ("counts", "cities", "windows", "behind")},
    **{f"doubled in {topic}": (double(topic), "doubled") for topic in ("counts", "cities", "windows", "behind")},
    **{f"fallen back in {topic}": (fall_back(topic), "regressions") for topic in ("counts", "cities", "windows")},
    **{f"stale in {topic}": (fall_back(topic), "stale") for topic in ("counts", "cities", "windows")},
    "changelog falls": (changelog_falls, "regressions"),
    "changelog is stale": (changelog_falls, "stale"),
    "torn between topics": (tear, "torn"),
    "torn within a topic": (tear_orders, "torn"),
}


@pytest.mark.parametrize("what", PLANTED)
def test_planted_fault_is_found_under_its_name(what: str) -> None:
    right = Right()
    plant, name = PLANTED[what]
    plant(right)
    verdict = right.verdict()
    assert getattr(verdict, name) > 0, verdict
    assert not verdict.exact()
    assert verdict.examples


def test_at_least_once_may_double_and_not_lose() -> None:
    doubled, lost = Right(), Right()
    double("behind")(doubled)
    lose("behind")(lost)
    assert doubled.verdict().nothing_lost()
    assert not lost.verdict().nothing_lost()


def test_missing_output_is_lost() -> None:
    right = Right()
    right.outputs = {name: {} for name in right.outputs}
    verdict = right.verdict()
    assert verdict.lost >= 5 * ORDERS
    assert not verdict.nothing_lost()


def test_wrong_sum_is_found() -> None:
    right = Right()
    records = right.outputs["windows"][1]
    value = json.loads(records[-1].value or b"")
    records[-1] = records[-1]._replace(value=json.dumps({**value, "total": value["total"] + 1}).encode())
    assert right.verdict().doubled == 1


def fact(name: str, task: str = "0_1", store: str = "s", **more: Any) -> dict[str, Any]:
    """A fact as a log has it."""
    return {"fact": name, "task": task, "store": store, **more}


def test_only_restores_that_a_folder_has_had_are_needless() -> None:
    first = fact("RestoreStarted", reason="s is restored from the beginning of t: there is no snapshot")
    done, runs = fact("RestoreFinished"), fact("TaskRunning", store="")
    resumed = fact("RestoreStarted", reason="the local state of s stands at offset 3 of t")
    counts, needless = restores({"a": [first, done, resumed, done], "b": [first, done]})
    assert (dict(counts), needless) == ({"first": 2, "resumed": 1}, [])
    counts, needless = restores({"a": [first, done, first, done]})
    assert (dict(counts), needless) == ({"first": 2}, []), "the first restore of the task was broken off"
    counts, needless = restores({"a": [first, done, runs, first]})
    assert counts["again"] == len(needless) == 1
    put_aside = fact("StoreQuarantined", store="", reason="too old")
    counts, needless = restores({"a": [first, put_aside, first]})
    assert "too old" in needless[0]


def test_ledger_adds_rows_and_sums_them() -> None:
    row = dict.fromkeys(COLUMNS, "2") | {"guarantee": "exactly_once"}
    empty = written(LEDGER.read_text(), [])
    text = with_row(with_row(empty, row), copy.copy(row))
    assert len(rows_in(text)) == 2
    sums = text[: text.index(BEGIN)]
    assert f"| exactly_once |{' 4 |' * len(NUMBERS)}" in sums
    assert text.count(END) == 1


def test_sums_of_the_ledger_are_those_of_its_rows() -> None:
    text = LEDGER.read_text()
    assert text == written(text, rows_in(text))


@pytest.mark.parametrize("mib_per_hour", [0.0, 60.0, -6.0])
def test_growth_of_memory_is_the_slope_behind_the_warm_part(mib_per_hour: float) -> None:
    warming = [(float(t), 50.0 + t) for t in range(0, 60, 5)]
    steady = [(float(t), 110 + (t - 60) * mib_per_hour / 3_600) for t in range(60, 600, 5)]
    found = growth("w0", [*warming, *steady])
    assert found is not None
    assert found.mib_per_hour == pytest.approx(mib_per_hour, abs=0.01)
    assert found.minutes == 9.9
    assert growth("w0", warming) is None
