"""What a user's type checker says: nothing of right programs, something of each wrong line of wrong ones.

A wrong line of ``wrong/`` ends in ``# E: why``, or in ``# E(mypy): why`` where the other checker lets it pass. What right
programs know is asserted in them by ``assert_type``.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PROGRAMS = sorted(HERE.glob("right/*.py")) + sorted(HERE.glob("wrong/*.py"))
MARK = re.compile(r"# E(\((?P<checker>\w+)\))?: \S")
Found = dict[tuple[str, int], str]
"""The message by file and line."""


def mypy() -> Found:
    """What mypy reports, as strict as it gets, without this project's settings."""
    done = run("-m", "mypy", "--strict", "--config-file=", "--output=json", *map(str, PROGRAMS))
    reports = [json.loads(line) for line in done.splitlines() if line.startswith("{")]
    assert all((HERE / r["file"]).resolve() in PROGRAMS for r in reports), done  # not of penstock itself
    return {(Path(r["file"]).name, r["line"]): r["message"] for r in reports if r["severity"] == "error"}


def pyright() -> Found:
    """What pyright reports, with its own settings."""
    done = run("-m", "pyright", "--outputjson", "--pythonpath", sys.executable, *map(str, PROGRAMS))
    reports = json.loads(done)["generalDiagnostics"]
    return {
        (Path(r["file"]).name, r["range"]["start"]["line"] + 1): r["message"]
        for r in reports
        if r["severity"] == "error"
    }


def run(*command: str) -> str:
    """The output of a checker, from a folder without settings."""
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, timeout=600, check=False, cwd=HERE
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module", params=[mypy, pyright])
def checked(request: pytest.FixtureRequest) -> tuple[str, Found]:
    """A checker's name, and what it reports of all programs."""
    checker: Callable[[], Found] = request.param
    return checker.__name__, checker()


def wrong_lines(checker: str) -> Iterator[tuple[str, int]]:
    """The lines of which this checker must say something."""
    for path in PROGRAMS:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            mark = MARK.search(line)
            if mark and mark["checker"] in (None, checker):
                yield path.name, number


def test_checkers_report_the_wrong_lines_and_no_others(checked: tuple[str, Found]) -> None:
    checker, found = checked
    wanted = set(wrong_lines(checker))
    passed = sorted(f"{name}:{line} is wrong, and {checker} lets it pass" for name, line in wanted - set(found))
    refused = sorted(f"{name}:{line} is right; {checker}: {found[name, line]}" for name, line in set(found) - wanted)
    assert (passed, refused) == ([], [])


def test_the_programs_are_many() -> None:
    """A glob or a mark that matched nothing would let everything pass."""
    assert len(list(wrong_lines("mypy"))) > 80
    assert sum(path.read_text().count("assert_type(") for path in PROGRAMS) > 80
