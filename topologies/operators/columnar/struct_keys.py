"""Keys that are structs, as JSON of a known form: their texts are passed on and grouped without being read.

A struct of fields of texts, whole numbers and truth values is written in one way only, so texts that have its form are what
the serde writes of what it reads of them.
"""

from __future__ import annotations

from typing import Any

import orjson

from penstock.state.native import compiled
from penstock.state.serdes.serde import Serde
from penstock.topologies.columnar.encoded_columns import WrittenColumn
from penstock.topologies.columnar.kernels import Coder
from penstock.topologies.columnar.record_shapes import FormPart
from penstock.topologies.expressions.types import DataType
from penstock.topologies.operator_api.columns import BytesColumn

_KINDS = {"int64": "int", "string": "str", "bool": "bool"}


class StructKeys:
    """Columns of keys of one serde; see ``struct_keys``."""

    def __init__(self, serde: Serde[Any], form: Any) -> None:
        self._serde = serde
        self._form = form
        self._coder = Coder()

    def of(self, texts: BytesColumn) -> WrittenColumn | None:
        """The keys; nulls stay null. ``None``: one has not the form of its type."""
        if self._form.others(*texts.raw()) is not None:
            return None
        return WrittenColumn(texts, self._serde, self._coder)


def struct_keys(serde: Serde[Any]) -> StructKeys | None:
    """For structs that expressions make; ``None`` for all else, and without the compiled part."""
    make, declared = getattr(compiled(), "JsonForm", None), serde.declared
    if make is None or serde.serialize is not orjson.dumps or serde.deserialize is not orjson.loads:
        return None
    if not isinstance(declared, DataType) or declared.kind != "struct" or not declared.fields:
        return None
    form: list[FormPart] = []
    for name, tp in declared.fields:
        kind = _KINDS.get(tp.kind)
        if kind is None:
            return None
        form.append(FormPart((b"," if form else b"{") + orjson.dumps(name) + b":", kind, tp.nullable))
    return StructKeys(serde, make(form))
