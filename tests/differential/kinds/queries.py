"""Kinds of SQL queries: what ``builder.sql`` and Flink SQL both have.

A kind is a text over two streams ``l`` and ``r`` and a versioned table ``named``; where Flink writes it otherwise, it has a
second one. ``{size}`` and the like are numbers that are drawn.
"""

from __future__ import annotations

import dataclasses
import re
from random import Random
from typing import Any

STREAM = ("id", "k", "n", "m", "s", "x", "b", "d")
"""The columns of both streams; ``Inputs.java`` has the same."""
NAMED = ("key", "name", "n")

QUERIES: dict[str, Query] = {}
"""Every kind by name."""


@dataclasses.dataclass(frozen=True)
class Query:
    """``theirs``: as Flink writes it (``None``: likewise). ``late``: some rows come behind the watermark. ``nulls``: some
    columns are null. ``grouped``: the result is a table, which is compared as such. ``rows_max``: of one input.
    ``start_ms``: no row is earlier. ``draws``: what the numbers in braces may be, where that is not what ``DRAWS`` says."""

    text: str
    theirs: str | None = None
    late: bool = True
    nulls: bool = True
    grouped: bool = False
    rows_max: int = 24
    start_ms: int = 0
    draws: dict[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)

    def drawn(self, rng: Random) -> dict[str, Any]:
        """One query of the kind."""
        numbers = {name: rng.choice(choices) for name, choices in {**DRAWS, **self.draws}.items()}
        ours = _filled(self.text, numbers)
        return {
            "query": ours,
            "theirs": ours if self.theirs is None else _filled(self.theirs, numbers),
            "inputs": [name for name in ("l", "r", "named") if re.search(rf"(FROM|JOIN) {name}\b", ours)],
            "grouped": self.grouped,
        }


DRAWS: dict[str, tuple[int, ...]] = {
    "size": (2, 5),
    "slide": (1, 2),
    "gap": (1, 3),
    "before": (0, 3),
    "after": (0, 2),
    "within": (3, 10),
}


def _filled(text: str, numbers: dict[str, int]) -> str:
    return re.sub(r"\{(\w+)\}", lambda m: str(numbers[m[1]]) if m[1] in numbers else m[0], " ".join(text.split()))


def query(name: str, text: str, **options: Any) -> None:
    """Add a kind."""
    if name in QUERIES:
        raise ValueError(f"query {name!r} is there twice")
    QUERIES[name] = Query(text, **options)


def select(name: str, *columns: str, where: str = "", **options: Any) -> None:
    """Add a projection of rows; each column is one expression."""
    listed = ", ".join(f"{c} AS c{i}" for i, c in enumerate(columns, 1))
    query(name, f"SELECT id, {listed} FROM l{f' WHERE {where}' if where else ''}", **options)


# -- rows ----------------------------------------------------------------------------------------------------------

_ALL = ", ".join(STREAM)
query("all_columns", "SELECT * FROM l", theirs=f"SELECT {_ALL} FROM l")
query("some_columns", "SELECT id, s, n AS number, l.k FROM l")
query("more_columns", "SELECT *, n + 1 AS more FROM l", theirs=f"SELECT {_ALL}, n + 1 AS more FROM l")
select("event_time", "rowtime", "EXTRACT(SECOND FROM rowtime)", "MINUTE(rowtime)", "HOUR(rowtime)", "YEAR(rowtime)")
select("sums", "n + m", "n - m", "n * m", "-n", "n + 1.5E0", "x + n", "x * 2", "x - m")
select("decimal_literals", "n + 1.5", "0.25")
select("quotients", "n / m", "n % m", "MOD(n, m)", "x / m", "n / x", where="m <> 0 AND x <> 0")
select("rounded", "ROUND(x, 1)", "ROUND(x)", "FLOOR(x)", "CEIL(x)", "ABS(x)", "ABS(n)")
select("roots", "SQRT(ABS(x))", "SQRT(ABS(n))")
select("decimals", "d + d", "d * 2", "d - CAST('0.05' AS DECIMAL(10, 2))", "ABS(d)", "-d", "ROUND(d, 1)", "d * d")
select("decimal_quotients", "ROUND(d / CAST('2.00' AS DECIMAL(10, 2)), 2)", "CAST(d AS DOUBLE)", "CAST(d AS BIGINT)")
select("decimal_comparisons", "d > CAST('1.50' AS DECIMAL(10, 2))", "d = CAST('1.5' AS DECIMAL(3, 1))", "d < n")
select("case_searched", "CASE WHEN n > 5 THEN 'high' WHEN n > 0 THEN 'low' ELSE 'none' END")
select("case_without_else", "CASE WHEN n > 5 THEN s WHEN b THEN 'b' END")
select("case_of_operand", "CASE k WHEN 'a' THEN 1 WHEN 'b' THEN 2 ELSE 0 END", "CASE m WHEN 1 THEN x ELSE 0.5E0 END")
select("ifs", "IF(n > 3, m, n)", "IF(b, s, k)", "NULLIF(m, 2)", "NULLIF(s, 'a')", "COALESCE(n, m, 0)", "COALESCE(s, k)")
select("text_cases", "UPPER(s)", "LOWER(s)", "TRIM(s)", "CHAR_LENGTH(s)", "s || '-' || k", "CONCAT(s, k, 'x')")
select("text_parts", "SUBSTRING(s, 2, 2)", "SUBSTRING(s, 1)", "SUBSTRING(s, 3)", "REPLACE(s, 'a', 'xy')")
select("regular_expressions", "REGEXP_EXTRACT(s, '([a-z]+)', 1)", "REGEXP_EXTRACT(s, '[0-9]')")
select("like", "s LIKE 'a%'", "s LIKE '%b'", "s LIKE '_b%'", "s LIKE '%b%'", "s NOT LIKE '%a%'", "s LIKE 'a'")
select("like_nothing", "s", "s LIKE ''")
select("like_of_signs", "s LIKE '%.%'", "s LIKE '%/%/%'", "s LIKE '%(%'", "s LIKE '[a]%'")
select("comparisons", "n = m", "n <> m", "n < m", "n <= m", "x > n", "x >= m", "s = k", "s < k", "b = TRUE")
select(
    "nulls", "n IS NULL", "s IS NOT NULL", "(n > 3) IS TRUE", "(n > 3) IS FALSE", "n = CAST(NULL AS BIGINT)", "m = m"
)
select("logic", "b AND n > 3", "b OR n > 3", "NOT b", "NOT (b OR n > 3)", "b AND (n > 3 OR m = 1)")
select("ranges", "n BETWEEN 0 AND 6", "n NOT BETWEEN m AND 6", "s BETWEEN 'a' AND 'b'", "x BETWEEN n AND m")
select("lists", "n IN (1, 2, 3)", "n NOT IN (1, 2)", "s IN ('a', 'ab')", "k NOT IN ('a')", "n IN (1, NULL)")
select("nulls_not_in", "n NOT IN (1, NULL)", "m IN (n, 2)")
select("casts", "CAST(n AS DOUBLE)", "CAST(x AS BIGINT)", "CAST(n AS DECIMAL(10, 2))", "CAST(x AS DECIMAL(12, 3))")
select("casts_to_text", "CAST(n AS VARCHAR)", "CAST(b AS VARCHAR)", "CAST(d AS VARCHAR)")
select("tried_casts", "TRY_CAST(s AS BIGINT)", "TRY_CAST(s AS DOUBLE)", "TRY_CAST(s AS DECIMAL(10, 2))")
select(
    "narrow_decimals", "TRY_CAST(n AS DECIMAL(2, 1))", "TRY_CAST(d AS DECIMAL(3, 2))", "TRY_CAST(x AS DECIMAL(5, 1))"
)
select("greatest", "GREATEST(n, m)", "LEAST(n, m, 3)", "GREATEST(s, k)")
select("filtered", "n", where="n > 3")
select("filtered_by_text", "s", where="s LIKE '%a%' AND k = 'a'")
select("filtered_by_or", "n", where="n > 10 OR b OR s = 'a'")
select("filtered_by_not", "n", where="NOT (n > 3 AND b)")
select("filtered_by_null", "n", where="n IS NULL OR s IS NULL")
select("filtered_by_list", "n", where="k IN ('a', 'c') AND n NOT IN (1, 2, 3)")
select("filtered_by_sum", "n + m", where="n + m > 5 AND x IS NOT NULL")
query("subquery", "SELECT id, twice + 1 AS c FROM (SELECT id, n * 2 AS twice FROM l WHERE n > 0) AS t WHERE twice > 4")
query(
    "subquery_of_subquery",
    "SELECT k, c FROM (SELECT k, b + 1 AS c FROM (SELECT k, n AS b FROM l WHERE k = 'a') AS u) AS t WHERE c > 3",
)

# -- running aggregates --------------------------------------------------------------------------------------------


def grouped(name: str, text: str, **options: Any) -> None:
    """Add a query whose result is a table."""
    query(name, text, grouped=True, **options)


grouped("count", "SELECT k, COUNT(*) AS c FROM l GROUP BY k")
grouped("count_column", "SELECT k, COUNT(n) AS c, COUNT(s) AS e FROM l GROUP BY k")
grouped("sum", "SELECT k, SUM(n) AS c, SUM(m) + 1 AS e FROM l GROUP BY k")
grouped("sum_of_decimals", "SELECT k, SUM(d) AS c, MIN(d) AS e, MAX(d) AS f FROM l GROUP BY k")
grouped("sum_of_doubles", "SELECT k, SUM(x) AS c, AVG(x) AS e FROM l GROUP BY k")
grouped("extremes", "SELECT k, MIN(n) AS c, MAX(n) AS e, MIN(s) AS f, MAX(x) AS g FROM l GROUP BY k")
grouped("means_of_integers", "SELECT k, AVG(n) AS c FROM l GROUP BY k")
grouped("means_as_doubles", "SELECT k, AVG(CAST(n AS DOUBLE)) AS c FROM l GROUP BY k")
grouped("distinct_counts", "SELECT k, COUNT(DISTINCT n) AS c, COUNT(DISTINCT s) AS e FROM l GROUP BY k")
grouped(
    "filtered_counts", "SELECT k, COUNT(*) FILTER (WHERE n > 3) AS c, SUM(n) FILTER (WHERE b) AS e FROM l GROUP BY k"
)
grouped("filtered_distinct", "SELECT k, COUNT(DISTINCT n) FILTER (WHERE b) AS c FROM l GROUP BY k")
grouped("first_and_last", "SELECT k, FIRST_VALUE(n) AS c, LAST_VALUE(s) AS e FROM l GROUP BY k")
grouped("spread", "SELECT k, VAR_POP(x) AS c, STDDEV_SAMP(x) AS e FROM l GROUP BY k")
grouped("by_two", "SELECT k, m, COUNT(*) AS c FROM l GROUP BY k, m")
grouped("by_expression", "SELECT n % 2 AS odd, COUNT(*) AS c FROM l GROUP BY n % 2")
grouped("by_text", "SELECT UPPER(s) AS u, COUNT(*) AS c, SUM(n) AS e FROM l GROUP BY UPPER(s)")
grouped("by_nothing", "SELECT COUNT(*) AS c, SUM(n) AS e, MAX(s) AS f FROM l")
grouped("by_nothing_filtered", "SELECT COUNT(*) AS c, SUM(n) AS e FROM l WHERE n > 8")
grouped("different_keys", "SELECT k, m FROM l GROUP BY k, m")
grouped("having", "SELECT k, COUNT(*) AS c FROM l GROUP BY k HAVING COUNT(*) > 2")
grouped("having_both", "SELECT k, SUM(n) AS c FROM l GROUP BY k HAVING SUM(n) > 5 AND COUNT(*) < 6")
grouped("having_another", "SELECT k, MAX(n) AS c FROM l GROUP BY k HAVING MIN(m) < 2")
grouped("of_aggregates", "SELECT k, SUM(n) / COUNT(n) AS c, MAX(n) - MIN(n) AS e FROM l GROUP BY k HAVING COUNT(n) > 0")
grouped("of_subquery", "SELECT g, SUM(c) AS t FROM (SELECT k AS g, n + m AS c FROM l WHERE b) AS q GROUP BY g")
grouped("filtered_groups", "SELECT k, COUNT(*) AS c FROM l WHERE n > 0 GROUP BY k")

# -- windows -------------------------------------------------------------------------------------------------------

TUMBLE = "TUMBLE(rowtime, INTERVAL '{size}' SECOND)"
HOP = "HOP(rowtime, INTERVAL '{slide}' SECOND, INTERVAL '4' SECOND)"
SESSION = "SESSION(rowtime, INTERVAL '{gap}' SECOND)"

for _name, _window, _arguments in (
    ("tumbling", "TUMBLE", TUMBLE),
    ("hopping", "HOP", HOP),
    ("session", "SESSION", SESSION),
):
    _start, _end = (_arguments.replace(_window + "(", f"{_window}_{side}(", 1) for side in ("START", "END"))
    query(f"{_name}_count", f"SELECT k, COUNT(*) AS c, {_start} AS t, {_end} AS u FROM l GROUP BY k, {_arguments}")
    query(f"{_name}_sums", f"SELECT k, SUM(n) AS c, MIN(s) AS e, {_start} AS t FROM l GROUP BY {_arguments}, k")
    query(f"{_name}_of_all", f"SELECT COUNT(n) AS c, MAX(n) AS e, {_start} AS t FROM l GROUP BY {_arguments}")
    query(
        f"{_name}_distinct",
        f"SELECT k, COUNT(DISTINCT n) AS c, {_start} AS t, {_end} AS u FROM l GROUP BY k, {_arguments}",
    )
    query(
        f"{_name}_having",
        f"SELECT k, COUNT(*) AS c, SUM(d) AS e, {_start} AS t FROM l GROUP BY k, {_arguments} HAVING COUNT(*) > 1",
    )
    query(
        f"{_name}_of_some",
        f"SELECT m, MAX(x) AS c, {_start} AS t FROM l WHERE n > 2 AND b GROUP BY m, {_arguments}",
    )
query(
    "tumbling_without_aggregate",
    f"SELECT k, {TUMBLE.replace('TUMBLE', 'TUMBLE_START')} AS t FROM l GROUP BY k, {TUMBLE}",
)

# -- joins ---------------------------------------------------------------------------------------------------------

START_MS = 60_000
"""Flink's interval join does not join rows of time 0."""
WITHIN = "l.rowtime BETWEEN r.rowtime - INTERVAL '{before}' SECOND AND r.rowtime + INTERVAL '{after}' SECOND"

for _side in ("", "LEFT ", "RIGHT ", "FULL "):
    _name = f"interval_{_side.strip().lower() or 'inner'}"
    query(
        _name,
        f"SELECT l.id AS i, r.id AS j, l.n AS n, r.s AS s FROM l {_side}JOIN r ON l.k = r.k AND {WITHIN}",
        late=False,
        start_ms=START_MS,
    )
    query(
        f"{_name}_of_two",
        f"SELECT l.id AS i, r.id AS j FROM l {_side}JOIN r ON l.k = r.k AND l.m = r.m AND {WITHIN}",
        late=False,
        start_ms=START_MS,
    )
    query(
        f"{_name}_condition",
        f"SELECT l.id AS i, r.id AS j FROM l {_side}JOIN r ON l.k = r.k AND l.n < r.n AND {WITHIN}",
        late=False,
        start_ms=START_MS,
    )
query("interval_late", f"SELECT l.id AS i, r.id AS j FROM l JOIN r ON l.k = r.k AND {WITHIN}", start_ms=START_MS)
query(
    "interval_open_bounds",
    """SELECT l.id AS i, r.id AS j FROM l JOIN r ON l.k = r.k AND l.rowtime > r.rowtime - INTERVAL '{size}' SECOND
       AND l.rowtime < r.rowtime + INTERVAL '{size}' SECOND""",
    late=False,
    start_ms=START_MS,
)
query(
    "interval_filtered",
    f"SELECT l.id AS i, r.id AS j FROM l JOIN r ON l.k = r.k AND {WITHIN} WHERE l.n > r.m",
    late=False,
    start_ms=START_MS,
)
query(
    "interval_of_subqueries",
    f"""SELECT p.i AS i, q.i AS j FROM (SELECT id AS i, k, rowtime FROM l WHERE n > 2) AS p
        JOIN (SELECT id AS i, k, rowtime FROM r WHERE b) AS q
        ON p.k = q.k AND {WITHIN.replace("l.", "p.").replace("r.", "q.")}""",
    late=False,
    start_ms=START_MS,
)
AS_OF = "named FOR SYSTEM_TIME AS OF l.rowtime"
for _side in ("", "LEFT "):
    _name = f"versioned_{_side.strip().lower() or 'inner'}"
    for _more, _columns, _where in (
        ("", "l.n AS n, named.name AS name", ""),
        ("_filtered", "named.n AS c", " WHERE l.n > 3"),
        ("_computed", "named.n + l.n AS c, COALESCE(named.name, 'none') AS e", ""),
    ):
        _text = f"SELECT l.id AS i, {_columns} FROM l {_side}JOIN named ON l.k = named.key{_where}"
        query(_name + _more, _text, theirs=_text.replace("JOIN named", f"JOIN {AS_OF}"), late=False)

# -- patterns ------------------------------------------------------------------------------------------------------


def match(name: str, pattern: str, measures: str, define: str, skip: str = "PAST LAST ROW") -> None:
    """Add a pattern in the rows of each ``k``."""
    query(
        name,
        f"""SELECT * FROM l MATCH_RECOGNIZE (PARTITION BY k ORDER BY rowtime MEASURES {measures}
            ONE ROW PER MATCH AFTER MATCH SKIP {skip}
            PATTERN ({pattern}) WITHIN INTERVAL '{{within}}' SECOND DEFINE {define}) AS t""",
        rows_max=60,
    )


LOW, HIGH = "{0} AS {0}.n < 6", "{0} AS {0}.n >= 6"
PAIR = f"{LOW.format('A')}, {HIGH.format('B')}"
TRIPLE = f"{LOW.format('A')}, {HIGH.format('B')}, {LOW.format('C')}"
IDS = "A.id AS a, B.id AS c"
IDS3 = "A.id AS a, FIRST(B.id) AS e, LAST(B.id) AS f, C.id AS c"
match("match_pair", "A B", IDS, PAIR)
match("match_pair_to_next", "A B", IDS, PAIR, "TO NEXT ROW")
match("match_one_or_more", "A B+ C", IDS3, TRIPLE)
match("match_one_or_more_to_next", "A B+ C", IDS3, TRIPLE, "TO NEXT ROW")
match("match_any_number", "A B* C", IDS3, TRIPLE)
match("match_optional", "A B? C", IDS3, TRIPLE)
match("match_twice", "A B{2} C", IDS3, TRIPLE)
match("match_range", "A B{1,3} C", IDS3, TRIPLE)
match("match_reluctant", "A B+? C", IDS3, TRIPLE)
match("match_sums", "A B+ C", "A.id AS a, SUM(B.n) AS e, COUNT(B.id) AS f, MAX(B.x) AS g", TRIPLE)
match("match_rising", "A B+ C", IDS3, "A AS TRUE, B AS B.n > A.n, C AS C.n <= A.n")
match("match_to_last", "A B+ C", IDS3, TRIPLE, "TO LAST B")
match("match_sum_so_far", "A B+ C", IDS3, f"{LOW.format('A')}, B AS SUM(B.n) < 15, C AS C.n >= 6")
match("match_computed", "A B", "A.n + B.n AS a, UPPER(B.s) AS c", PAIR)
