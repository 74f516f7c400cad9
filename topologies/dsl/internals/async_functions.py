"""Operators of ``async`` functions. Each awaits a function per record, as a lookup does, and journals what came back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from penstock.state.errors import TopologyError
from penstock.state.serdes.serde import JSON, Serde
from penstock.topologies.dsl.awaiting import Awaiting
from penstock.topologies.dsl.wiring import Flow
from penstock.topologies.functions import is_async, is_async_generator
from penstock.topologies.operator_api.operator import ExternalCall
from penstock.topologies.operators.records.async_calls import AnswerUse, AsyncCallSpec


def awaited(fn: Any) -> Awaiting | None:
    """The function with its options, if it is one to await."""
    if isinstance(fn, Awaiting):
        return fn
    return Awaiting(fn) if is_async(fn) else None


def called(
    flow: Flow,
    kind: str,
    name: str | None,
    form: AnswerUse,
    how: Awaiting,
    *,
    with_key: bool = True,
    key: Any = None,
    value: Any = None,
) -> Flow:
    """Add the operator. ``with_key``: the function takes ``(key, value)``, else the value alone."""
    name = flow.wiring.name(flow, kind, name)
    if not is_async(how.fn):
        raise TopologyError(f"operator {name!r}: {how.fn!r:.100} is not async; give it without awaiting(…)")
    several = form in ("flat_map", "flat_map_values")
    if is_async_generator(how.fn) and not several:
        raise TopologyError(
            f"operator {name!r}: {how.fn!r:.100} yields many results, and one is wanted here; use flat_map"
        )
    behind = flow.behind(name, key=key, value=value, rekeyed=form == "flat_map")
    call = ExternalCall(
        fn=_answer_of(form, how.fn, with_key),
        serde=_serde_of_answers(form, behind, name),
        concurrency=how.concurrency,
        timeout_s=how.timeout_ms / 1000,
        ordered_by_key=how.order == "key",
    )
    flow.wiring.add(name, AsyncCallSpec(call=call, form=form), flow)
    return behind


def _answer_of(form: AnswerUse, fn: Callable[..., Any], with_key: bool) -> Callable[[Any, Any], Awaitable[Any]]:
    """``(key, value)`` to what is journaled."""
    collects = is_async_generator(fn)

    async def answer(key: Any, value: Any) -> Any:
        row = (key, value) if with_key else (value,)
        if collects:
            return [child async for child in fn(*row)]
        found = await fn(*row)
        if form in ("keep", "drop"):
            return bool(found)
        if form == "effect":
            return None
        return list(found) if form in ("flat_map", "flat_map_values") else found

    return answer


def _serde_of_answers(form: AnswerUse, behind: Flow, name: str) -> Serde[Any]:
    if form in ("keep", "drop", "effect"):
        return JSON
    if form == "values":
        return behind.value
    return _serde_of_children(behind.key if form == "flat_map" else None, behind.value)


def _serde_of_children(key: Serde[Any] | None, value: Serde[Any]) -> Serde[Any]:
    """The serde of a list of values, or with ``key`` of a list of pairs: each by its serde, nulls kept."""

    def parts(child: Any) -> list[bytes | None]:
        if key is None:
            return [_written(value, child)]
        if not isinstance(child, (tuple, list)) or len(child) != 2:
            raise TypeError(f"the function must give (key, value) pairs, not {child!r:.100}")
        return [_written(key, child[0]), _written(value, child[1])]

    def write(children: list[Any]) -> bytes:
        return msgspec.msgpack.encode([parts(child) for child in children])

    def read(data: bytes) -> list[Any]:
        rows = msgspec.msgpack.decode(data, type=list[list[bytes | None]])
        if key is None:
            return [_read(value, v) for (v,) in rows]
        return [(_read(key, k), _read(value, v)) for k, v in rows]

    of = value.name if key is None else f"{key.name}, {value.name}"
    return Serde(f"list of {of}", write, read)


def _written(serde: Serde[Any], value: Any) -> bytes | None:
    return None if value is None else serde.serialize(value)


def _read(serde: Serde[Any], data: bytes | None) -> Any:
    return None if data is None else serde.deserialize(data)
