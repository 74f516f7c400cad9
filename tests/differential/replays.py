"""What both sides would put out if they agreed on one thing, worked out by asking them about other inputs.

For departures whose difference cannot be read off the two outcomes alone. Each function has the form of
``departures.Replay``.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Iterator

from tests.conformance.compare import Row
from tests.differential.departures import Play, Sides
from tests.differential.inputs import WALL, Entry, Run
from tests.differential.outcomes import Outcome, Step

Pair = tuple[Outcome, Outcome]


def without(run: Run, play: Play, drops: Callable[[Entry], bool]) -> Outcome:
    """A side's answer to the input without some entries, which put out nothing."""
    kept = [index for index, entry in enumerate(run.input) if not drops(entry)]
    answer = play(dataclasses.replace(run, input=[run.input[index] for index in kept]))
    if answer.error is not None:
        return answer
    steps: list[Step] = [{} for _ in run.input]
    for index, step in zip(kept, answer.steps, strict=True):
        steps[index] = step
    return Outcome(steps)


def _is_record(entry: Entry) -> bool:
    return entry.get("event") != WALL


def _is_null(entry: Entry) -> bool:
    return _is_record(entry) and (entry["k"] is None or entry["v"] is None)


def _both_without(run: Run, sides: Sides, dropped: set[int]) -> Pair:
    """Both answers to the input without the entries at these places."""
    at = {id(entry): index for index, entry in enumerate(run.input)}

    def drops(entry: Entry) -> bool:
        return at[id(entry)] in dropped

    return without(run, sides.ours, drops), without(run, sides.theirs, drops)


def _times(run: Run) -> Iterator[tuple[int, Entry, int]]:
    """Each record with its place and the highest timestamp before it."""
    now = -1
    for index, entry in enumerate(run.input):
        if _is_record(entry):
            yield index, entry, now
            now = max(now, entry["ts"])


def both_without_late_records(run: Run, ours: Outcome, theirs: Outcome, sides: Sides) -> Pair:
    """Neither side is given records that come behind a later one by more than the grace."""
    grace_ms = min(node["window"]["grace_ms"] for node in run.nodes if "window" in node)
    return _both_without(run, sides, {index for index, entry, now in _times(run) if entry["ts"] < now - grace_ms})


def both_without_late_records_in_a_last_window(run: Run, ours: Outcome, theirs: Outcome, sides: Sides) -> Pair:
    """Neither side is given late records that lie in a sliding window at whose end a later record comes."""
    windows = [node["window"] for node in run.nodes if "window" in node]
    diff_ms, grace_ms = windows[0]["diff_ms"], min(window["grace_ms"] for window in windows)
    times = {entry["ts"] for entry in run.input}
    dropped = set()
    for index, late, now in _times(run):
        ends = {e["ts"] for e in run.input[index + 1 :] if e["ts"] - diff_ms - 1 in times}
        if late["ts"] < now - grace_ms and any(end - diff_ms <= late["ts"] < end for end in ends):
            dropped.add(index)
    return _both_without(run, sides, dropped)


KEPT_MS = 100_000


def both_keeping_windows(run: Run, ours: Outcome, theirs: Outcome, sides: Sides) -> Pair:
    """Both keep windows for as long as the input lasts, and longer."""
    nodes = [
        {**node, "retention_ms": KEPT_MS, "kafka_retention_ms": KEPT_MS} if "window" in node else node
        for node in run.nodes
    ]
    longer = dataclasses.replace(run, nodes=nodes)
    return sides.ours(longer), sides.theirs(longer)


def transformed_tables_kept(run: Run, ours: Outcome, theirs: Outcome, sides: Sides) -> Pair:
    """The other side keeps transformed tables in named stores."""
    nodes = [{**node, "store": "transformed"} if node["op"] == "transform_values" else node for node in run.nodes]
    return ours, sides.theirs(dataclasses.replace(run, nodes=nodes))


def both_without_deletions_of_one_time(run: Run, ours: Outcome, theirs: Outcome, sides: Sides) -> Pair:
    """Neither side is given deletions that have the timestamp of another record of their key."""
    times = Counter((e["topic"], e["k"], e["ts"]) for e in run.input if _is_record(e))
    return _both_without(
        run,
        sides,
        {index for index, e, _ in _times(run) if e["v"] is None and times[e["topic"], e["k"], e["ts"]] > 1},
    )


def both_without_second_deletions(run: Run, ours: Outcome, theirs: Outcome, sides: Sides) -> Pair:
    """Neither side is given deletions of rows that were deleted before, and not written since."""
    deleted: set[tuple[str, str]] = set()
    dropped: set[int] = set()
    for index, entry, _ in _times(run):
        place = (entry["topic"], repr(entry["k"]))
        if entry["v"] is not None:
            deleted.discard(place)
        elif place in deleted:
            dropped.add(index)
        else:
            deleted.add(place)
    return _both_without(run, sides, dropped)


def without_updates_of_windows(run: Run, ours: Outcome, theirs: Outcome, sides: Sides) -> Pair:
    """Both without rows, if all that the other side lets go are updates that Penstock's windows had."""
    renamed = {node["id"]: node["in"] for node in run.nodes if node["op"] == "suppress"}
    nodes = [
        {**node, "in": renamed[node["in"]]} if node.get("in") in renamed else node
        for node in run.nodes
        if node["op"] != "suppress"
    ]
    updates = {_update(row) for _, row in sides.ours(dataclasses.replace(run, nodes=nodes)).flat()}
    if ours.error or theirs.error or not {_update(row) for _, row in theirs.flat()} <= updates:
        return ours, theirs
    return Outcome([]), Outcome([])


def _update(row: Row) -> str:
    return repr([row["k"], row.get("w"), row["v"]])


def null_values_left_out(run: Run, ours: Outcome, theirs: Outcome, sides: Sides) -> Pair:
    """The other side is not given records without a value."""
    return ours, without(run, sides.theirs, lambda e: _is_record(e) and e["v"] is None)


def null_keys_joined_at_once(run: Run, ours: Outcome, theirs: Outcome, sides: Sides) -> Pair:
    """The other side is not given records of the stream without a key: each is emitted at once, without a row."""
    without_keys = without(run, sides.theirs, lambda e: e["k"] is None)
    if without_keys.error is not None:
        return ours, theirs
    steps = list(without_keys.steps)
    for index, entry in enumerate(run.input):
        if entry["k"] is None and entry["topic"] == "s":
            steps[index] = {"out": [{"k": None, "v": f"{entry['v']}|null", "ts": entry["ts"]}]}
    return ours, Outcome(steps)


def nulls_moving_no_time(run: Run, ours: Outcome, theirs: Outcome, sides: Sides) -> Pair:
    """The other side is not given records without a key or value. What it emitted of one without a key stays."""
    rest = without(run, sides.theirs, _is_null)
    if rest.error is not None or theirs.error is not None:
        return ours, theirs
    steps = list(rest.steps)
    for index, entry in enumerate(run.input):
        if _is_null(entry):
            alone = {sink: [r for r in rows if r["k"] is None] for sink, rows in theirs.steps[index].items()}
            steps[index] = {sink: rows for sink, rows in alone.items() if rows}
    return ours, Outcome(steps)


def late_records_left_out(run: Run, ours: Outcome, theirs: Outcome, sides: Sides) -> Pair:
    """Both without the results of records that are as late as a join's grace, and without those of their partners that
    tell of no partner."""
    late = _late_values(run)
    partners = {
        entry["v"]
        for entry in run.input
        if entry["v"] is not None and any(entry["k"] == e["k"] and entry["topic"] != e["topic"] for e in late)
    }
    values = {entry["v"] for entry in late}

    def concerned(row: Row) -> bool:
        parts = set(re.split(r"[|']", str(row["v"])))
        return bool(parts & values) or ("null" in parts and bool(parts & partners))

    return _rows_without(ours, concerned), _rows_without(theirs, concerned)


def _late_values(run: Run) -> list[Entry]:
    grace_ms = min(node["grace_ms"] for node in run.nodes if "grace_ms" in node)
    now, late = -1, []
    for entry in run.input:
        if _is_null(entry):
            continue
        if now >= 0 and entry["ts"] < now and entry["ts"] <= now - grace_ms:
            late.append(entry)
        now = max(now, entry["ts"])
    return late


def _rows_without(outcome: Outcome, dropped: Callable[[Row], bool]) -> Outcome:
    steps = [
        {sink: left for sink, rows in step.items() if (left := [row for row in rows if not dropped(row)])}
        for step in outcome.steps
    ]
    return Outcome(steps, outcome.error)


def clock_read_at_the_start(run: Run, ours: Outcome, theirs: Outcome, sides: Sides) -> Pair:
    """Penstock reads the clock before the first record, as the other side does."""
    answer = sides.ours(dataclasses.replace(run, input=[{"event": WALL, "ts": 0}, *run.input]))
    return Outcome(answer.steps[1:], answer.error), theirs


def no_timer_at_the_first_record(run: Run, ours: Outcome, theirs: Outcome, sides: Sides) -> Pair:
    """The other side's processor lets the first firing pass."""
    nodes = [{**node, "processor": "stream_timed"} if "processor" in node else node for node in run.nodes]
    return ours, sides.theirs(dataclasses.replace(run, nodes=nodes))
