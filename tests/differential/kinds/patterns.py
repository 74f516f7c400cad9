"""Kinds of patterns: every contiguity, quantifier, group, stop condition and skip strategy, and random sequences of them.

A pattern is one of the conformance format's, with the names of conditions in place of their text.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

Spec = dict[str, Any]
DrawPattern = Callable[[Random], Spec]

CONDITIONS: dict[str, str] = {
    "is_a": "e['name'] == 'a'",
    "is_b": "e['name'] == 'b'",
    "is_c": "e['name'] == 'c'",
    "is_a_or_b": "e['name'] in ('a', 'b')",
    "not_c": "e['name'] != 'c'",
    "is_big": "e['n'] > 4",
    "rising": "e['name'] == 'b' and all(p['n'] < e['n'] for p in prev('b'))",
    "above_a": "all(p['n'] < e['n'] for p in prev('a'))",
    "b_while_small": "e['name'] == 'b' and sum(p['n'] for p in prev('b')) + e['n'] < 12",
}
"""What patterns name; ``Conditions.java`` has the same names."""

PATTERNS: dict[str, DrawPattern] = {}
"""Every kind by name."""

CONTIGUITIES = ("next", "followed_by", "followed_by_any")
INNER = (None, "strict", "combinations")


def stage(contiguity: str, name: str, where: str | None = None, **fields: Any) -> Spec:
    """A stage; it takes events of its name unless ``where`` says otherwise."""
    return {"name": name, "contiguity": contiguity, "where": where or f"is_{name}", **_said(fields)}


def group(contiguity: str, *stages: Spec, **fields: Any) -> Spec:
    """A group of stages."""
    return {"contiguity": contiguity, "group": list(stages), **_said(fields)}


def _said(fields: Spec) -> Spec:
    return {name: value for name, value in fields.items() if value is not None}


def kind(name: str, *stages: Spec, within: tuple[int, ...] = (), **fields: Any) -> None:
    """Add a pattern. ``within``: one of these limits."""

    def drawn(rng: Random) -> Spec:
        limit = {"within_ms": rng.choice(within)} if within else {}
        return {"stages": list(stages), **limit, **fields}

    if name in PATTERNS:
        raise ValueError(f"pattern {name!r} is there twice")
    PATTERNS[name] = drawn


A = stage("begin", "a")
SHORT, LONG = (3, 6), (12, 25)

for _first in CONTIGUITIES:
    kind(f"pair_{_first}", A, stage(_first, "b"))
    kind(f"pair_{_first}_within", A, stage(_first, "b"), within=SHORT)
    kind(f"pair_{_first}_of_any", A, stage(_first, "b", "above_a"), within=LONG)
    for _second in CONTIGUITIES:
        kind(f"triple_{_first}_{_second}", A, stage(_first, "b"), stage(_second, "c"), within=LONG)

for _contiguity in CONTIGUITIES:
    for _inner in INNER:
        _name = f"{_contiguity}_{_inner or 'relaxed'}"
        _loop = stage(_contiguity, "b", times=[1, None], inner=_inner)
        kind(f"loop_{_name}", A, _loop, stage("followed_by", "c"), within=LONG)
        kind(f"loop_at_end_{_name}", A, _loop, within=LONG)
        kind(f"times_{_name}", A, stage(_contiguity, "b", times=[2, 2], inner=_inner), stage("next", "c"), within=LONG)
        kind(
            f"optional_loop_{_name}",
            A,
            stage(_contiguity, "b", times=[1, None], inner=_inner, optional=True),
            stage("followed_by", "c"),
            within=LONG,
        )
        kind(
            f"greedy_loop_{_name}" if _inner != "combinations" else f"range_{_name}",
            A,
            stage(
                _contiguity,
                "b",
                times=[1, None] if _inner != "combinations" else [1, 3],
                inner=_inner,
                greedy=True if _inner != "combinations" else None,
            ),
            stage("followed_by", "c", "is_a"),
            within=LONG,
        )
    kind(f"optional_{_contiguity}", A, stage(_contiguity, "b", optional=True), stage("followed_by", "c"), within=LONG)
    kind(f"optional_at_end_{_contiguity}", A, stage(_contiguity, "b", optional=True), within=LONG)
    kind(f"range_{_contiguity}", A, stage(_contiguity, "b", times=[1, 3]), stage("next", "c"), within=LONG)
    kind(f"at_least_{_contiguity}", A, stage(_contiguity, "b", times=[2, None]), stage("followed_by", "c"), within=LONG)
    kind(
        f"until_{_contiguity}",
        A,
        stage(_contiguity, "b", "is_a_or_b", times=[1, None], until="is_big"),
        stage("followed_by", "c"),
        within=LONG,
    )
    kind(
        f"group_{_contiguity}",
        A,
        group(_contiguity, stage("begin", "b"), stage("followed_by", "c"), times=[1, 2]),
        within=LONG,
    )
    kind(
        f"optional_group_{_contiguity}",
        A,
        group(_contiguity, stage("begin", "b"), stage("next", "c"), optional=True),
        stage("followed_by", "d", "is_a"),
        within=LONG,
    )

kind("single", A)
kind("loop_at_begin", stage("begin", "a", times=[1, None]), stage("followed_by", "b"), within=LONG)
kind("loop_at_begin_strict", stage("begin", "a", times=[1, None], inner="strict"), stage("next", "b"), within=LONG)
kind("optional_at_begin", stage("begin", "a", optional=True), stage("followed_by", "b"), within=LONG)
kind("times_at_begin", stage("begin", "a", "is_a_or_b", times=[3, 3]), within=LONG)
kind("not_next", A, stage("not_next", "b"), stage("followed_by", "c"), within=LONG)
kind("not_followed_by", A, stage("not_followed_by", "b"), stage("followed_by", "c"), within=LONG)
kind("not_followed_by_any", A, stage("not_followed_by", "b"), stage("followed_by_any", "c"), within=LONG)
kind("not_followed_by_at_end", A, stage("not_followed_by", "b"), within=LONG)
kind("not_at_end_behind_two", A, stage("followed_by", "c"), stage("not_followed_by", "b"), within=LONG)
kind("not_next_at_end", A, stage("not_next", "b"), within=LONG)
kind("rising", A, stage("followed_by", "b", "rising", times=[1, None]), stage("followed_by", "c"), within=LONG)
kind(
    "falling_sum",
    A,
    stage("followed_by", "b", "b_while_small", times=[1, None]),
    stage("followed_by", "c"),
    within=LONG,
)
kind("group_at_begin", group("begin", A, stage("next", "b"), times=[1, None]), stage("followed_by", "c"), within=LONG)
kind(
    "group_of_loops",
    group("begin", A, stage("followed_by", "b", times=[1, 2]), times=[1, 2]),
    stage("followed_by", "c"),
    within=LONG,
)

SKIPS: dict[str, Spec] = {
    "to_next": {"strategy": "skip_to_next"},
    "past_last": {"strategy": "skip_past_last_event"},
    "to_first": {"strategy": "skip_to_first", "pattern": "b"},
    "to_last": {"strategy": "skip_to_last", "pattern": "b"},
}
for _skip, _spec in SKIPS.items():
    kind(f"skip_{_skip}_loop", A, stage("followed_by", "b", times=[1, None]), within=LONG, skip=_spec)
    kind(
        f"skip_{_skip}_loop_then_c",
        stage("begin", "a", "is_a_or_b"),
        stage("followed_by", "b", times=[1, None]),
        stage("followed_by", "c"),
        within=LONG,
        skip=_spec,
    )
    kind(
        f"skip_{_skip}_any",
        A,
        stage("followed_by_any", "b", "not_c"),
        stage("followed_by", "c"),
        within=LONG,
        skip=_spec,
    )
    kind(
        f"skip_{_skip}_optional",
        A,
        stage("followed_by", "b", optional=True),
        stage("followed_by", "c"),
        within=LONG,
        skip=_spec,
    )
kind("skip_past_last_pairs", A, stage("followed_by", "b"), within=LONG, skip=SKIPS["past_last"])


def _random_pattern(rng: Random) -> Spec:
    stages = [_random_stage(rng, "begin", "a")]
    for name in "bcd"[: rng.randint(1, 3)]:
        stages.append(_random_stage(rng, rng.choice(CONTIGUITIES), name))
    spec: Spec = {"stages": stages, "within_ms": rng.choice((5, 10, 20))}
    if rng.random() < 0.4:
        spec["skip"] = rng.choice(list(SKIPS.values()))
    return spec


def _random_stage(rng: Random, contiguity: str, name: str) -> Spec:
    made = stage(contiguity, name, rng.choice(("is_a", "is_b", "is_c", "is_a_or_b", "not_c", "is_big")))
    if rng.random() < 0.5:
        low = rng.randint(1, 2)
        made |= {"times": [low, rng.choice((low, low + 1, None))]}
        made |= _said({"inner": rng.choice((None, None, "strict", "combinations"))})
    if rng.random() < 0.2 and contiguity != "begin":
        made["optional"] = True
    return made


PATTERNS["random"] = _random_pattern
PATTERNS["random_more"] = _random_pattern
