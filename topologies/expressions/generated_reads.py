"""How generated functions read a row's inputs and columns, and check them against their declared types."""

from __future__ import annotations

from penstock.topologies.expressions.python_source import PythonSource
from penstock.topologies.expressions.readers import EXACT, KIND_OF, member, plain, reader
from penstock.topologies.expressions.types import DataType

INT64_TEST = "-9223372036854775808 <= {0} <= 9223372036854775807"
"""Whether an int fits into 64 bits."""


class Reads:
    """Writes reads into a function. ``value`` holds the record's value, or the left side of a join."""

    def __init__(self, source: PythonSource) -> None:
        self._source = source
        self._value: DataType | None = None
        """The type of the value, once it is read."""

    def start(self, again: str) -> list[str]:
        """The function's first lines: what the rest relies on. ``again``: leaves the row to the reference."""
        if self._value is None:
            return []
        kind = _class_of(self._value)
        test = "value is None" if kind is None else f"type(value) is not {self._source.bound(kind)}"
        return [f"if {test}: {again}"]

    def value(self, tp: DataType) -> str:
        """The value as it comes, not null; of its declared class, if it is a struct."""
        self._value = tp
        self._source.never_null.add("value")
        return "value"

    def copied(self, name: str, tp: DataType, what: str) -> str:
        """An input as expressions compute with it."""
        if name == "value" and _class_of(tp) is not None:
            return name
        made = self._source.variable()
        self._source.line(f"{made} = {name}")
        self.check(made, tp if name == "value" else tp.or_null(), what)
        if name == "value":
            self._source.never_null.add(made)
        return made

    def field(self, owner: str, of: DataType, name: str, tp: DataType, what: str) -> str:
        """A field of what a variable holds; null where that is null."""
        source = self._source
        key = ("field", owner, name, tp)
        if (known := source.known(key)) is not None:
            return known
        made = source.variable()
        if owner in source.never_null:
            source.line(f"{made} = {self._read(owner, of, name)}")
            self.check(made, tp, what)
        else:
            source.line(f"if {owner} is None: {made} = None")
            source.line("else:")
            with source.block():
                source.line(f"{made} = {self._read(owner, of, name)}")
                self.check(made, tp, what)
            source.never_null.discard(made)
        return source.remember(key, made)

    def _read(self, owner: str, of: DataType, name: str) -> str:
        source, kind = self._source, _class_of(of)
        sure = owner == "value" and kind is not None
        is_object = of.python is not None
        found = source.attribute(owner, name) if is_object else f"{owner}.get({source.bound(name)})"
        if sure:
            return found
        expected = source.bound(of.python or dict)
        return f"{found} if type({owner}) is {expected} else {source.bound(member)}({owner}, {source.bound(name)})"

    def check(self, name: str, tp: DataType, what: str) -> None:
        """Convert the variable to its type, unless it has it."""
        source = self._source
        if tp.kind == "unknown":
            source.line(f"if type({name}) not in {source.bound(KIND_OF)}: {name} = {source.bound(plain)}({name})")
            return
        if tp.kind in ("int64", "timestamp"):
            test = f"type({name}) is not int or not {INT64_TEST.format(name)}"
        elif tp.kind == "null":
            test = f"{name} is not None"
        else:
            kind = EXACT.get(tp.kind) or (list if tp.kind == "list" else tp.python or dict)
            test = f"type({name}) is not {source.bound(kind)}"
        if tp.nullable and tp.kind != "null":
            test = f"{name} is not None and ({test})"
        source.line(f"if {test}: {name} = {source.bound(reader(tp, what))}({name})")
        if not tp.nullable:
            source.never_null.add(name)


def _class_of(tp: DataType) -> type | None:
    """The class that a struct's values are expected to have."""
    return (tp.python or dict) if tp.kind == "struct" else None
