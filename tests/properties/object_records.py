"""Records that hold objects, most of them laid out alike and some of them damaged at any depth."""

from __future__ import annotations

import dataclasses
import json
import random
from typing import Any, TypedDict

import msgspec
from msgspec import inspect

from tests.properties.json_records import INTERESTING, anything, damaged, integer, number, text


class Leaf(msgspec.Struct, frozen=True):
    s: str
    i: int
    f: float = -0.0
    b: bool | None = None


class Middle(msgspec.Struct, frozen=True, rename={"leaf": "le af", "n": "ä"}):
    leaf: Leaf | None = None
    n: int | None = None
    other: Leaf | None = None


class Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    i: int
    leaf: Leaf


class Event(msgspec.Struct, frozen=True, omit_defaults=True):
    kind: int
    leaf: Leaf | None = None
    middle: Middle | None = None
    strict: Strict | None = None
    s: str = "default"


class Whole(msgspec.Struct, frozen=True):
    middle: Middle
    kind: int
    leaf: Leaf


@dataclasses.dataclass
class Written:
    leaf: Leaf
    inner: Strict | None = None
    kind: int = 7


class RowLeaf(TypedDict):
    s: str | None
    f: float


class Row(TypedDict):
    kind: int
    leaf: RowLeaf
    maybe: RowLeaf | None


def plain_value(rng: random.Random, tp: inspect.Type) -> str:
    """JSON of a value that mostly fits the type of a field that holds no object."""
    tame = rng.random() < 0.9
    if isinstance(tp, inspect.StrType):
        return json.dumps(rng.choice(("view", "click", "")) if tame else text(rng), ensure_ascii=rng.random() < 0.5)
    if isinstance(tp, inspect.IntType):
        return str(rng.randrange(-3, 6) if tame else integer(rng))
    if isinstance(tp, inspect.FloatType):
        return json.dumps(round(rng.uniform(-10, 10), 2) if tame else number(rng))
    return rng.choice(("true", "false"))


def value_of(rng: random.Random, tp: inspect.Type, hostility: float) -> str:
    """JSON of a value that mostly fits the type."""
    parts = tp.types if isinstance(tp, inspect.UnionType) else (tp,)
    if rng.random() < hostility:
        return rng.choice((rng.choice(INTERESTING), json.dumps(anything(rng)), "null", "{}", '"{}"', "[{}]"))
    if len(parts) > 1 and rng.random() < 0.25:
        return "null"
    tp = next(p for p in parts if not isinstance(p, inspect.NoneType))
    return plain_value(rng, tp) if not hasattr(tp, "fields") else object_of(rng, tp, hostility)


def object_of(rng: random.Random, tp: Any, hostility: float) -> str:
    """JSON of an object that is mostly of the type."""
    fields = list(tp.fields)
    if rng.random() < 0.05:
        rng.shuffle(fields)
    colon, comma = rng.choice(((":", ","), (":", ","), (" : ", " ,\n")))
    members = []
    for field in fields:
        if rng.random() < (0.01 if field.required else 0.3):
            continue
        members.append(json.dumps(field.encode_name, ensure_ascii=False) + colon + value_of(rng, field.type, hostility))
        if rng.random() < hostility:
            members.append(
                rng.choice((f'"x"{colon}{json.dumps(anything(rng))}', members[-1], '"\\u0073":"s"', '"leaf":null'))
            )
    return "{" + comma.join(members) + "}"


def record_of(rng: random.Random, tp: Any, hostility: float) -> bytes | None:
    """A record of the type, or something near it."""
    whole = object_of(rng, inspect.type_info(tp), hostility).encode("utf-8", "surrogatepass")
    return damaged(rng, whole) if rng.random() < 10 * hostility else whole
