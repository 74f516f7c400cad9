"""Which restores from the beginning were needless, from the facts that workers log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

FROM_BEGINNING = "from the beginning of"


def restores(logs: Mapping[str, Iterable[Mapping[str, Any]]]) -> tuple[Counter[str], list[str]]:
    """Count the restores of some state folders by kind; the needless ones in words. ``logs``: the facts of all workers of a
    folder, by folder, in the order of time.

    ``resumed``: from the store's own position; ``first``: the task has never run on the folder, or the restore with which it
    was to begin was broken off; ``again``: the task has run with the store, or it was put aside, and all is read once more.
    Those are needless unless the state was damaged, which no fault here does.
    """
    counts: Counter[str] = Counter()
    needless = []
    for folder, facts in logs.items():
        restored: set[tuple[str, str]] = set()
        had: set[tuple[str, str]] = set()
        put_aside: dict[str, str] = {}
        for fact in facts:
            task = str(fact.get("task", ""))
            store = (task, str(fact.get("store", "")))
            if fact["fact"] == "StoreQuarantined":
                put_aside[task] = str(fact["reason"])
            elif fact["fact"] == "RestoreStarted" and FROM_BEGINNING not in str(fact["reason"]):
                counts["resumed"] += 1
            elif fact["fact"] == "RestoreStarted":
                kind = "again" if store in had or task in put_aside else "first"
                counts[kind] += 1
                if kind == "again":
                    why = put_aside.get(task, "the task has run with the store, which is empty")
                    needless.append(f"{folder}, task {task}, {store[1]}, {fact.get('to_offset')} offsets: {why}")
            elif fact["fact"] == "RestoreFinished":
                restored.add(store)
            elif fact["fact"] == "TaskRunning":
                had |= {each for each in restored if each[0] == task}
                put_aside.pop(task, None)
    return counts, needless
