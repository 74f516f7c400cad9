"""Pattern search by brute force: every way to write a pattern out as single events, every way to place these on the input.

It knows nothing of automata or partial matches. A pattern is written out as a word of ``Item``s; a word is placed on
positions of the input so that each item accepts its event and the events passed over in front of it. Out of its reach, and
therefore not to be generated: ``not_next`` behind a repeated stage, a greedy stage in front of anything but one plain
stage, ``until`` of groups, repeated first stages of groups, what must not come before the optional last stages of a
group, iterative conditions, events that satisfy both what must not come and a stage beside it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from penstock.topologies.patterns.conditions import Condition
from penstock.topologies.patterns.pattern import Pattern, Stage


@dataclasses.dataclass(frozen=True)
class Event:
    label: str
    ts: int
    number: int

    @property
    def value(self) -> dict[str, Any]:
        return {"label": self.label, "number": self.number}


@dataclasses.dataclass(frozen=True)
class Item:
    """One event of a written-out pattern, with what it asks of the events in front of it."""

    name: str
    takes: Condition
    contiguity: str
    not_in_gap: tuple[Condition, ...] = ()
    not_at_once: tuple[Condition, ...] = ()
    not_up_to_it: tuple[Condition, ...] = ()
    not_itself: tuple[Condition, ...] = ()
    gap_ms: int | None = None


@dataclasses.dataclass(frozen=True)
class Word:
    """A written-out pattern, and what must not come behind it."""

    items: tuple[Item, ...]
    never_after: tuple[Stage, ...] = ()
    not_at_once_after: tuple[Condition, ...] = ()


class _Lone:
    """A scope for conditions that look at nothing but their event."""

    def __init__(self, event: Event) -> None:
        self.event = event

    def holds(self, condition: Any) -> bool:
        return bool(condition.fn(self.event.value))


def true_of(condition: Condition, event: Event) -> bool:
    return condition.test(_Lone(event))


def words(pattern: Pattern, longest: int) -> list[Word]:
    """All words of a pattern up to a length."""
    return list(_written(pattern.stages, longest, None, ()))


def _written(stages: Sequence[Stage], longest: int, head: str | None, behind: tuple[Condition, ...]) -> Iterator[Word]:
    """``head``: the contiguity of the first stage, where it is not its own. ``behind``: what must not come after."""
    choices = []
    for i, stage in enumerate(stages):
        following = stages[i + 1] if i + 1 < len(stages) else None
        nots = behind if following is None else ()
        if following is not None and following.contiguity == "not_followed_by":
            nots = (following.takes,)
        choices.append(list(_repeated(stage, longest, head if i == 0 else None, nots)))
    for parts in _up_to(longest, choices):
        yield _joined(stages, parts)


def _repeated(
    stage: Stage, longest: int, head: str | None, behind: tuple[Condition, ...]
) -> Iterator[tuple[Item, ...]]:
    """The ways to write one stage out. What must not come behind a loop must not come between its repetitions."""
    if stage.negated:
        yield ()
        return
    if stage.is_optional:
        yield ()
    first = head or stage.contiguity
    name = str(stage.name)
    for count in range(stage.low, (longest if stage.high is None else stage.high) + 1):
        if count > longest:
            return
        if stage.group is None:
            untils = () if stage.until is None else (stage.until,)
            opening = Item(name, stage.takes, first, not_itself=untils, gap_ms=stage.gap_ms)
            nots = (*untils, *behind)
            more = Item(name, stage.takes, stage.inner, nots, not_itself=untils, gap_ms=stage.repeat_gap_ms)
            yield (opening, *[more] * (count - 1))
        else:
            rounds = [
                [w.items for w in _written(stage.group.stages, longest, first if n == 0 else stage.inner, behind)]
                for n in range(count)
            ]
            for n in range(1, count):
                rounds[n] = [_barred(r, behind) for r in rounds[n]]
            for chosen in _up_to(longest, rounds):
                yield sum(chosen, ())


def _barred(items: tuple[Item, ...], nots: tuple[Condition, ...]) -> tuple[Item, ...]:
    """The same with more that must not come in front of them."""
    if not items:
        return items
    return (dataclasses.replace(items[0], not_in_gap=items[0].not_in_gap + nots), *items[1:])


def _up_to(longest: int, choices: Sequence[Sequence[tuple[Item, ...]]]) -> Iterator[tuple[tuple[Item, ...], ...]]:
    """One of each choice, in every way that is not longer than ``longest`` in all."""
    if not choices:
        yield ()
        return
    for first in choices[0]:
        if len(first) <= longest:
            for rest in _up_to(longest - len(first), choices[1:]):
                yield (first, *rest)


def _joined(stages: Sequence[Stage], parts: Sequence[tuple[Item, ...]]) -> Word:
    items: list[Item] = []
    never: list[Stage] = []
    at_once: list[Condition] = []
    greedy: tuple[Condition, ...] = ()
    for stage, part in zip(stages, parts, strict=True):
        if stage.contiguity == "not_followed_by":
            never.append(stage)
        elif stage.contiguity == "not_next":
            at_once.append(stage.takes)
        if part:
            nots = tuple(s.takes for s in never)
            opening = part[0]
            opening = dataclasses.replace(
                opening,
                not_in_gap=opening.not_in_gap + nots,
                not_at_once=tuple(at_once),
                not_up_to_it=greedy,
            )
            items += [opening, *part[1:]]
            never, at_once = [], []
        greedy = (stage.takes,) if stage.is_greedy and stage.low != stage.high else ()
    if not stages[-1].negated:
        # in front of optional stages that were left out: it is known to end before anything can come
        never, at_once = [], []
    return Word(tuple(items), tuple(never), tuple(at_once))


Placed = tuple[tuple[str, int], ...]
"""Names and positions of a match."""


def matches(pattern: Pattern, events: Sequence[Event]) -> set[Placed]:
    """All matches of a pattern under ``no_skip``, when no event comes after the last one and all time passes."""
    found = set()
    for word in words(pattern, len(events)):
        if word.items:
            for places in _placed(word.items, events, ()):
                if _lasts(word, pattern, events, places):
                    found.add(tuple((item.name, at) for item, at in zip(word.items, places, strict=True)))
    if pattern.within_ms is not None:
        found = {m for m in found if events[m[-1][1]].ts - events[m[0][1]].ts < pattern.within_ms}
    return found


def _placed(items: Sequence[Item], events: Sequence[Event], taken: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    if len(taken) == len(items):
        yield taken
        return
    item = items[len(taken)]
    for at in range(taken[-1] + 1 if taken else 0, len(events)):
        if _fits(item, events, taken[-1] if taken else None, at):
            yield from _placed(items, events, (*taken, at))


def _fits(item: Item, events: Sequence[Event], before: int | None, at: int) -> bool:
    event = events[at]
    if not true_of(item.takes, event) or any(true_of(c, event) for c in item.not_itself):
        return False
    if before is None:
        return not any(true_of(c, event) for c in item.not_up_to_it)
    gap = events[before + 1 : at]
    if item.contiguity in ("next", "strict") and gap:
        return False
    if item.contiguity in ("followed_by", "relaxed") and any(true_of(item.takes, e) for e in gap):
        return False
    if any(true_of(c, e) for c in item.not_in_gap for e in gap):
        return False
    if any(true_of(c, events[before + 1]) for c in item.not_at_once):
        return False
    if any(true_of(c, e) for c in item.not_up_to_it for e in (*gap, event)):
        return False
    return item.gap_ms is None or event.ts - events[before].ts < item.gap_ms


def _lasts(word: Word, pattern: Pattern, events: Sequence[Event], places: tuple[int, ...]) -> bool:
    """Whether what follows the match leaves it one."""
    first, last = events[places[0]], events[places[-1]]
    after = events[places[-1] + 1 :]
    for stage in word.never_after:
        ends = [first.ts + pattern.within_ms] if pattern.within_ms is not None else []
        ends += [last.ts + stage.gap_ms] if stage.gap_ms is not None else []
        if any(true_of(stage.takes, e) for e in after if e.ts < min(ends)):
            return False
    for condition in word.not_at_once_after:
        if not after or true_of(condition, after[0]):
            return False
        if pattern.within_ms is not None and after[0].ts - first.ts >= pattern.within_ms:
            return False
    return True


def skipped(pattern: Pattern, found: set[Placed]) -> list[Placed]:
    """Those of all matches that the skip strategy leaves. Matches with equal first and last events must not differ."""
    left = sorted(found, key=lambda m: (m[0][1], m[-1][1]))
    kept = []
    while left:
        match = left.pop(0)
        kept.append(match)
        bar = _bar(pattern, match)
        left = [m for m in left if m[0][1] >= bar]
    return kept


def _bar(pattern: Pattern, match: Placed) -> int:
    strategy, stage = pattern.skip.strategy, pattern.skip.stage
    if strategy == "skip_to_next":
        return match[0][1] + 1
    if strategy == "skip_past_last_event":
        return match[-1][1] + 1
    of_stage = [at for name, at in match if name == stage]
    if strategy == "no_skip" or not of_stage:
        return 0
    return of_stage[0] if strategy == "skip_to_first" else of_stage[-1]
