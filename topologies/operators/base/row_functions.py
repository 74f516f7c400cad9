"""Row functions over columns: one tight loop, and a slow path that starts at the record that raised.

``list.extend`` keeps what it has appended when its iterator raises, so the length of the result says which row failed;
nothing is computed twice. A function that raises ``StopIteration`` would end the loop silently; it shows as a short
result and counts as an error of that row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Literal

import msgspec

from penstock.state.errors import SerdeError
from penstock.state.serdes.serde import Serde
from penstock.topologies.columnar.column_parts import nulls_of
from penstock.topologies.expressions.row_function import ExpressionFunction
from penstock.topologies.expressions.tracing.traced_function import TracedFunction
from penstock.topologies.operator_api.batch import Batch
from penstock.topologies.operator_api.operator import OperatorContext


def plain_function(fn: Any) -> Any:
    """The function as it is called fastest in a loop."""
    if isinstance(fn, TracedFunction):
        return fn.fn
    return fn.plain if isinstance(fn, ExpressionFunction) else fn


def map_rows(
    ctx: OperatorContext, batch: Batch, fn: Callable[..., Any], *columns: Iterable[Any]
) -> tuple[list[Any], Batch]:
    """``fn`` of each row of the columns, and the batch of the rows that succeeded (the same object when all did).

    A row whose function raises goes to ``ctx.failed``, which raises or lets it be skipped.
    """
    out: list[Any] = []
    fn = plain_function(fn)
    try:
        out.extend(map(fn, *columns))
    except Exception as exc:
        return _past_failures(ctx, batch, fn, columns, out, exc)
    if len(out) == len(batch):
        return out, batch
    return _past_failures(ctx, batch, fn, columns, out, RuntimeError("the function raised StopIteration"))


def without_nulls(ctx: OperatorContext, batch: Batch, column: Literal["key", "value"]) -> Batch:
    """The batch without the rows whose key, or value, is null, which are counted as ``null_key`` or ``null_value``."""
    whole = batch.key_column if column == "key" else batch.value_column
    if whole is not None:
        nulls = nulls_of(whole)
        if nulls is None:
            return batch
        ctx.dropped(f"null_{column}", int(nulls.sum()))
        return batch.where(~nulls)
    looked = batch.keys if column == "key" else batch.values
    if None not in looked:
        return batch
    mask = [x is not None for x in looked]
    ctx.dropped(f"null_{column}", len(mask) - sum(mask))
    return batch.where(mask)


def serialize_keys(ctx: OperatorContext, batch: Batch, serde: Serde[Any]) -> tuple[list[Any], Batch]:
    """The keys as bytes (nulls kept), and the batch of the rows whose key could be written."""
    try:
        return serde.serialize_all(batch.keys), batch
    except SerdeError:  # raised again below, at its row
        write = serde.serialize

    def named(key: Any) -> bytes | None:
        try:
            return None if key is None else write(key)
        except Exception as exc:
            raise TypeError(
                f"serde {serde.name} cannot write the key {key!r:.100} ({exc}); give it its own serde"
            ) from exc

    return map_rows(ctx, batch, named, batch.keys)


def _past_failures(
    ctx: OperatorContext,
    batch: Batch,
    fn: Callable[..., Any],
    columns: tuple[Iterable[Any], ...],
    out: list[Any],
    error: Exception,
) -> tuple[list[Any], Batch]:
    rows = list(zip(*columns, strict=True))
    kept = list(range(len(out)))
    failed = len(out)
    ctx.failed(batch, failed, error)
    for i in range(failed + 1, len(rows)):
        try:
            out.append(fn(*rows[i]))
        except Exception as exc:
            ctx.failed(batch, i, exc)
        else:
            kept.append(i)
    return out, batch.pick(kept)


def decode_column(
    ctx: OperatorContext, batch: Batch, serde: Serde[Any], column: list[bytes | None], what: str
) -> tuple[list[Any], Batch]:
    """The decoded column (nulls kept), and the batch of the rows that could be decoded."""
    if serde.lists is not None and (whole := serde.lists.read(column)) is not None:
        return whole, batch
    decode = serde.deserialize
    out: list[Any] = []
    if _refuses_null(decode):  # so that the search for nulls can be skipped
        with suppress(Exception):
            out.extend(map(decode, column))  # type: ignore[arg-type]  # a null raises
            if len(out) == len(column):
                return out, batch
        out.clear()
    fn: Callable[[Any], Any] = decode
    if None in column:

        def fn(data: bytes | None) -> Any:
            return None if data is None else decode(data)

    try:
        out.extend(map(fn, column))
        if len(out) == len(column):
            return out, batch
    except Exception:  # the slow path below raises it again, at its row
        out.clear()

    def named(data: bytes | None) -> Any:
        try:
            return fn(data)
        except Exception as exc:
            raise unreadable(serde, what, data, exc) from exc

    return map_rows(ctx, batch, named, column)


def _refuses_null(decode: Callable[[bytes], Any]) -> bool:
    """Whether the function is known to raise for ``None``; other functions might accept it."""
    return decode is bytes.decode or type(getattr(decode, "__self__", None)) is msgspec.json.Decoder


def unreadable(serde: Serde[Any], what: str, data: bytes | None, error: Exception) -> SerdeError:
    """The error to raise or report for bytes that a serde cannot read."""
    return SerdeError(f"serde {serde.name} cannot read the {what} {data!r:.200} ({type(error).__name__}: {error})")
