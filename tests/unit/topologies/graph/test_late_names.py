"""Warnings of functions that read a name which has another value when the graph is built."""

from __future__ import annotations

import types
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import penstock as ps

USERS = ("u1", "u2")


def warned(declare: Callable[[ps.StreamsBuilder], Any]) -> list[str]:
    builder = ps.StreamsBuilder("late", value=dict)
    declare(builder)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        builder.build()
    for warning in caught:
        assert warning.filename == __file__ or warning.filename == "late_module.py"
    return [str(warning.message) for warning in caught]


def loop_of_filters(builder: ps.StreamsBuilder) -> None:
    stream = builder.stream("in")
    for user in USERS:
        stream.filter(lambda key, value: value["user"] == user).to(f"out-{user}")  # noqa: B023  # what is warned of


def test_a_lambda_that_reads_a_loops_variable_is_named_with_both_values() -> None:
    (said,) = warned(loop_of_filters)
    assert said.startswith(
        "operator 'in-filter': its function reads 'user', which was 'u1' when the operator was declared"
    )
    assert "is 'u2' now" in said and "functools.partial" in said


def test_a_loop_of_a_module_reads_a_global() -> None:
    module = types.ModuleType("late_module")
    code = """
for user in ("u1", "u2"):
    builder.stream("in").map_values(lambda value: [user for _ in value]).to("out-" + user)
"""
    module.__dict__["builder"] = builder = ps.StreamsBuilder("late", value=dict)
    exec(compile(code, "late_module.py", "exec"), module.__dict__)
    with pytest.warns(UserWarning, match="'in-map-values': its function reads 'user', which was 'u1'"):
        builder.build()


def test_functions_within_specs_and_within_wrappers_are_found() -> None:
    def reducing(builder: ps.StreamsBuilder) -> None:
        for name in USERS:
            builder.stream(f"in-{name}").group_by_key().reduce(lambda a, b: a if name else b)  # noqa: B023  # as above

    def matching(builder: ps.StreamsBuilder) -> None:
        watermark = ps.bounded_out_of_orderness("1s")
        for name in USERS:
            wanted = ps.pattern("a").where(lambda event: event["user"] == name).within("1m")  # noqa: B023  # as above
            builder.stream(f"in-{name}", watermark=watermark).match(wanted).matches.to("out")

    assert [said.split("'")[1] for said in warned(reducing)] == ["in-u1-reduce"]
    assert [said.split("'")[1] for said in warned(matching)] == ["in-u1-match"]


def test_names_that_keep_their_value_or_were_bound_are_not_warned_of() -> None:
    def same(user: str, key: Any, value: Any) -> bool:
        return bool(value["user"] == user)

    def bound(builder: ps.StreamsBuilder) -> None:
        stream = builder.stream("in")
        for user in USERS:
            stream.filter(partial(same, user)).to(f"out-{user}")
            stream.filter(lambda key, value, user=user: value["user"] == user).to(f"more-{user}")

    def later(builder: ps.StreamsBuilder) -> None:
        limit = 3
        builder.stream("in").filter(lambda key, value: helper(value) < limit).to("out")

        def helper(value: Any) -> int:
            return len(value)

    assert warned(bound) == warned(later) == []
