"""Type parameters of the public classes, for type checkers alone.

Each defaults to ``Any``: ``KStream`` alone means ``KStream[Any, Any]``, and if no argument determines a method's result
type (an expression without ``value=``, a serde's name), it is ``Any``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # a stub that every checker ships

    T = TypeVar("T", default=Any)
    K = TypeVar("K", default=Any)
    V = TypeVar("V", default=Any)
    V2 = TypeVar("V2", default=Any)
    K2 = TypeVar("K2", default=Any)
    KR = TypeVar("KR", default=Any)
    VR = TypeVar("VR", default=Any)
    A = TypeVar("A", default=Any)
    VIn = TypeVar("VIn", default=Any)
    KIn = TypeVar("KIn", default=Any)
    KOut = TypeVar("KOut", default=Any)
    VOut = TypeVar("VOut", default=Any)
    S = TypeVar("S", default=Any)
    KDefault = TypeVar("KDefault", default=Any)
    VDefault = TypeVar("VDefault", default=Any)
else:
    from typing import TypeVar

    T, K, V, V2, K2, KR, VR, A, S = (TypeVar(name) for name in ("T", "K", "V", "V2", "K2", "KR", "VR", "A", "S"))
    KIn, VIn, KOut, VOut = (TypeVar(name) for name in ("KIn", "VIn", "KOut", "VOut"))
    KDefault, VDefault = TypeVar("KDefault"), TypeVar("VDefault")

__all__ = ["A", "K", "K2", "KDefault", "KIn", "KOut", "KR", "S", "T", "V", "V2", "VDefault", "VIn", "VOut", "VR"]
"""``K``, ``V``: key and value; ``K2``, ``V2``: those of another stream or table; ``KR``, ``VR``: those of a result;
``A``: an aggregate; ``S``: a store as processors use it; ``KIn`` … ``VOut``: what a processor takes and forwards;
``KDefault``, ``VDefault``: a builder's, for topics that name no serde."""
