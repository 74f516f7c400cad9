"""Quantifiers of row patterns: what they take, and where they are refused."""

from __future__ import annotations

import pytest

from penstock.state.errors import TopologyError
from penstock.state.log import Record
from penstock.topologies.dsl.builder import StreamsBuilder
from tests.unit.topologies.sql.conftest import Bid, Query, inputs_of

DEFINED = "A AS A.url = 'a', B AS B.url = 'b', C AS C.url = 'c'"


def statement(pattern: str, define: str = DEFINED) -> str:
    """A statement whose matches say which rows, by their prices, each variable has."""
    names = [n for n in "ABC" if n in pattern]
    measures = ", ".join(f"FIRST({n}.price) AS {n.lower()}1, LAST({n}.price) AS {n.lower()}2" for n in names)
    used = ", ".join(d for d in define.split(", ") if d[0] in names)
    return f"""SELECT * FROM bids MATCH_RECOGNIZE (
ORDER BY rowtime MEASURES {measures}
PATTERN ({pattern}) WITHIN INTERVAL '1' HOUR
DEFINE {used})"""


@pytest.mark.parametrize(
    ("pattern", "rows", "expected"),
    [
        ("A B+", "abbbc", [(0, 0, 1, 3)]),
        ("A B*", "abbac", [(0, 0, 1, 2), (3, 3, None, None)]),
        ("A+", "aaaca", [(0, 2), (4, 4)]),
        ("A B{2,3}", "abbbbabbcab", [(0, 0, 1, 3), (5, 5, 6, 7)]),
        ("A C?", "acxa", [(0, 0, 1, 1), (3, 3, None, None)]),
        ("A B+?", "abbbc", [(0, 0, 1, 1)]),
        ("A{2}", "aaaa", [(0, 1), (2, 3)]),
        ("A+ (B{2})", "aabxb", []),
        ("A+ (B{2})", "aabb", [(0, 1, 2, 3)]),
    ],
)
def test_what_the_last_variable_takes(
    query: Query, pattern: str, rows: str, expected: list[tuple[int | None, ...]]
) -> None:
    """The longest run, once it is over: by the next row, by its bound, or by time."""
    records = [Record("k", Bid(1, 1, i, c), i * 1000) for i, c in enumerate(rows)]
    records += [Record("k", Bid(1, 1, 0, "end"), ts) for ts in (10**8, 10**9)]
    assert [tuple(v.values()) for _, v in query(statement(pattern), bids=records)] == expected


@pytest.mark.parametrize("step", [1, 4000])
def test_a_last_run_ends_with_its_time(query: Query, step: int) -> None:
    """A match is as long as ``WITHIN`` lets it be, and has the time of its last row."""
    text = statement("A B+").replace("1' HOUR", "10' SECOND")
    records = [Record("k", Bid(1, 1, i, c), i * step) for i, c in enumerate("abbbbbb")]
    records += [Record("k", Bid(1, 1, 0, "b"), ts) for ts in (10**8, 10**9)]
    rows = query(f"SELECT b2, rowtime AS t FROM ({text}) AS m", bids=records)
    last = 6 if step == 1 else 2
    assert [v for _, v in rows] == [{"b2": last, "t": last * step}]


@pytest.mark.parametrize(
    ("pattern", "define", "place", "problem"),
    [
        ("(A B)+", DEFINED, "3:10", "(A B)+ is greedy at the end of the pattern"),
        ("A (B C+)", DEFINED, "3:15", "C+ is greedy at the end of the pattern"),
        ("A B? C*?", DEFINED, "3:12", "B? is greedy at the end of the pattern"),
        ("A B? C*", DEFINED, "3:15", "C* is greedy at the end of the pattern"),
        ("A+? B+", DEFINED, "3:14", "B+ is greedy at the end of the pattern"),
        ("A*?", DEFINED, "3:10", "as few rows as possible would be none here"),
        ("A B?? C", DEFINED, "3:12", "B??: a reluctant optional is not supported"),
        ("(A B)?? C", DEFINED, "3:10", "(A B)??: a reluctant optional is not supported"),
        ("(B{1,2}){2} C", DEFINED, "3:10", "(B{1,2}){2}: which repetition takes a row of B is not defined"),
        (
            "A+ B",
            "B AS B.price > 1",
            "3:10",
            "A+: A takes any row, so that none is left for the next variable; DEFINE A",
        ),
        ("A+ B", "A AS TRUE, B AS B.price > 1", "3:10", "A+: A takes any row"),
        ("A{2,} B", "B AS B.price > 1", "3:10", "A{2,}: A takes any row"),
        ("(A B)+ C", "B AS B.price > 1", "3:10", "(A B)+: A takes any row"),
        ("A B+", "A AS A.price > 1", "3:12", "B+: B takes any row, so that it never ends"),
    ],
)
def test_quantifiers_that_are_refused(pattern: str, define: str, place: str, problem: str) -> None:
    """Where the standard's match could not be told, with the place."""
    builder = StreamsBuilder()
    with pytest.raises(TopologyError) as caught:
        builder.sql(statement(pattern, define), **inputs_of(builder))
    assert str(caught.value).startswith(f"SQL, line {place}: {problem}")
