"""The methods of expressions, by theme. Each builds a node; ``tree.Expression`` inherits them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.topologies.windows.durations import Duration

if TYPE_CHECKING:
    from penstock.topologies.expressions.tree import AggregateExpression, Expression


class _Methods:
    __slots__ = ()

    def _call(self, function: str, *args: object) -> Expression:
        raise AssertionError("given by Expression")

    def _aggregate(self, function: str, *args: object) -> AggregateExpression:
        raise AssertionError("given by Expression")


class StringMethods(_Methods):
    """Methods of strings, and of lists if noted. Indices count from 0, lengths in characters. Null in, null out."""

    __slots__ = ()

    def lower(self) -> Expression:
        """In lower case."""
        return self._call("lower")

    def upper(self) -> Expression:
        """In upper case."""
        return self._call("upper")

    def strip(self) -> Expression:
        """Without white space at both ends."""
        return self._call("strip")

    def length(self) -> Expression:
        """The number of characters of a string, of bytes, or of a list's elements."""
        return self._call("length")

    def contains(self, part: object) -> Expression:
        """Whether the string contains this part."""
        return self._call("contains", part)

    def starts_with(self, part: object) -> Expression:
        """Whether the string begins with this prefix."""
        return self._call("starts_with", part)

    def ends_with(self, part: object) -> Expression:
        """Whether the string ends with this suffix."""
        return self._call("ends_with", part)

    def substring(self, start: object, length: object = None) -> Expression:
        """At most ``length`` characters (``None``: all) from index ``start`` on; a negative start counts from the
        end."""
        return self._call("substring", start) if length is None else self._call("substring", start, length)

    def replace(self, old: object, new: object) -> Expression:
        """Every ``old`` replaced by ``new``."""
        return self._call("replace", old, new)

    def split(self, separator: object) -> Expression:
        """The list of the parts between separators."""
        return self._call("split", separator)

    def split_part(self, separator: object, place: object) -> Expression:
        """One part between separators, counted from 0; null if there are fewer."""
        return self._call("split_part", separator, place)

    def regexp_matches(self, pattern: str) -> Expression:
        """Whether the pattern (a literal, in the syntax of Python's ``re``) is found anywhere in the string."""
        return self._call("regexp_matches", pattern)

    def regexp_extract(self, pattern: str, group: int = 1) -> Expression:
        """The text of a group of the first match (0: the whole match); null without a match."""
        return self._call("regexp_extract", pattern, group)

    def element(self, place: object) -> Expression:
        """An element of a list, counted from 0, from the end if negative; null if out of range."""
        return self._call("element", place)


class TimeMethods(_Methods):
    """Methods of timestamps, and of int64 as milliseconds since 1970. ``zone`` is a name of the IANA database."""

    __slots__ = ()

    def year(self, zone: str = "UTC") -> Expression:
        """The year."""
        return self._call("year", zone)

    def month(self, zone: str = "UTC") -> Expression:
        """The month, 1 to 12."""
        return self._call("month", zone)

    def day(self, zone: str = "UTC") -> Expression:
        """The day of the month, 1 to 31."""
        return self._call("day", zone)

    def weekday(self, zone: str = "UTC") -> Expression:
        """The day of the week, 1 (Monday) to 7."""
        return self._call("weekday", zone)

    def hour(self, zone: str = "UTC") -> Expression:
        """The hour, 0 to 23."""
        return self._call("hour", zone)

    def minute(self, zone: str = "UTC") -> Expression:
        """The minute, 0 to 59."""
        return self._call("minute", zone)

    def second(self, zone: str = "UTC") -> Expression:
        """The second, 0 to 59."""
        return self._call("second", zone)

    def floor_time(self, duration: Duration) -> Expression:
        """The last multiple of a duration since 1970 that is not later (``"5m"``, milliseconds, or a ``timedelta``)."""
        return self._call("floor_time", duration)

    def format_time(self, pattern: str, zone: str = "UTC") -> Expression:
        """As text: ``%Y %m %d %H %M %S %j %u``, ``%L`` (milliseconds), ``%z`` (offset), ``%%``."""
        return self._call("format_time", pattern, zone)


class AggregateMethods(_Methods):
    """Aggregates of a column over the rows of a group. They ignore rows in which the column is null; over no rows the
    result is null (counts: 0, lists and sets: empty)."""

    __slots__ = ()

    def sum(self) -> AggregateExpression:
        """The sum, of the column's type; an int64 that overflows is an error."""
        return self._aggregate("sum")

    def count(self) -> AggregateExpression:
        """How many rows have a value."""
        return self._aggregate("count")

    def count_distinct(self) -> AggregateExpression:
        """The exact number of distinct values."""
        return self._aggregate("count_distinct")

    def min(self) -> AggregateExpression:
        """The least value."""
        return self._aggregate("min")

    def max(self) -> AggregateExpression:
        """The greatest value."""
        return self._aggregate("max")

    def mean(self) -> AggregateExpression:
        """The arithmetic mean, a float64 (of decimals a decimal)."""
        return self._aggregate("mean")

    def variance(self, *, population: bool = False) -> AggregateExpression:
        """The variance of a sample (of one value: null), or of the whole population; a float64."""
        return self._aggregate("variance", *([True] if population else []))

    def std_dev(self, *, population: bool = False) -> AggregateExpression:
        """The root of the variance."""
        return self._aggregate("std_dev", *([True] if population else []))

    def first(self) -> AggregateExpression:
        """The value of the earliest event time."""
        return self._aggregate("first")

    def last(self) -> AggregateExpression:
        """The value of the latest event time."""
        return self._aggregate("last")

    def collect_list(self) -> AggregateExpression:
        """All values, in the order in which they came."""
        return self._aggregate("collect_list")

    def collect_set(self) -> AggregateExpression:
        """The distinct values, sorted."""
        return self._aggregate("collect_set")
