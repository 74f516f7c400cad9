"""Leaves of expressions: the inputs that they read of a record."""

from __future__ import annotations

from penstock.topologies.expressions.tree import Expression, Field, Input

Path = tuple[str, ...]
Leaf = tuple[str, str | Path | None]
"""An input read from a record: a field of the value, by its path where it is a field of a field, a field of the key, or the
value, key or timestamp."""


def leaf_of(e: Expression) -> Leaf | None:
    """The input that a node is; ``None``: it is more than that."""
    if isinstance(e, Input):
        return e.which, None
    path: list[str] = []
    while isinstance(e, Field):
        path.append(e.name)
        e = e.of
    if not path or not isinstance(e, Input) or e.which not in ("value", "key"):
        return None
    if e.which == "key":
        return ("key", path[0]) if len(path) == 1 else None
    return "value", path[0] if len(path) == 1 else tuple(reversed(path))


def leaves_of(e: Expression) -> tuple[Leaf, ...]:
    """The inputs of the expression, each once, in order of appearance."""
    leaf = leaf_of(e)
    if leaf is not None:
        return (leaf,)
    return tuple(dict.fromkeys(leaf for child in e.children() for leaf in leaves_of(child)))
