"""Records of the test driver: between users' objects and the bytes of the log."""

from __future__ import annotations

from typing import Any

from penstock.state.errors import SerdeError
from penstock.state.log import Record
from penstock.state.serdes.serde import Serde, taking_dicts
from penstock.streams.task.output import Output


def records_of(output: Output) -> list[Record]:
    """The records of an output, as bytes."""
    headers = output.headers if output.headers is not None else [()] * len(output.keys)
    return [Record(*row) for row in zip(output.keys, output.values, output.timestamps, headers, strict=True)]


def written(serde: Serde[Any], value: Any, where: str) -> bytes | None:
    """A key or value as bytes. Raises ``SerdeError`` that names ``where``."""
    if value is None:
        return None
    try:
        return taking_dicts(serde).serialize(value)
    except Exception as exc:
        raise SerdeError(
            f"{where}: serde {serde.name} cannot write {type(value).__name__} {value!r:.100}: {exc}; pipe what the source "
            "reads, or give the source the serde of this type"
        ) from exc


def read(serde: Serde[Any], data: bytes | None, where: str) -> Any:
    """The key or value of these bytes. Raises ``SerdeError`` that names ``where``."""
    if data is None:
        return None
    try:
        return serde.deserialize(data)
    except Exception as exc:
        raise SerdeError(
            f"{where}: serde {serde.name} cannot read {data!r:.100}: {exc}; give the sink the serde of what is written to "
            "it, or look at the bytes with read_raw"
        ) from exc
