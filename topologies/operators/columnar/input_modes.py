"""Input modes of joins, aggregations and sinks, for the planner (``OperatorSpec.input_mode``)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from penstock.state.serdes.change_serde import RowChangeSerde
from penstock.state.serdes.serde import FLOAT, PRESENCE, Serde
from penstock.topologies.aggregators.base import Part
from penstock.topologies.columnar.avro_writing import writes_avro
from penstock.topologies.columnar.encoded_columns import SAME_BYTES
from penstock.topologies.columnar.json_writing import encoder_of
from penstock.topologies.operator_api.required_columns import ALL_AS_ROWS, InputMode, RequiredColumns
from penstock.topologies.operators.base.foreign_key_messages import are_messages
from penstock.topologies.operators.columnar.folding import why_not
from penstock.topologies.operators.columnar.join import reading_row_alone
from penstock.topologies.operators.columnar.join_fields import sides_of
from penstock.topologies.operators.columnar.stateless import PYTHON, expression_of, reads

_KEY = RequiredColumns(key=True)
READY = "its ready aggregates read values one by one; those of expressions, col('x').sum(), do not"
"""Why a ready aggregate takes rows."""


def join_mode(joiner: Callable[[Any, Any], Any], key_fn: Callable[[Any, Any], Any] | None) -> InputMode:
    """A stream–table join. ``key_fn``: what finds rows, else they are those of the record's key. The values of records that
    meet no row are not needed."""
    needs = _KEY
    if key_fn is not None:
        read = reads(key_fn)
        if isinstance(read, str):
            return InputMode(ALL_AS_ROWS, read)
        needs |= read
    if reading_row_alone(expression_of(joiner)) is not None:
        return InputMode(needs)
    sides = sides_of(expression_of(joiner))
    if sides is not None:
        return InputMode(needs | RequiredColumns(fields=sides.read))
    return InputMode(
        dataclasses.replace(needs, value=True), "it joins the values of those that have met a row one by one"
    )


def counting_mode(late: RequiredColumns | None, *, why_rows: str | None, sums: bool = False) -> InputMode:
    """An aggregation. ``late``: what is needed of late records. ``sums``: it adds up values."""
    if why_rows is not None:
        return InputMode(ALL_AS_ROWS, why_rows)
    needs = dataclasses.replace(_KEY, value=True) if sums else _KEY
    return InputMode(needs if late is None else needs | late.later())


def folding_mode(parts: Sequence[Part], late: RequiredColumns | None) -> InputMode:
    """An aggregation of aggregate expressions."""
    needs = _KEY if late is None else _KEY | late.later()
    for part in parts:
        read = why_not(part) or (reads(part.of) if part.of is not None else RequiredColumns())
        if isinstance(read, str):
            return InputMode(ALL_AS_ROWS, read)
        needs |= read
    return InputMode(needs)


def why_rows(*, counts: bool, sends_olds: bool, ready: bool) -> str | None:
    """The reason why an aggregation takes rows. ``ready``: it folds a ready aggregate."""
    if not counts:
        return READY if ready else PYTHON
    return "a later operator needs its old values" if sends_olds else None


def writing_mode(key: Serde[Any], value: Serde[Any], *, by_key: bool) -> InputMode:
    """A sink. ``by_key``: its topic and partitions follow from the key alone."""
    if are_messages(value):
        return InputMode(RequiredColumns(key=True, value=True))
    if not by_key:
        return InputMode(ALL_AS_ROWS, "partitions, or topics, follow from whole records")
    if value == PRESENCE:
        return InputMode(_KEY)
    if isinstance(value, RowChangeSerde) and (value.rows in (*SAME_BYTES, FLOAT) or encoder_of(value.rows) is not None):
        return InputMode(RequiredColumns(key=True, value=True))
    if value in (*SAME_BYTES, FLOAT):
        return InputMode(RequiredColumns(key=True, value=True))
    if encoder_of(value) is not None or writes_avro(value):
        return InputMode(RequiredColumns(key=True, value=True))
    return InputMode(ALL_AS_ROWS, f"it writes values with the serde {value.name}")
