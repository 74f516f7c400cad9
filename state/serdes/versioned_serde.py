"""Serdes whose types changed: old bytes are read by the types that wrote them, and migrated. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from penstock.state.errors import SerdeError
from penstock.state.serdes.serde import MSGPACK, STRING, Serde, SerdeLike, serde_of
from penstock.state.type_parameters import T

_MARK: Final = 0xC1
"""Begins bytes that name their version. No UTF-8 and no MessagePack begins with it, so bytes from before are recognised."""
_LATEST_MAX: Final = 255


def versioned(
    current: SerdeLike[T],
    before: Sequence[tuple[SerdeLike[Any], Callable[[Any], Any]]],
    *,
    name: str | None = None,
) -> Serde[T]:
    """The serde of values whose type changed. ``before``: the older types, the oldest first, each with the function that
    makes a value of the next one. Reads the bytes of all of them, and writes those of ``current`` with its number; a
    store's old values are rewritten as they change.

    The first older type is that of bytes without a number: what the store held before it was versioned. It must be text,
    JSON or MessagePack. Once a version was in use, it stays in the list as long as its bytes may be there.

    ``name``: of the serde, by which a store is compared with what it held, so it must stay the same; without one, that of
    the first older serde. Name it if you rename that class: ``penstock diff`` shows which name is wanted.

    Migrations must follow from the value alone. A migration that raises, and a number that ``before`` does not reach, are
    the store's faults: no policy skips a record for them."""
    latest, older = serde_of(current), [(serde_of(like), migrate) for like, migrate in before]
    if not older or len(older) > _LATEST_MAX:
        raise SerdeError(f"versioned has {len(older)} older types; give one to {_LATEST_MAX}, with their migrations")
    if not _known_by_its_first_byte(older[0][0]):
        raise SerdeError(
            f"bytes of serde {older[0][0].name} may begin like those that have a version; the first older type must be "
            "text, JSON or MessagePack"
        )
    head = bytes((_MARK, len(older)))

    def serialize(value: T) -> bytes:
        return head + latest.serialize(value)

    def deserialize(data: bytes) -> T:
        if data.startswith(head):
            return latest.deserialize(data[2:])
        return _migrated(data)

    def _migrated(data: bytes) -> T:
        version, content = (data[1], data[2:]) if len(data) > 1 and data[0] == _MARK else (0, data)
        if version > len(older):
            raise SerdeError(
                f"version {version} of serde {chosen} is newer than this program's, which has versions up to {len(older)}; "
                "run the newer program, or add its types"
            )
        value: Any = older[version][0].deserialize(content)
        for _, migrate in older[version:]:
            value = migrate(value)
        return value  # type: ignore[no-any-return]  # the last migration makes it

    chosen = name or older[0][0].name
    return Serde(
        chosen,
        serialize,
        deserialize,
        immutable=latest.immutable,
        exact=latest.exact,
        declared=latest.declared,
        writes=latest.writes,
    )


def _known_by_its_first_byte(serde: Serde[Any]) -> bool:
    return serde in (STRING, MSGPACK) or serde.name == "json" or serde.name.startswith(("json:", "msgpack:"))
