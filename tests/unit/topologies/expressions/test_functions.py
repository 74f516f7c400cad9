"""Functions of strings and of time, and casts, value by value."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from penstock.state.errors import TopologyError
from penstock.topologies.expressions.errors import ExpressionError
from penstock.topologies.expressions.functions import col, concat, lit, timestamp
from penstock.topologies.expressions.inference import infer
from penstock.topologies.expressions.rows import compile_row
from penstock.topologies.expressions.tree import Expression, literal


def of(expression: Expression, held: Any) -> Any:
    """The expression of a row whose column ``x`` holds this."""
    return compile_row(expression)(None, {"x": held}, 0, ())


X = col("x")


def test_strings() -> None:
    """Every function of strings."""
    for expression, held, expected in (
        (X.lower(), "ÄB", "äb"),
        (X.upper(), "äb", "ÄB"),
        (X.strip(), " a b\n", "a b"),
        (X.length(), "äöü", 3),
        (X.length(), b"\xc3\xa4", 2),
        (X.contains("b"), "abc", True),
        (X.starts_with("b"), "abc", False),
        (X.ends_with("bc"), "abc", True),
        (X.substring(1), "abc", "bc"),
        (X.substring(1, 1), "abc", "b"),
        (X.substring(-2, 1), "abc", "b"),
        (X.substring(-9, 2), "abc", "ab"),
        (X.substring(7, 2), "abc", ""),
        (X.replace("a", "b"), "aXa", "bXb"),
        (X.split("/"), "a//b", ["a", "", "b"]),
        (X.split_part("/", 3), "https://www.nexmark.com/a/b/c", "a"),
        (X.split_part("/", 9), "a/b", None),
        (X.split("/")[-1], "a/b", "b"),
        (X.regexp_matches("b+$"), "abb", True),
        (X.regexp_matches("^b"), "abb", False),
        (X.regexp_extract(r"channel_id=(\w+)"), "?a=1&channel_id=42&b", "42"),
        (X.regexp_extract(r"id=\d+", 0), "id=7", "id=7"),
        (X.regexp_extract(r"(z)"), "abc", None),
        (concat(X, "-", X), "a", "a-a"),
    ):
        assert of(expression, held) == expected, expression


def test_times() -> None:
    """2024-02-29 23:59:58.123 UTC, a Thursday, and the next day in Berlin."""
    moment = 1_709_251_198_123
    parts = (X.year(), X.month(), X.day(), X.weekday(), X.hour(), X.minute(), X.second())
    assert [of(e, moment) for e in parts] == [2024, 2, 29, 4, 23, 59, 58]
    assert [of(e, moment) for e in (X.day("Europe/Berlin"), X.hour("Europe/Berlin"))] == [1, 0]
    assert of(X.floor_time("1h"), moment) == moment - moment % 3_600_000
    assert of(X.floor_time("5m"), -1) == -300_000
    assert of(X.format_time("%Y-%m-%dT%H:%M:%S.%L %j %u%%"), moment) == "2024-02-29T23:59:58.123 060 4%"
    assert of(X.format_time("%H:%M %z", "Europe/Berlin"), moment) == "00:59 +0100"
    assert of(X.hour(), None) is None
    with pytest.raises(ExpressionError, match="outside the years 1 to 9999"):
        of(X.hour(), 2**60)


def test_constants_are_checked_when_the_topology_is_built() -> None:
    """Patterns, groups, zones, durations, directives."""
    for expression, problem in (
        (X.regexp_matches("("), "not a regular expression"),
        (X.regexp_extract("a", 1), "no group 1"),
        (X.hour("Mars/Olympus"), "no time zone 'Mars/Olympus'"),
        (X.floor_time("5 parsecs"), "is not a duration"),
        (X.floor_time(0), "at least 1 ms"),
        (X.format_time("%B"), "does not know %B"),
        (X.format_time("100%"), "does not know %"),
        (X.round(99), "use 0 to 30"),
        (X._call("hour", col("zone")), "must be a constant, not zone"),
        (X._call("regexp_matches", col("p")), "must be a constant, not p"),
        (X._call("lowr"), "did you mean 'lower'"),
        (X._call("lower", 1), "takes 1 to 1 arguments, but got 2"),
    ):
        with pytest.raises(TopologyError, match=problem.replace("(", r"\(")):
            infer(expression)


@pytest.mark.parametrize(
    ("held", "to", "expected"),
    [
        (" 12 ", "int64", 12),
        (-1.9, "int64", -1),
        (True, "int64", 1),
        (Decimal("7.9"), "int64", 7),
        (Decimal(-(2**63)), "int64", -(2**63)),
        (Decimal("1E-999999999"), "int64", 0),
        (Decimal("0E+999999999"), "int64", 0),
        ("1e3", "float64", 1000.0),
        ("inf", "float64", math.inf),
        (3, "float64", 3.0),
        ("TRUE", "bool", True),
        (0, "bool", False),
        (1.0, "string", "1.0"),
        (False, "string", "false"),
        (Decimal("1E+3"), "string", "1000"),
        (b"\xc3\xa4", "string", "ä"),
        ("ä", "bytes", b"\xc3\xa4"),
        ("1970-01-01T00:00:01Z", "timestamp", 1000),
        ("1970-01-01T01:00:01+01:00", "timestamp", 1000),
        (0.1, "decimal", Decimal("0.1")),
        ("2.50", "decimal", Decimal("2.50")),
        ([1], list[int], [1]),
        ({"a": 1}, {"a": int}, {"a": 1}),
        (None, "int64", None),
    ],
)
def test_casts(held: Any, to: Any, expected: Any) -> None:
    """What can be cast, with and without ``strict``."""
    assert of(X.cast(to), held) == expected
    assert of(X.cast(to, strict=False), held) == expected


@pytest.mark.parametrize(
    ("held", "to"),
    [
        ("1_000", "int64"),
        ("1.5", "int64"),
        ("٣", "int64"),
        (math.nan, "int64"),
        (1e300, "int64"),
        (Decimal("1E+19"), "int64"),
        (Decimal("inf"), "int64"),
        (Decimal("1E+999999999"), "int64"),  # would take hours, written out
        (Decimal("1E+999999999"), "string"),
        (Decimal("1E-999999999"), "string"),
        ("", "float64"),
        ("yes", "bool"),
        (b"\xff", "string"),
        ("soon", "timestamp"),
        (math.inf, "decimal"),
        ("nan", "decimal"),
        (1, list[int]),
        (1, {"a": int}),
        ([1], "string"),
    ],
)
def test_what_cannot_be_cast(held: Any, to: Any) -> None:
    """An error, or null when the cast is lenient."""
    with pytest.raises(ExpressionError, match="cannot be cast to"):
        of(X.cast(to), held)
    assert of(X.cast(to, strict=False), held) is None


def test_timestamps_cast_to_text_and_back() -> None:
    """A timestamp's text is ISO 8601; an int64's is a number."""
    moment = literal(datetime.datetime(2024, 1, 1, 12, tzinfo=datetime.UTC))
    assert of(moment.cast("string"), None) == "2024-01-01T12:00:00.000Z"
    assert of(moment.cast("string").cast("timestamp") == moment, None) is True
    assert of(moment.cast("int64").cast("string"), None) == "1704110400000"
    assert infer(timestamp() - moment).kind == "int64"
    assert infer(timestamp() + lit(1)).kind == "timestamp"


def test_texts_of_times_do_not_depend_on_those_before() -> None:
    """Texts are kept for as long as they stay the same; zones were once off UTC by odd numbers of seconds."""
    near = [0, 1, 999, 1_000, 59_999, 60_000, 3_599_999, 3_600_000, 86_399_999, 86_400_000, 1_600_000]
    moments = [
        base + sign * ms for base in (0, 1_709_251_198_123, -3_000_000_000_000) for ms in near for sign in (1, -1)
    ]
    for zone in ((), ("UTC",), ("Asia/Kolkata",), ("Europe/Amsterdam",), ("Africa/Monrovia",)):
        for pattern in ("%Y", "%Y-%m-%d", "%H", "%H:%M", "%M", "%H:%M:%S", "%S.%L", "%j %u", "%Y %z", "plain"):
            one = compile_row(X.format_time(pattern, *zone))
            for moment in moments:
                alone = compile_row(X.format_time(pattern, *zone))
                assert one(None, {"x": moment}, 0, ()) == alone(None, {"x": moment}, 0, ()), (zone, pattern, moment)


def test_parts_of_times_do_not_depend_on_those_before() -> None:
    """As of texts; also where a year begins or ends, and at the first and the last time that there is."""
    bases = (0, 1_709_251_198_123, -3_000_000_000_000, -62_135_596_800_000, 253_402_300_800_000)
    near = (0, 1, 999, 1_000, 60_000, 3_600_000, 86_399_999, 86_400_000)
    moments = [base + sign * ms for base in bases for ms in near for sign in (1, -1)]
    for zone in ((), ("UTC",), ("Asia/Kolkata",), ("Europe/Amsterdam",), ("Africa/Monrovia",)):
        for part in ("year", "month", "day", "weekday", "hour", "minute", "second"):
            one = compile_row(getattr(X, part)(*zone))
            for moment in moments:
                alone = compile_row(getattr(X, part)(*zone))
                assert _outcome(one, moment) == _outcome(alone, moment), (zone, part, moment)


def _outcome(run: Callable[..., Any], x: int) -> Any:
    try:
        return run(None, {"x": x}, 0, ())
    except ExpressionError as exc:
        return str(exc)
