"""Serdes for topics of text: lines and CSV. Recipes for other formats are in ``penstock.topologies.examples``.

One record holds one row. Rows are dicts by column. Text that cannot be read is a ``SerdeError``, and so is a value that
would not survive a round trip; the topic's policy decides what happens.

A column's type is ``str``, ``int``, ``float``, ``bool`` (``true`` or ``false``), ``Decimal``, or any function of the
text; ``str`` writes what such a function returned. The text ``null`` means null in columns of any type (``None``: no
text does).
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from penstock.state.errors import SerdeError
from penstock.state.serdes.serde import Serde

ColumnTypes: TypeAlias = "Mapping[str, Callable[[str], Any]] | Sequence[str]"
"""Columns in order: names with types, or names alone, all of type ``str``."""

_BREAKS: Final = ("\n", "\r")
_SIMPLE_CHARS: Final = 100_000
"""The CSV reader refuses longer fields."""


def _text(data: bytes, name: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as exc:
        raise SerdeError(f"serde {name}: {data!r:.100} is not UTF-8 ({exc.reason} at byte {exc.start})") from exc


def _without_end(text: str) -> str:
    """The text without its line end, if it has one."""
    return text[:-2] if text.endswith("\r\n") else text[:-1] if text.endswith("\n") else text


def _one_line(text: str, name: str) -> str:
    if any(b in text for b in _BREAKS):
        raise SerdeError(f"serde {name}: {text!r:.100} has more than one line; write one line per record")
    return text


def _write_line(line: str) -> bytes:
    return _one_line(line, "text-line").encode()


def _read_line(data: bytes) -> str:
    return _one_line(_without_end(_text(data, "text-line")), "text-line")


TEXT_LINE: Serde[str] = Serde("text-line", _write_line, _read_line, immutable=True, exact=str)
"""One line of text, without its line end."""


def _bool(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(f"{text!r:.40} is neither 'true' nor 'false'")
    return text == "true"


def _as_text(value: Any) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


class _RowText:
    """Converts between the texts of a row and its values."""

    def __init__(self, name: str, columns: ColumnTypes, null: str | None) -> None:
        types = dict(columns) if isinstance(columns, Mapping) else dict.fromkeys(columns, str)
        if not types or (not isinstance(columns, Mapping) and len(types) < len(columns)):
            raise SerdeError(f"serde {name}: columns {list(columns)}; name at least one, and each only once")
        for column, kind in types.items():
            if not callable(kind):
                raise SerdeError(
                    f"serde {name}: the type of column {column!r} is {kind!r:.60}; give a type or a function"
                )
        self.name = name
        self.columns = tuple(types)
        self.declared: dict[str, Any] = {
            c: (t if null is None else t | None) if isinstance(t, type) else Any for c, t in types.items()
        }
        self._readers: dict[str, Callable[[str], Any]] = {c: _bool if t is bool else t for c, t in types.items()}
        self._null = null
        # a number's text is never the text of null
        self._plain_numbers = null is None or not null.lstrip("-").isdigit()

    def read(self, texts: Sequence[str], columns: Sequence[str] | None = None) -> dict[str, Any]:
        """Build a row from texts in the order of ``columns``."""
        if columns is None and len(texts) == len(self._readers):
            null = self._null
            try:
                return {c: None if t == null else r(t) for (c, r), t in zip(self._readers.items(), texts, strict=True)}
            except Exception:  # the loop below names the column
                pass
        columns = self.columns if columns is None else columns
        if len(texts) != len(columns):
            raise SerdeError(
                f"serde {self.name}: {len(texts)} fields {list(texts)!r:.100}, but {len(columns)} columns: "
                f"{', '.join(columns)}"
            )
        return {c: self._value(c, t) for c, t in zip(columns, texts, strict=True)}

    def _value(self, column: str, text: str) -> Any:
        if text == self._null:
            return None
        try:
            return self._readers[column](text)
        except Exception as exc:
            raise SerdeError(f"serde {self.name}: column {column!r} cannot be {text!r:.60}: {exc}") from exc

    def write(self, row: Any) -> list[str]:
        """The texts of a row, in the order of the columns."""
        if not isinstance(row, Mapping) or set(row) != set(self.columns):
            raise SerdeError(
                f"serde {self.name} cannot write {row!r:.100}; give a dict with the keys {', '.join(self.columns)}"
            )
        return [self._written(c, row[c]) for c in self.columns]

    def numbers(self, row: Any) -> list[str] | None:
        """The result of ``write`` for a row of integers only, else ``None``."""
        if type(row) is not dict or not self._plain_numbers or len(row) != len(self.columns):
            return None
        try:
            values = [row[c] for c in self.columns]
        except KeyError:
            return None
        return list(map(str, values)) if set(map(type, values)) == {int} else None

    def _written(self, column: str, value: Any) -> str:
        text = self._null if value is None else _as_text(value)
        if text is None or (value is not None and text == self._null):
            raise SerdeError(
                f"serde {self.name}: {value!r} in column {column!r} cannot be distinguished from "
                f"{'any text' if text is None else 'no value'}; name another text for null=…"
            )
        return text


def _is_simple(text: str, quote: str) -> bool:
    """Whether a line is its fields joined by delimiters, without quotes."""
    return 0 < len(text) < _SIMPLE_CHARS and not any(mark in text for mark in (quote, *_BREAKS, "\0"))


def csv_row(
    columns: ColumnTypes, *, delimiter: str = ",", quote: str = '"', null: str | None = "", header: bool = False
) -> Serde[dict[str, Any]]:
    """A serde of CSV rows. Quotes fields where needed and doubles quotes inside quotes. ``header``: each record begins
    with a line that names the columns, in any order. Raises ``SerdeError`` for invalid columns, delimiter or quote."""
    row = _RowText("csv", columns, null)
    if len(delimiter) != 1 or len(quote) != 1 or delimiter == quote or delimiter in _BREAKS or quote in _BREAKS:
        raise SerdeError(f"serde csv: delimiter {delimiter!r} and quote {quote!r} must be two different characters")

    def line(texts: Sequence[str]) -> str:
        out = io.StringIO(newline="")
        # fields with either character of this line end are quoted, since readers take each for a line end
        csv.writer(out, delimiter=delimiter, quotechar=quote, lineterminator="\r\n", strict=True).writerow(texts)
        return _without_end(out.getvalue())

    joins_numbers = not header and delimiter not in "0123456789-" and quote not in "0123456789-"

    def serialize(value: dict[str, Any]) -> bytes:
        if joins_numbers and (texts := row.numbers(value)) is not None:
            return delimiter.join(texts).encode()
        lines = [row.columns, row.write(value)] if header else [row.write(value)]
        return "\n".join(map(line, lines)).encode()

    def deserialize(data: bytes) -> dict[str, Any]:
        text = _text(data, "csv")
        if not header and _is_simple(text, quote):
            return row.read(text.split(delimiter))  # splits as the reader would, but faster
        try:
            reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, quotechar=quote, strict=True)
            rows = list(reader)
        except csv.Error as exc:
            raise SerdeError(f"serde csv cannot read {text!r:.100}: {exc}") from exc
        if len(rows) != 1 + header:
            raise SerdeError(
                f"serde csv: {text!r:.100} holds {len(rows)} rows; it must hold {1 + header}, one record per row"
                f"{' with its header' if header else ''}"
            )
        if not header:
            return row.read(rows[0] or [""])
        if sorted(rows[0]) != sorted(row.columns):
            raise SerdeError(f"serde csv: the header is {rows[0]}, but the columns are {list(row.columns)}")
        return row.read(rows[1] or [""], rows[0])

    return Serde(f"csv({delimiter.join(row.columns)})", serialize, deserialize, declared=row.declared)
