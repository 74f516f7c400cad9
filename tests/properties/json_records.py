"""Batches of JSON records, most of them laid out alike and some of them damaged, for what reads them fast.

Made of a seeded random, because so many small choices cost Hypothesis a hundred times more.
"""

from __future__ import annotations

import json
import random
from typing import Any

INTERESTING = [
    *(
        "-0",
        "-0.0",
        "0e5",
        "-0e-5",
        "1e22",
        "1e23",
        "1.5E+3",
        "1e99",
        "1e-99",
        "1e400",
        "1e-400",
        "5e-324",
        "1.e5",
        ".5",
    ),
    *("1844674407370955.1617", "0.18446744073709551617", '"\x1f"', '"a long text with a control character \x1f in it"'),
    *("01", "-", "+1", "1.0", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "9" * 30),
    *(
        "123456789012345678",
        "1234567890123456789",
        "0.1234567890123456789",
        "0.000012345678901234567890123",
        "9007199254740993",
    ),
    *('"\\u0041"', '"\\ud800"', '"\\ud83d\\ude00"', '"\\n"', '"\\x"', '"\\u00"', '"tab\there"', '"\x7f"', '"é😀"', '"'),
    *(
        "nul",
        "nulls",
        "tru",
        "TRUE",
        "NaN",
        "Infinity",
        "[",
        "]",
        "[1,]",
        "{,}",
        "[" * 40 + "]" * 40,
        "[" * 20 + "]" * 20,
    ),
    *('{"s":1}', '{"s":{"s":"x"},"s":[null,true,{"":-1.5e3}]}', "[1 , 2]", "\ufeff1", "1\x00", "\x0c1", "1 2"),
]
KEYS = [
    "s",
    "i",
    "f",
    "b",
    "a",
    "ess",
    "ä",
    "x",
    "",
    "\\u0073",
    "ss",
    "a rather long key that nobody asked for, or two",
]
PEACEFUL = ["ess", "ä", "x", "", "ss", "a rather long key that nobody asked for, or two"]
TEXTS = [
    "",
    "view",
    "click",
    "x" * 15,
    "y" * 16,
    "z" * 33,
    "é",
    "日本語",
    "\\",
    '"',
    "/",
    "\x00",
    "\x7f",
    "\u2028",
    "😀",
    "a b",
]
INTS = [0, 1, -1, 7, 10**17, 10**18 - 1, 10**18, 10**19, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 2**64, 10**40]
FLOATS = [0.0, -0.0, 0.1, 1e15, 1e16, 1e22, 1e23, 1.7976931348623157e308, 5e-324, 2.2250738585072014e-308, 123456.789]


def text(rng: random.Random) -> str:
    if rng.random() < 0.6:
        return rng.choice(TEXTS[:6])
    if rng.random() < 0.5:
        return rng.choice(TEXTS)
    return "".join(
        chr(rng.choice([rng.randrange(128), rng.randrange(0x800), rng.randrange(0x110000)]))
        for _ in range(rng.randrange(40))
    )


def integer(rng: random.Random) -> int:
    return rng.choice(
        [rng.randrange(-9, 100), rng.choice(INTS), rng.getrandbits(rng.randrange(1, 70)), -rng.getrandbits(60)]
    )


def number(rng: random.Random) -> float:
    return rng.choice(
        [
            rng.random(),
            rng.choice(FLOATS),
            round(rng.uniform(-1e4, 1e4), 2),
            rng.uniform(-1, 1) * 10.0 ** rng.randrange(-40, 40),
        ]
    )


def anything(rng: random.Random, depth: int = 0) -> Any:
    which = rng.randrange(8 if depth < 3 else 6)
    if which == 6:
        return [anything(rng, depth + 1) for _ in range(rng.randrange(4))]
    if which == 7:
        return {text(rng): anything(rng, depth + 1) for _ in range(rng.randrange(4))}
    return [None, rng.random() < 0.5, integer(rng), number(rng), text(rng), 1][which]


def tame(rng: random.Random, key: str) -> Any:
    """A value that fits its key, of the kinds that most records are made of."""
    if key in ("s", "ess", "x"):
        return rng.choice(["view", "click", "é", str(rng.random())])
    if key == "i":
        return rng.randrange(-9, 10**12)
    return rng.random() < 0.5 if key == "b" else round(rng.uniform(-1e4, 1e4), rng.randrange(1, 14))


def hostile(rng: random.Random, key: str) -> str:
    """JSON of a value, mostly one that fits its key."""
    chance = rng.random()
    if chance < 0.04:
        return rng.choice(INTERESTING)
    fitting = {"s": text, "ess": text, "i": integer, "f": number, "ä": number, "b": lambda rng: rng.random() < 0.5}
    make = anything if chance < 0.08 else fitting.get(key, anything)
    return json.dumps(make(rng), ensure_ascii=rng.random() < 0.5)


def damaged(rng: random.Random, record: bytes) -> bytes | None:
    """The record, or something near it."""
    how = rng.randrange(40)
    at = rng.randrange(len(record) + 1)
    if how == 0:
        return None
    if how == 1:
        return record[:at]
    if how == 2:
        return record[:at] + rng.randbytes(rng.randrange(4)) + record[at + rng.randrange(4) :]
    if how == 3:
        return record + rng.choice([b" ", b"x", b"\x00", b"{}", b","])
    if how == 5:  # a value, and behind it what the records begin with
        return b'{"note":' + rng.choice([b"1", b'"torn"', b"null"]) + record
    if how == 4:
        return record[:at] + bytes([rng.choice(b'{}[]",:\\ 0-.e1tfn')]) + record[at + rng.randrange(2) :]
    return record


def batch(rng: random.Random) -> list[bytes | None]:
    """Records that a producer or two may have written."""
    peaceful = rng.random() < 0.6
    layout = rng.sample(PEACEFUL if peaceful else KEYS, rng.randrange(5))
    if rng.random() < 0.1:
        layout += rng.sample(KEYS, 2)
    layout += [k for k in ("s", "i", "f", "b") if k not in layout and rng.random() < (1 if peaceful else 0.8)]
    if rng.random() < 0.5:
        rng.shuffle(layout)
    spaces = ["", "", " ", "\n\t ", "\r"]
    colon, comma, outside = rng.choice(spaces), rng.choice(spaces), rng.choice(spaces)
    out: list[bytes | None] = []
    for _ in range(rng.randrange(1, 20)):
        keys = rng.sample(layout, len(layout)) if rng.random() < 0.1 else layout
        keys = [k for k in keys if rng.random() < 0.99]
        values = [json.dumps(tame(rng, k)) if peaceful and rng.random() < 0.98 else hostile(rng, k) for k in keys]
        members = [f'"{k}":{colon}{v}' for k, v in zip(keys, values, strict=True)]
        record = f"{outside}{{{f',{comma}'.join(members)}}}{outside}"
        out.append(damaged(rng, record.encode("utf-8", "surrogatepass")))
    return out
