"""SQL over streams and tables, compiled to the operators that the DSL has.

    builder.sql("SELECT auction, COUNT(*) AS bids, window_start FROM bids "
                "GROUP BY auction, HOP(rowtime, INTERVAL '2' SECOND, INTERVAL '10' SECOND)", bids=stream)

Supported SQL (unquoted names ignore case):

* ``SELECT`` columns and expressions ``FROM`` an input, a subquery, a join or a pattern; ``WHERE``. ``rowtime`` is the
  record's event time, ``key`` its key, where the value has no column of that name. The result has dicts for values.
* ``GROUP BY`` columns, with ``TUMBLE(rowtime, size)``, ``HOP(rowtime, slide, size)`` or ``SESSION(rowtime, gap)``: one row
  per group and window when the window closes, with ``window_start`` and ``window_end`` (or ``TUMBLE_START(…)``…). Without
  a window: a table of running aggregates. ``HAVING``. The new key is a struct of the group's columns.
* A stream ``JOIN`` or ``LEFT JOIN`` a table on the table's ``key``; two streams (also ``RIGHT JOIN`` and ``FULL JOIN``) on
  equal columns and a bound on time: ``a.rowtime BETWEEN b.rowtime - INTERVAL '5' SECOND AND b.rowtime + INTERVAL '1'
  MINUTE``. Joined rows have no ``rowtime`` per side, only their own.
* ``MATCH_RECOGNIZE (PARTITION BY … ORDER BY rowtime MEASURES … PATTERN (A B+ C?) WITHIN INTERVAL '10' SECOND DEFINE …)``
  with ``ONE ROW PER MATCH``, ``AFTER MATCH SKIP`` and quantifiers; ``FIRST``, ``LAST`` and aggregates of a variable.

As in SQL, integers are divided towards zero, ``%`` has the sign of its dividend, ``ROUND`` and ``CAST(… AS DECIMAL(p, s))``
round ties away from zero (without a scale to whole numbers), and arrays count from 1. ``0.5`` is a float64
(``CAST('0.5' AS DECIMAL(2, 1))`` a decimal). Columns that are not declared are divided only once they are cast.

Anything else is refused with its line and column in the text. Parsed by sqlglot, which the extra ``sql`` installs.
"""
