"""The known departures of Penstock's SQL from Flink's, and what is not decided yet."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from typing import Any

from tests.conformance.compare import Row
from tests.differential.departures import Departure, Sides
from tests.differential.inputs import Entry, Run
from tests.differential.outcomes import Outcome, Step

JOINED_BY = ("k", "m")
"""The columns that joins compare."""

NUMBER = re.compile(r"\s*[+-]?\d+(\.\d*)?\s*")
Change = Callable[[dict[str, Any]], dict[str, Any]]


def _changed(outcome: Outcome, change: Change) -> Outcome:
    """With every row changed."""
    return _filtered_steps(outcome, lambda rows: [{**row, "v": change(row["v"])} for row in rows])


def _filtered_steps(outcome: Outcome, change: Callable[[list[Row]], list[Row]]) -> Outcome:
    steps = [{sink: _sorted(made) for sink, rows in step.items() if (made := change(rows))} for step in outcome.steps]
    return Outcome(steps, outcome.error)


def _sorted(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: json.dumps(row["v"]))


def _rows(run: Run) -> list[Entry]:
    return [entry for entry in run.input if entry.get("event") is None and entry["topic"] != "named"]


def without_windows_before_1970(run: Run, outcome: Outcome) -> Outcome:
    """Without windows that begin before time 0."""
    return _filtered_steps(outcome, lambda rows: [row for row in rows if row["v"]["t"] >= 0])


def with_literals_as_floats(run: Run, outcome: Outcome) -> Outcome:
    """With decimals as floats."""
    return _changed(outcome, lambda v: {n: float(of["decimal"]) if isinstance(of, dict) else of for n, of in v.items()})


def with_nothing_like_nothing(run: Run, outcome: Outcome) -> Outcome:
    """With an empty pattern that takes the empty text alone."""
    return _changed(outcome, lambda v: {**v, "c2": None if v["c1"] is None else v["c1"] == ""})


def with_small_truths(run: Run, outcome: Outcome) -> Outcome:
    """With truth values as texts in small letters."""
    return _changed(outcome, lambda v: {**v, "c2": v["c2"].lower() if v["c2"] in ("TRUE", "FALSE") else v["c2"]})


def with_whole_means(run: Run, outcome: Outcome) -> Outcome:
    """With means cut off towards zero."""
    return _changed(outcome, lambda v: {**v, "c": None if v["c"] is None else int(v["c"])})


def with_whole_texts(run: Run, outcome: Outcome) -> Outcome:
    """With a null for a text that is no number."""
    texts = {entry["v"]["id"]: entry["v"]["s"] for entry in _rows(run)}

    def read(v: dict[str, Any]) -> dict[str, Any]:
        text = texts[v["id"]]
        return {**v, "c3": v["c3"] if text is not None and NUMBER.fullmatch(text) else None}

    return _changed(outcome, read)


def with_whole_numbers(run: Run, outcome: Outcome) -> Outcome:
    """With a null for a text with a point as an integer."""
    texts = {entry["v"]["id"]: entry["v"]["s"] for entry in _rows(run)}
    return _changed(outcome, lambda v: {**v, "c1": None if "." in (texts[v["id"]] or "") else v["c1"]})


def with_nine_digits(run: Run, outcome: Outcome) -> Outcome:
    """With numbers to nine digits."""
    return _changed(outcome, lambda v: {n: float(f"{of:.9g}") if isinstance(of, float) else of for n, of in v.items()})


def in_order_of_arrival(run: Run, ours: Outcome, theirs: Outcome, sides: Sides) -> tuple[Outcome, Outcome]:
    """Penstock's answer if no row came behind a later one."""
    now, entries = 0, []
    for entry in run.input:
        if entry.get("event") is None:
            now = max(now, entry["ts"])
            entry = {**entry, "ts": now}
        entries.append(entry)
    return sides.ours(dataclasses.replace(run, input=entries)), theirs


def with_null_keys_last(run: Run, outcome: Outcome) -> Outcome:
    """With the rows of records that meet nobody, as a column of the condition is null, at the end."""
    null = {e["v"]["id"] for e in _rows(run) if any(e["v"][column] is None for column in JOINED_BY)}
    return _moved_last(run, outcome, lambda v: (v["i"] in null or v["j"] in null) and None in (v["i"], v["j"]))


def all_last(run: Run, outcome: Outcome) -> Outcome:
    """With all rows at the end."""
    return _moved_last(run, outcome, lambda v: True)


def _moved_last(run: Run, outcome: Outcome, moves: Callable[[dict[str, Any]], bool]) -> Outcome:
    if outcome.error is not None:
        return outcome
    moved = [row for _, row in outcome.flat() if moves(row["v"])]
    steps: list[Step] = [
        {sink: left for sink, rows in step.items() if (left := [row for row in rows if not moves(row["v"])])}
        for step in outcome.steps
    ]
    if moved:
        steps[-1] = {"out": _sorted([*steps[-1].get("out", []), *moved])}
    return Outcome(steps)


def without_late_rows(run: Run, outcome: Outcome) -> Outcome:
    """Without what rows at the watermark or below it are joined to."""
    late, watermark = set(), -1
    for entry in run.input:
        if entry.get("event") is not None:
            watermark = watermark if entry["ts"] == "max" else max(watermark, entry["ts"])
        elif entry["ts"] <= watermark:
            late.add(entry["v"]["id"])
    return _filtered_steps(outcome, lambda rows: [r for r in rows if not late & {r["v"]["i"], r["v"]["j"]}])


DEPARTURES: tuple[Departure, ...] = (
    Departure(
        "hopping windows before 1970",
        "Hopping windows before 1970",
        ("hopping_*",),
        "choice",
        "The first hopping window begins at time 0, as in Kafka Streams. Flink has those that begin before it.",
        seen_as=without_windows_before_1970,
        whose="other",
    ),
    Departure(
        "literals with a point",
        "Numbers with a point in SQL",
        ("decimal_literals",),
        "choice",
        "1.5 is a float64. In Flink it is a decimal.",
        seen_as=with_literals_as_floats,
        whose="other",
    ),
    Departure(
        "like an empty pattern",
        "An empty pattern in SQL",
        ("like_nothing",),
        "Flink",
        "Only the empty text is LIKE ''. In Flink every text is.",
        seen_as=with_nothing_like_nothing,
        whose="other",
    ),
    Departure(
        "last letters of texts that are no decimals",
        "Texts as decimals in SQL",
        ("tried_casts",),
        "Flink",
        "A text that is no number is no decimal. Flink passes over a last character that is no digit: 'a' is 0, '1x' is 1.",
        seen_as=with_whole_texts,
        whose="other",
    ),
    Departure(
        "texts of fractions as integers",
        "Texts of fractions as integers in SQL",
        ("tried_casts",),
        "choice",
        "A text that is no integer is none. Flink cuts off its fraction.",
        seen_as=with_whole_numbers,
        whose="other",
    ),
    Departure(
        "truth values as texts",
        "Truth values as texts in SQL",
        ("casts_to_text",),
        "choice",
        "true as a text is 'true', as in Trino and Spark. In Flink it is 'TRUE'.",
        seen_as=with_small_truths,
        whose="other",
    ),
    Departure(
        "means of integers",
        "Means of integers in SQL",
        ("means_of_integers",),
        "choice",
        "A mean of integers is a float64, as in Trino and Spark. Flink's is an integer, cut off towards zero.",
        seen_as=with_whole_means,
        whose="Penstock",
    ),
    Departure(
        "first and last by event time",
        "First and last values in SQL",
        ("first_and_last",),
        "choice",
        "FIRST_VALUE and LAST_VALUE go by event time, so that an answer does not depend on the order of partitions. Flink's "
        "go by arrival.",
        replay=in_order_of_arrival,
    ),
    Departure(
        "last digits of variances",
        "Variances",
        ("spread",),
        "choice",
        "Variances are worked out without the squares of the values, whose difference loses digits. Flink takes it.",
        seen_as=with_nine_digits,
    ),
    Departure(
        "null keys in outer joins",
        "Null keys in outer joins of streams",
        ("interval_left*", "interval_right*", "interval_full*"),
        "choice",
        "A record whose key is null meets nobody, and is emitted at once, as in Kafka Streams. Flink emits it when no "
        "partner can come any more.",
        seen_as=with_null_keys_last,
    ),
    Departure(
        "late rows in interval joins",
        "Late records in joins of streams",
        ("interval_late",),
        "choice",
        "A row below the watermark is late, and dropped, in joins as in windows. Flink joins it to what it still has, and "
        "forgets rows at the watermark, which are in time here.",
        seen_as=without_late_rows,
    ),
    Departure(
        "when versioned rows are joined",
        "When versioned rows are joined in SQL",
        ("versioned_*",),
        "choice",
        "A record meets the versioned row when it comes. Flink waits for the watermark.",
        seen_as=all_last,
    ),
)
"""Where the two differ for good."""

PENDING: dict[str, str] = {}
"""As in ``known.py``."""
