"""Records of untyped JSON whose fields are declared all the same, as those are that aggregates and selections make.

Their serde reads any JSON. A projection takes a record only where each field that is needed has its declared type, or is
null: then its columns have the values that the serde reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypedDict

from penstock.state.serdes.serde import JSON, Serde
from penstock.topologies.columnar.json_columns import JsonProjection, Projection
from penstock.topologies.columnar.record_shapes import why_not_projected
from penstock.topologies.expressions.types import DataType
from penstock.topologies.operator_api.required_columns import FieldPath, path_of

_TYPES: dict[str, type] = {"int64": int, "bool": bool, "string": str}
"""Types of which the serde reads what a decoder of the type does."""


class DeclaredRecords(NamedTuple):
    """Records of these fields. ``decode`` reads any JSON."""

    fields: dict[str, type]
    others: tuple[str, ...]
    decode: Callable[[bytes], Any]

    def why_not(self, needed: Iterable[FieldPath]) -> str | None:
        """Why these fields cannot be read apart."""
        paths = sorted(map(path_of, needed))
        wrong = [".".join(path) for path in paths if len(path) > 1 or path[0] not in self.fields]
        if wrong:
            return f"of untyped JSON, {', '.join(wrong)} cannot be read apart"
        return why_not_projected(self._type(), [path[0] for path in paths])

    def projection(self, needed: Sequence[FieldPath]) -> Projection:
        """A reader of some of the fields, which are among these. A record that is not as declared has failed."""
        names = [path_of(field)[0] for field in needed]
        types = {name: self.fields[name] for name in names}

        def decode(data: bytes) -> Any:
            record = self.decode(data)
            for name, tp in types.items():
                if (value := record[name]) is not None and type(value) is not tp:
                    raise TypeError(name)
            return record

        return JsonProjection(self._type(), names, decode)

    def _type(self) -> Any:
        declared: dict[str, Any] = {n: tp | None for n, tp in self.fields.items()} | dict.fromkeys(self.others, Any)
        return TypedDict("Row", declared)  # type: ignore[operator]  # made at run time


def records_of(serde: Serde[Any]) -> DeclaredRecords | None:
    """The records of a serde; ``None``: they are not declared, or not JSON."""
    tp = serde.declared
    if serde.deserialize is not JSON.deserialize or not isinstance(tp, DataType):
        return None
    if tp.kind != "struct" or tp.python is not None:
        return None
    fields = {name: _TYPES[t.kind] for name, t in tp.fields if t.kind in _TYPES}
    return DeclaredRecords(fields, tuple(name for name, t in tp.fields if t.kind not in _TYPES), serde.deserialize)
