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
from tests.differential.kinds.kind import Node
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
    """Both without the results of each record that came when one side had forgotten a partner of it and the other had not,
    and of that partner: the pair, and what tells that one of the two met nobody."""
    made = [
        result for node in run.nodes if node.get("kind") == "stream_stream" for result in _in_doubt(run, node, sides)
    ]
    joins = sum(node.get("kind") == "stream_stream" for node in run.nodes)

    def concerned(row: Row) -> bool:
        found = _parts(row["v"])
        return any(
            row["k"] == key
            and ((parts == found and row["ts"] == ts) or (joins > 1 and parts < found and row["ts"] >= ts))
            for key, parts, ts in made
        )

    return _rows_without(ours, concerned), _rows_without(theirs, concerned)


NOBODY = "null"
"""In the place of a partner that was not met."""


def _parts(value: object) -> set[str]:
    """The values that a join's result is made of."""
    return set(re.split(r"[|']", str(value))) - {""}


def _in_doubt(run: Run, join: Node, sides: Sides) -> Iterator[tuple[str, set[str], int]]:
    """Key, parts and timestamp of the results that one side has and the other need not have. Both forget a row when it is
    behind by the join's whole window and grace: Penstock by the time of both streams, Kafka Streams by that of the row's own
    stream and one millisecond sooner."""
    size_ms, grace_ms = join["before_ms"] + join["after_ms"], join["grace_ms"]
    longest_ms = max(size_ms, join["before_ms"], join["after_ms"])
    times = {"left": -1, "right": -1}
    came: dict[str, list[Row]] = {"left": [], "right": []}
    for side, row in _arrivals(run, join, sides):
        other = "right" if side == "left" else "left"
        times[side] = max(times[side], row["ts"])
        for earlier in came[other]:
            left, right = (row, earlier) if side == "left" else (earlier, row)
            meets = -join["before_ms"] <= right["ts"] - left["ts"] <= join["after_ms"]
            here = earlier["ts"] >= max(times.values()) - longest_ms - grace_ms
            there = earlier["ts"] > times[other] - size_ms - grace_ms
            if meets and earlier["k"] == row["k"] and here != there:
                one, two = _parts(earlier["v"]), _parts(row["v"])
                yield row["k"], one | two, max(row["ts"], earlier["ts"])
                yield row["k"], one | {NOBODY}, earlier["ts"]
                yield row["k"], two | {NOBODY}, row["ts"]
        came[side].append(row)


def _arrivals(run: Run, join: Node, sides: Sides) -> Iterator[tuple[str, Row]]:
    """What a join is given, in order: each row that has a key and a value, with its side."""
    before = [node for node in run.nodes[: run.nodes.index(join)] if node["op"] != "sink"]
    ends = [{"op": "sink", "in": join[side], "name": side} for side in ("left", "right")]
    for step in sides.ours(dataclasses.replace(run, nodes=[*before, *ends])).steps:
        for side in ("left", "right"):
            yield from ((side, row) for row in step.get(side, []) if row["k"] is not None and row["v"] is not None)


def unmatched_when_due(run: Run, ours: Outcome, theirs: Outcome, sides: Sides) -> Pair:
    """Both without the rows that tell of no partner and that the other side put out behind a later record than Penstock, or
    not at all, as a partner came before."""
    if ours.error is not None or theirs.error is not None:
        return ours, theirs
    mine, other = _places_of_unmatched(ours), _places_of_unmatched(theirs)
    moved: set[tuple[str, int]] = set()
    moved_there: set[tuple[str, int]] = set()
    for text, places in mine.items():
        there = other.get(text, [])
        pairs = list(zip(places, there, strict=False))
        if len(places) == len(there) and all(due <= came for due, came in pairs):
            moved |= {(text, due) for due, came in pairs if due < came}
            moved_there |= {(text, came) for due, came in pairs if due < came}
        elif not there:
            moved |= {(text, due) for due in places if _met_after(due, text, ours, theirs)}
    return _without_places(ours, moved), _without_places(theirs, moved_there)


def _met_after(due: int, text: str, ours: Outcome, theirs: Outcome) -> bool:
    """Whether what ours says of no partner at an entry is said of one by the other side at a later entry."""
    [row] = [row for sink, rows in ours.steps[due].items() for row in rows if _said(sink, row) == text][:1]
    alone = _parts(row["v"]) - {NOBODY}
    later = [found for step in theirs.steps[due + 1 :] for rows in step.values() for found in rows]
    return any(found["k"] == row["k"] and alone < _parts(found["v"]) - {NOBODY} for found in later)


def _places_of_unmatched(outcome: Outcome) -> dict[str, list[int]]:
    """At which entries each row that tells of no partner was put out."""
    places: dict[str, list[int]] = {}
    for index, step in enumerate(outcome.steps):
        for sink, rows in step.items():
            for row in rows:
                if NOBODY in _parts(row["v"]):
                    places.setdefault(_said(sink, row), []).append(index)
    return places


def _said(sink: str, row: Row) -> str:
    return repr((sink, sorted(row.items())))


def _without_places(outcome: Outcome, dropped: set[tuple[str, int]]) -> Outcome:
    steps: list[Step] = []
    for index, step in enumerate(outcome.steps):
        left = {sink: [row for row in rows if (_said(sink, row), index) not in dropped] for sink, rows in step.items()}
        steps.append({sink: rows for sink, rows in left.items() if rows})
    return Outcome(steps, outcome.error)


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
