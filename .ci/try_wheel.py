"""Whether an installed Penstock works: run by the Python of a clean environment, outside the repository.

``try_wheel.py compiled`` demands that the compiled part is there and used, ``try_wheel.py plain`` that it is not there.
Both must give the same answer.
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

import penstock
from penstock.state import native
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.examples.word_count import build
from penstock.topologies.operators.columnar.kernel_check import why_not_trusted


class Recorded:
    """The compiled module, with a note of what is taken from it."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.taken: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        self.taken[name] += 1
        return getattr(self.module, name)


def main(expected: str) -> None:
    """Run some records through a topology."""
    module = native.compiled()
    if expected == "plain":
        assert module is None, "the wheel for every platform has a compiled part"
        recorded = None
    else:
        assert module is not None, native.why_not()
        assert why_not_trusted() is None, why_not_trusted()
        recorded = native._in_use[0] = Recorded(module)  # type: ignore[assignment]  # stands for the module
    with TopologyTestDriver(build()) as driver:
        for i in range(500):
            driver.pipe("lines", None, f"the quick fox {i % 7} the end", timestamp_ms=i)
        counts = {record.key: record.value for record in driver.read("word-counts")}
    assert counts["the"] == "1000" and counts["3"] == "71" and len(counts) == 11, counts
    if recorded is not None:
        assert recorded.taken, "nothing was taken from the compiled part"
        print(f"{module.__file__} was used: {', '.join(sorted(recorded.taken))}")
    print(f"penstock {penstock.__version__} on Python {sys.version.split()[0]}, {expected}: works")


if __name__ == "__main__":
    main(sys.argv[1])
