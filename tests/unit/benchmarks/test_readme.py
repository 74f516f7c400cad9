"""The table of commands in benchmarks/README.md names every file of results, and every command is one."""

from __future__ import annotations

import importlib
import re
import shlex
from pathlib import Path

import pytest

import benchmarks
from benchmarks.harness import RESULTS

README = (Path(benchmarks.__file__).parent / "README.md").read_text()
ROWS = dict(re.findall(r"^\| `([a-z0-9-]+)` \| (.*(?:` --|`\.).*) \| [0-9 to]+ \|$", README, re.MULTILINE))


def test_every_file_of_results_has_its_command() -> None:
    assert sorted(ROWS) == sorted(path.stem for path in RESULTS.glob("*.jsonl"))


@pytest.mark.parametrize("file", ROWS)
def test_the_commands_have_options_that_are_known(file: str) -> None:
    commands = re.findall(r"`((?: --|\.)[^`]+)`", ROWS[file])
    assert commands
    for command in commands:
        module, *words = shlex.split(command if command.startswith(".") else f".__main__{command}")
        parse = getattr(importlib.import_module(f"benchmarks{module}"), "arguments", None)
        if parse is None:
            assert not words
        else:
            parse([*words, *([] if "--keep" in words else ["--keep", file])])
