"""Conditions on an event, and the context of the partial match that the event would be added to.

A user's condition is a function of the event, or of the event and a ``MatchContext``, or an expression. It must be
pure: it is called once per event and partial match (once per event if it takes the event alone), for any number of
edges that need it.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, Protocol

from penstock.state.errors import TopologyError
from penstock.topologies.expressions.tree import Expression
from penstock.topologies.functions import is_async


class MatchContext(Protocol):
    """The context of an iterative condition."""

    @property
    def timestamp(self) -> int:
        """Event time of the current event, in milliseconds."""

    @property
    def processing_time(self) -> int:
        """The task's processing time, in milliseconds since 1970, from the journal, so that a replay sees the same."""

    def events(self, name: str | None = None) -> list[Any]:
        """The events that the partial match has taken so far for the stage ``name``, or for all stages, oldest first.
        The current event is not among them. Returns fresh objects at every call."""


class ConditionScope(Protocol):
    """One event before one partial match, as conditions see it."""

    def holds(self, condition: User) -> bool:
        """Whether the user's condition is true of the event."""


class Condition:
    """A condition on an edge of the automaton."""

    def test(self, scope: ConditionScope) -> bool:
        """Whether it is true of the scope's event. Raises what the user's function raises."""
        raise AssertionError(f"{type(self).__name__} has no test")

    def replaced(self, change: Callable[[User], User]) -> Condition:
        """A copy with the users' conditions mapped."""
        return self


@dataclasses.dataclass(frozen=True, eq=False)
class User(Condition):
    """A user function; ``iterative`` if it takes the context too. Compares by identity. An expression stands for a
    function of the event until ``match`` types it and replaces it by one. ``where``: its stage, for messages."""

    fn: Any
    iterative: bool
    where: str = ""

    def test(self, scope: ConditionScope) -> bool:
        return scope.holds(self)

    def replaced(self, change: Callable[[User], User]) -> Condition:
        return change(self)


@dataclasses.dataclass(frozen=True)
class Always(Condition):
    """True of every event."""

    def test(self, scope: ConditionScope) -> bool:
        return True


@dataclasses.dataclass(frozen=True)
class Both(Condition):
    """The first and, if that is true, the second."""

    first: Condition
    second: Condition

    def test(self, scope: ConditionScope) -> bool:
        return self.first.test(scope) and self.second.test(scope)

    def replaced(self, change: Callable[[User], User]) -> Condition:
        return Both(self.first.replaced(change), self.second.replaced(change))


@dataclasses.dataclass(frozen=True)
class Either(Condition):
    """The first or, if that is false, the second."""

    first: Condition
    second: Condition

    def test(self, scope: ConditionScope) -> bool:
        return self.first.test(scope) or self.second.test(scope)

    def replaced(self, change: Callable[[User], User]) -> Condition:
        return Either(self.first.replaced(change), self.second.replaced(change))


@dataclasses.dataclass(frozen=True)
class Not(Condition):
    """The negation."""

    inner: Condition

    def test(self, scope: ConditionScope) -> bool:
        return not self.inner.test(scope)

    def replaced(self, change: Callable[[User], User]) -> Condition:
        return Not(self.inner.replaced(change))


ALWAYS = Always()


def user_condition(fn: Callable[..., Any] | Expression, where: str) -> User:
    """The condition of a function of ``(event)`` or ``(event, ctx)``, or of an expression over the event's columns; a
    callable without a signature takes only the event. Raises ``TopologyError`` for anything else; ``where`` says for
    which stage."""
    if isinstance(fn, Expression):
        return User(fn, iterative=False, where=where)
    if not callable(fn):
        raise TopologyError(f"{where}: a condition is a function of (event) or (event, ctx), not {fn!r:.100}")
    if is_async(fn):
        raise TopologyError(f"{where}: its condition is async, but nothing awaits it; give a plain function")
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        return User(fn, iterative=False, where=where)
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = [p for p in positional if p.default is p.empty]
    keywords = [p for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    spread = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    if keywords or len(required) > 2 or not (positional or spread):
        raise TopologyError(f"{where}: a condition takes (event) or (event, ctx), but this one takes {parameters}")
    return User(fn, iterative=len(required) == 2, where=where)


def instance_of(cls: type) -> User:
    """True of the events of a class."""
    if not isinstance(cls, type):
        raise TopologyError(f"subtype takes a class, not {cls!r:.100}")
    return User(lambda event: isinstance(event, cls), iterative=False)
