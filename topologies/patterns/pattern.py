"""A pattern to look for: ``pattern("a").where(…).followed_by("b").where(…).within("10s")``, as a value.

A pattern is a sequence of stages. ``pattern``, ``next``, ``followed_by`` and ``followed_by_any`` add one: an event
under a name, or a group (a pattern given instead of a name). Every other method refines the stage added last. All
methods return a new pattern and leave the old one unchanged.

**Contiguity**, between a stage and the one before it. ``next``: strict, the very next event. ``followed_by``: relaxed,
the next event that the stage's condition takes; others are skipped. ``followed_by_any``: also later such events, each
giving a separate match. ``not_next``: the next event must not be one that the condition takes. ``not_followed_by``: no
such event may come between the stages around it; at the end of a pattern, none within ``within``.

**Quantifiers**: ``times(n)``, ``times(n, m)``, ``one_or_more()``, ``times_or_more(n)``, each also ``optional()`` and
``greedy()``. Between the repetitions contiguity is relaxed; ``consecutive()`` makes it strict, ``allow_combinations()``
as ``followed_by_any``. ``until(cond)`` ends a loop with no bound. Greedy: an event that the loop takes is never left to
the stage behind it; without one, at the end of a pattern, it has no effect.

A contradiction raises ``TopologyError`` at once; ``check`` finds those that only the whole pattern shows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

from penstock.state.errors import TopologyError
from penstock.topologies.expressions.tree import Expression
from penstock.topologies.patterns.conditions import ALWAYS, Both, Condition, Either, User, instance_of, user_condition
from penstock.topologies.patterns.skip import Skip, no_skip
from penstock.topologies.windows import Duration, duration_ms

Contiguity = Literal["begin", "next", "followed_by", "followed_by_any", "not_next", "not_followed_by"]
Inner = Literal["relaxed", "strict", "combinations"]
Within = Literal["first_to_last", "previous_to_current"]
NEGATIONS = ("not_next", "not_followed_by")


@dataclasses.dataclass(frozen=True)
class Stage:
    """One stage: an event under ``name``, or the pattern ``group``.

    ``low`` to ``high`` repetitions (``high`` ``None``: no bound); ``quantified`` once a quantifier was given.
    ``within_ms`` bounds the whole pattern; ``gap_ms`` the time from the event before to the stage's first, ``repeat_gap_ms``
    that between its repetitions. All of them are exclusive. ``is_longest``, of a last stage that is repeated without gaps
    or may be left out: a match waits until its run is over, by an event that it does not take or by ``within``.
    """

    name: str | None
    contiguity: Contiguity
    group: Pattern | None = None
    condition: Condition | None = None
    low: int = 1
    high: int | None = 1
    quantified: bool = False
    is_optional: bool = False
    is_greedy: bool = False
    is_longest: bool = False
    inner: Inner = "relaxed"
    until: Condition | None = None
    within_ms: int | None = None
    gap_ms: int | None = None
    repeat_gap_ms: int | None = None

    @property
    def negated(self) -> bool:
        """Whether it forbids an event."""
        return self.contiguity in NEGATIONS

    @property
    def looping(self) -> bool:
        """Whether it repeats without a bound."""
        return self.high is None

    @property
    def takes(self) -> Condition:
        """The condition on the events that it takes."""
        return ALWAYS if self.condition is None else self.condition

    @property
    def label(self) -> str:
        """Its name in messages."""
        return "the group" if self.group is not None else f"stage {self.name!r}"

    def shape(self) -> str:
        """Everything but the conditions, as text."""
        what = repr(self.name) if self.group is None else f"({self.group.shape()})"
        parts = [f"{self.contiguity} {what}"]
        if self.quantified:
            parts.append(f"{{{self.low},{'' if self.high is None else self.high}}} {self.inner}")
        parts += ["optional"] * self.is_optional + ["greedy"] * self.is_greedy + ["until"] * (self.until is not None)
        parts += ["longest"] * self.is_longest
        for text, bound in (("within", self.within_ms), ("gap", self.gap_ms), ("repeat gap", self.repeat_gap_ms)):
            if bound is not None:
                parts.append(f"{text} {bound} ms")
        return " ".join(parts)


@dataclasses.dataclass(frozen=True)
class Pattern:
    """A sequence of stages, which ``pattern`` begins. ``next``, ``followed_by`` and ``followed_by_any`` add one: the
    very next event, the next that the condition takes, or any later one that it takes. Every other method refines the
    stage added last. All return a new pattern."""

    stages: tuple[Stage, ...]
    skip: Skip = dataclasses.field(default_factory=no_skip)

    # -- the next stage ----------------------------------------------------------------------------------------------

    def next(self, name: str | Pattern) -> Pattern:
        """Strict: the very next event."""
        return self._append(name, "next")

    def followed_by(self, name: str | Pattern) -> Pattern:
        """Relaxed: the next event that the condition takes."""
        return self._append(name, "followed_by")

    def followed_by_any(self, name: str | Pattern) -> Pattern:
        """Non-deterministic relaxed: every later event that the condition takes."""
        return self._append(name, "followed_by_any")

    def not_next(self, name: str) -> Pattern:
        """The next event must not be one that the condition takes."""
        return self._negate(name, "not_next")

    def not_followed_by(self, name: str) -> Pattern:
        """No event up to the next stage's may be one that the condition takes."""
        return self._negate(name, "not_followed_by")

    # -- conditions --------------------------------------------------------------------------------------------------

    def where(self, condition: Callable[..., object] | Expression) -> Pattern:
        """A condition ``fn(event)`` or ``fn(event, ctx)`` (``MatchContext``) or an expression such as ``col("n") > 3``,
        and whatever was said before."""
        new = user_condition(condition, self._last.label)
        old = self._own_condition("where")
        return self._change(condition=new if old is None else Both(old, new))

    def or_(self, condition: Callable[..., object] | Expression) -> Pattern:
        """Or this condition, as an alternative to all earlier ones."""
        new = user_condition(condition, self._last.label)
        old = self._own_condition("or_")
        return self._change(condition=new if old is None else Either(old, new))

    def subtype(self, cls: type) -> Pattern:
        """Only events of this class, and whatever was said before."""
        new = instance_of(cls)
        old = self._own_condition("subtype")
        return self._change(condition=new if old is None else Both(old, new))

    def until(self, condition: Callable[..., object] | Expression) -> Pattern:
        """End the loop, which has no other bound: from the first event that the condition takes, nothing more is taken for
        it or passed over in it. The event itself is not taken either."""
        last = self._last
        if not last.looping:
            raise self._wrong("until is for loops without a bound: one_or_more() or times_or_more(n) first")
        if last.until is not None:
            raise self._wrong("until was already given; put both conditions into one function")
        return self._change(until=user_condition(condition, last.label))

    # -- quantifiers -------------------------------------------------------------------------------------------------

    def times(self, low: int, high: int | None = None, *, within: Duration | None = None) -> Pattern:
        """``low`` times, or ``low`` to ``high`` times; from 0 is equivalent to from 1 and ``optional()``. ``within``:
        less than this from each repetition to the next."""
        top = low if high is None else high
        if low < 0 or top < max(low, 1):
            raise self._wrong(
                f"times({low}, {top}): give 1 or more, or a range that ends with 1 or more and at its start"
            )
        repeated = self._repeat(max(low, 1), top, within)
        return repeated.optional() if low == 0 else repeated

    def one_or_more(self, *, within: Duration | None = None) -> Pattern:
        """Once or more."""
        return self._repeat(1, None, within)

    def times_or_more(self, low: int, *, within: Duration | None = None) -> Pattern:
        """``low`` times or more."""
        if low < 1:
            raise self._wrong(f"times_or_more({low}): give 1 or more, and optional() to allow none")
        return self._repeat(low, None, within)

    def optional(self) -> Pattern:
        """Allow the stage to be left out."""
        if self._last.negated:
            raise self._wrong("a forbidden event cannot be optional")
        if self._last.is_optional:
            raise self._wrong("it is already optional")
        if len(self.stages) > 1 and self.stages[-2].is_greedy:
            raise self._wrong("an optional stage cannot follow a greedy one: which of them takes an event is undefined")
        return self._change(is_optional=True)

    def greedy(self) -> Pattern:
        """Leave no event that the loop takes to the next stage: of the runs that this stage ends, only the longest are
        in matches. At the end of a pattern it has no effect, as in FlinkCEP: every run is a match at once, since a
        longer one may never come. To get only the longest, add a stage that ends the run."""
        last = self._last
        if last.group is not None:
            raise self._wrong("a group cannot be greedy")
        if not last.quantified:
            raise self._wrong("greedy is for repeated stages: times(…) or one_or_more() first")
        if last.inner == "combinations":
            raise self._wrong("greedy contradicts allow_combinations")
        return self._change(is_greedy=True)

    def consecutive(self) -> Pattern:
        """Strict contiguity between the repetitions."""
        return self._inner("strict")

    def allow_combinations(self) -> Pattern:
        """Between the repetitions, events that could be taken may also be skipped."""
        return self._inner("combinations")

    # -- time and skipping -------------------------------------------------------------------------------------------

    def within(self, duration: Duration, kind: Within = "first_to_last") -> Pattern:
        """``first_to_last``: the whole match takes less than this from its first event to its last (the shortest of
        several counts). ``previous_to_current``: the event of this stage comes less than this after the one before it."""
        bound = duration_ms(duration)
        if bound <= 0:
            raise self._wrong(f"within({duration!r}) leaves no time for any event; give more than 0 ms")
        if kind == "first_to_last":
            return self._change(within_ms=bound)
        if kind != "previous_to_current":
            raise self._wrong(f"within(): kind must be first_to_last or previous_to_current, not {kind!r}")
        if self._last.contiguity == "begin":
            raise self._wrong("the first stage has no event before it; use previous_to_current on a later stage")
        return self._change(gap_ms=bound)

    def after_match(self, skip: Skip) -> Pattern:
        """The after-match skip strategy (``penstock.topologies.patterns.skip``)."""
        if not isinstance(skip, Skip):
            raise TopologyError(f"after_match takes a skip strategy such as skip_past_last_event(), not {skip!r:.100}")
        return dataclasses.replace(self, skip=skip)

    # -- the whole ---------------------------------------------------------------------------------------------------

    def names(self) -> tuple[str, ...]:
        """The names of its stages, including those in groups, in order."""
        found: list[str] = []
        for stage in self.stages:
            found += stage.group.names() if stage.group is not None else [str(stage.name)]
        return tuple(found)

    @property
    def within_ms(self) -> int | None:
        """The bound on the whole match: the smallest of any stage."""
        bounds = [b for s in self.stages for b in (s.within_ms, s.group and s.group.within_ms) if b]
        return min(bounds, default=None)

    @property
    def bounded(self) -> bool:
        """Whether every partial match ends, by time or by the next event."""
        return self.within_ms is not None or all(_ends(s) for s in self.stages)

    def shape(self) -> str:
        """Everything but the conditions, as text: stored state depends on it."""
        return f"{' '.join(s.shape() for s in self.stages)} {self.skip}"

    def with_conditions(self, change: Callable[[User], User]) -> Pattern:
        """This pattern with the users' conditions changed, those in groups included."""

        def changed(stage: Stage) -> Stage:
            return dataclasses.replace(
                stage,
                group=None if stage.group is None else stage.group.with_conditions(change),
                condition=None if stage.condition is None else stage.condition.replaced(change),
                until=None if stage.until is None else stage.until.replaced(change),
            )

        return dataclasses.replace(self, stages=tuple(map(changed, self.stages)))

    def check(self, operator: str) -> None:
        """Raise ``TopologyError`` for errors that only the whole pattern shows: names used twice, a ``not_followed_by``
        at the end with no time to wait for, a skip to a stage that does not exist, a gap longer than the whole."""
        names = self.names()
        twice = sorted({n for n in names if names.count(n) > 1})
        if twice:
            raise TopologyError(
                f"operator {operator!r}: stages named twice: {', '.join(twice)}; give each its own name"
            )
        last = self.stages[-1]
        if last.contiguity == "not_followed_by" and self.within_ms is None and last.gap_ms is None:
            raise TopologyError(
                f"operator {operator!r}: the pattern ends in not_followed_by({last.name!r}), which is never certain; add "
                ".within(…), or a stage after it"
            )
        if self.skip.stage is not None and self.skip.stage not in names:
            raise TopologyError(
                f"operator {operator!r}: {self.skip} does not name a stage; the stages are: {', '.join(names)}"
            )
        longest = max(self._gaps(), default=0)
        if self.within_ms is not None and longest > self.within_ms:
            raise TopologyError(
                f"operator {operator!r}: {longest} ms between two events is more than the {self.within_ms} ms that the "
                "whole match may take; make the one shorter or the other longer"
            )

    def _gaps(self) -> list[int]:
        found = [g for s in self.stages for g in (s.gap_ms, s.repeat_gap_ms) if g is not None]
        return found + [g for s in self.stages if s.group is not None for g in s.group._gaps()]

    # -- inside ------------------------------------------------------------------------------------------------------

    @property
    def _last(self) -> Stage:
        return self.stages[-1]

    def _wrong(self, what: str) -> TopologyError:
        return TopologyError(f"{self._last.label} of a pattern: {what}")

    def _change(self, **changes: Any) -> Pattern:
        return dataclasses.replace(self, stages=(*self.stages[:-1], dataclasses.replace(self._last, **changes)))

    def _append(self, what: str | Pattern, contiguity: Contiguity) -> Pattern:
        return dataclasses.replace(self, stages=(*self.stages, _stage(what, contiguity)))

    def _negate(self, name: str, contiguity: Contiguity) -> Pattern:
        if self._last.is_optional:
            raise self._wrong(
                f"{contiguity} cannot follow an optional stage; look for two patterns, one with the stage and one without"
            )
        if isinstance(name, Pattern):
            raise self._wrong(f"{contiguity} takes the name of a stage, not a group")
        return self._append(name, contiguity)

    def _own_condition(self, method: str) -> Condition | None:
        if self._last.group is not None:
            raise self._wrong(f"{method} belongs to the stages inside the group")
        return self._last.condition

    def _repeat(self, low: int, high: int | None, within: Duration | None) -> Pattern:
        if self._last.negated:
            raise self._wrong("a forbidden event cannot be repeated")
        if self._last.quantified:
            raise self._wrong("it already has a quantifier")
        gap = None if within is None else duration_ms(within)
        return self._change(low=low, high=high, quantified=True, repeat_gap_ms=gap)

    def _inner(self, inner: Inner) -> Pattern:
        last = self._last
        method = "consecutive" if inner == "strict" else "allow_combinations"
        if not last.quantified:
            raise self._wrong(f"{method} is for repeated stages: times(…) or one_or_more() first")
        if last.inner != "relaxed":
            raise self._wrong(f"{method} cannot be added: the contiguity inside the loop is already {last.inner}")
        if last.is_greedy and inner == "combinations":
            raise self._wrong("allow_combinations contradicts greedy")
        return self._change(inner=inner)


def pattern(first: str | Pattern) -> Pattern:
    """A pattern that begins with a stage of this name, or with a group."""
    return Pattern((_stage(first, "begin"),))


def _stage(what: str | Pattern, contiguity: Contiguity) -> Stage:
    if isinstance(what, Pattern):
        if what.skip != no_skip():
            raise TopologyError(f"a group has no skip strategy of its own ({what.skip}); give it to the whole pattern")
        if what.stages[-1].contiguity == "not_followed_by":
            raise TopologyError("a group cannot end in not_followed_by; put it after the group")
        return Stage(None, contiguity, group=what)
    if not isinstance(what, str) or not what:
        raise TopologyError(f"a stage is a name or a pattern as a group, not {what!r:.100}")
    return Stage(what, contiguity)


def _ends(stage: Stage) -> bool:
    """Whether waiting for the stage ends without a bound on the whole match."""
    if stage.group is not None:
        inside = all(_ends(s) for s in stage.group.stages)
        return inside and (not stage.quantified or (not stage.looping and stage.inner == "strict"))
    waits = stage.contiguity not in ("begin", "next", "not_next") and stage.gap_ms is None
    repeats = stage.quantified and (stage.looping or (stage.inner != "strict" and stage.repeat_gap_ms is None))
    return not waits and not repeats
