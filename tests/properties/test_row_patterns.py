"""Random row patterns of SQL, whose variables each take one letter, against Python's regular expressions."""

from __future__ import annotations

import random
import re

import msgspec

from penstock.state.errors import TopologyError
from penstock.state.log import Record
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.dsl.builder import StreamsBuilder

SEEDS = 300
REFUSED = (
    "greedy at the end",
    "cannot follow a greedy one",
    "reluctant optional",
    "possible would be none",
    "one quantifier",
)


class Row(msgspec.Struct, frozen=True):
    letter: str


def random_pattern(rng: random.Random, letters: list[str], depth: int = 0) -> str:
    """Of some of the letters, each once."""
    parts = []
    for _ in range(rng.randint(1, 3)):
        if not letters:
            break
        group = depth == 0 and len(letters) > 1 and rng.random() < 0.2
        part = f"({random_pattern(rng, letters, 1)})" if group else letters.pop(0).upper()
        quantifier = rng.choice(("", "", "", "+", "*", "?", "{2}", "{1,2}", "{2,}", "+?", "*?", "{1,2}?"))
        parts.append(part + quantifier)
    return " ".join(parts)


def expected_of(pattern: str, rows: str, *, overlapping: bool) -> list[str]:
    """What the standard finds: from each first row the preferred match, if it is not empty."""
    compiled = re.compile(pattern.lower().replace(" ", ""))
    found, at = [], 0
    while at < len(rows):
        match = compiled.match(rows, at)
        if match is not None and match.group():
            found.append(match.group())
            at = at + 1 if overlapping else match.end()
        else:
            at += 1
    return found


def found_of(pattern: str, rows: str, *, overlapping: bool) -> list[str]:
    """What the statement finds: the letters of each match."""
    variables = sorted({c for c in pattern if c.isalpha()})
    skip = "TO NEXT ROW" if overlapping else "PAST LAST ROW"
    text = f"""SELECT * FROM rows MATCH_RECOGNIZE (
        ORDER BY rowtime MEASURES {", ".join(f"COUNT({v}.letter) AS {v}" for v in variables)}
        ONE ROW PER MATCH AFTER MATCH SKIP {skip} PATTERN ({pattern}) WITHIN INTERVAL '50' SECOND
        DEFINE {", ".join(f"{v} AS {v}.letter = '{v.lower()}'" for v in variables)})"""
    builder = StreamsBuilder()
    builder.sql(text, rows=builder.stream("rows", key=str, value=Row)).to("out")
    with TopologyTestDriver(builder) as driver:
        driver.pipe_all("rows", [Record("k", Row(c), i * 1000) for i, c in enumerate(rows)])
        # the last run is over by time
        driver.pipe_all("rows", [Record("other", Row("z"), 10**6), Record("other", Row("z"), 10**7)])
        return ["".join(v.lower() * r.value[v] for v in variables) for r in driver.read("out")]


def test_matches_are_those_of_a_regular_expression() -> None:
    """As many rows of each variable as the standard says, whatever ends the pattern; what cannot be told is refused."""
    tried = 0
    for seed in range(SEEDS):
        rng = random.Random(seed)
        letters = list("abcd")
        pattern = random_pattern(rng, letters)
        used = [c.lower() for c in pattern if c.isalpha()]
        rows = "".join(rng.choices([*used, "x"], k=rng.randint(1, 20)))
        for overlapping in (False, True):
            try:
                found = found_of(pattern, rows, overlapping=overlapping)
            except TopologyError as exc:
                assert any(r in str(exc) for r in REFUSED), f"seed {seed}: {exc}"
                continue
            tried += 1
            expected = ["".join(sorted(m)) for m in expected_of(pattern, rows, overlapping=overlapping)]
            assert found == expected, f"seed {seed}: {pattern} over {rows}, overlapping: {overlapping}"
    assert tried > SEEDS
