"""The event times that operators keep, as in a commit's metadata: by operator, and by operator and input port."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from penstock.topologies.operator_api.operator import NO_TIME, Operator


def saved_times(names: Sequence[str], operators: Sequence[Operator]) -> dict[str, int]:
    """The times to commit, without operators that have seen no time yet."""
    saved = {name: op.stream_time_ms for name, op in zip(names, operators, strict=True) if op.stream_time_ms != NO_TIME}
    for name, op in zip(names, operators, strict=True):
        saved |= {f"{name}:{port}": ms for port, ms in (op.input_times_ms or {}).items()}
    return saved


def restore_times(name: str, operator: Operator, ports: Iterable[str], saved: Mapping[str, int]) -> None:
    """Restore an operator's committed times."""
    operator.stream_time_ms = saved.get(name, NO_TIME)
    if operator.input_times_ms is not None:
        operator.input_times_ms.update({p: saved[k] for p in ports if (k := f"{name}:{p}") in saved})
