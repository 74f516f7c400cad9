"""How an ``async`` function is called for each record: how many at a time, how long, and in which order."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterable, Awaitable, Callable
from typing import Any, Literal, ParamSpec, TypeVar, cast, overload

from penstock.state.errors import TopologyError
from penstock.topologies.windows.durations import Duration, duration_ms

P = ParamSpec("P")
T = TypeVar("T")
CallOrder = Literal["key", "none"]


@dataclasses.dataclass(frozen=True)
class Awaiting:
    """An ``async`` function with its options: see ``awaiting``. A plain call returns the awaitable."""

    fn: Callable[..., Any]
    concurrency: int = 16
    timeout_ms: int = 10_000
    order: CallOrder = "key"

    def __call__(self, *row: Any) -> Any:
        return self.fn(*row)


@overload
def awaiting(
    fn: Callable[P, Awaitable[T]], *, concurrency: int = 16, timeout: Duration = "10s", order: CallOrder = "key"
) -> Callable[P, T]: ...


@overload
def awaiting(
    fn: Callable[P, AsyncIterable[T]], *, concurrency: int = 16, timeout: Duration = "10s", order: CallOrder = "key"
) -> Callable[P, list[T]]: ...


def awaiting(
    fn: Callable[P, Any], *, concurrency: int = 16, timeout: Duration = "10s", order: CallOrder = "key"
) -> Callable[P, Any]:
    """Return an ``async`` function for ``map_values``, ``filter``, ``flat_map``, ``peek`` or ``foreach``, with options::

        orders.map_values(ps.awaiting(price, concurrency=50, timeout="2s"), value=Price)

    At most ``concurrency`` calls run at a time, each for at most ``timeout``. ``order="key"``: calls for records of one
    key follow each other; ``"none"``: they may overlap. Results keep the records' order in both. An ``async`` function
    that is given as it is has the defaults. Type checkers see a function of what is awaited."""
    if concurrency < 1 or duration_ms(timeout) < 1 or order not in ("key", "none"):
        raise TopologyError(
            f"awaiting(…, concurrency={concurrency}, timeout={timeout!r}, order={order!r}): give at least 1 of both, and "
            "the order 'key' or 'none'"
        )
    return cast(Callable[P, Any], Awaiting(fn, concurrency, duration_ms(timeout), order))
