"""Completion in shells: the scripts are run by the shells that are installed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from penstock.streams.cli.completion import SHELLS, whole_parser, words_of
from penstock.streams.cli.main import COMMANDS, main


@pytest.fixture
def scripts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Path]:
    """The script of each shell as a file."""
    out = {}
    for shell in SHELLS:
        assert main(["completion", shell]) == 0
        out[shell] = tmp_path / f"penstock.{shell}"
        out[shell].write_text(capsys.readouterr().out)
    return out


def completed(script: Path, *words: str) -> list[str]:
    """What bash offers for the last of the words."""
    given = " ".join(f"'{word}'" for word in words)
    asked = f'source {script}; COMP_WORDS=({given}); COMP_CWORD={len(words) - 1}; _penstock; echo "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("penstock", "wor"), ["worker"]),
        (("penstock", "topics", "al"), ["alter"]),
        (("penstock", "topics", "alter", "x", "--re"), ["--retention"]),
        (("penstock", "worker", "--guarantee", "ex"), ["exactly_once"]),
        (("penstock", "lag", "counts", "--js"), ["--json"]),
        (("penstock", "completion", "z"), ["zsh"]),
    ],
)
def test_bash_offers_commands_actions_options_and_choices(
    scripts: dict[str, Path], words: tuple[str, ...], expected: list[str]
) -> None:
    assert completed(scripts["bash"], *words) == expected


@pytest.mark.parametrize("shell", SHELLS)
def test_shells_take_their_scripts(shell: str, scripts: dict[str, Path]) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    done = subprocess.run([shell, "-n", str(scripts[shell])], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_command_and_no_hidden_option_is_offered(scripts: dict[str, Path]) -> None:
    tree = words_of(whole_parser())
    assert set(tree[""].words) == {command.name for command in COMMANDS}
    assert "--commit-interval-ms" in tree["worker"].options
    assert "--metrics-socket" not in tree["worker"].options, "it is for the supervisor"
    fish = scripts["fish"].read_text()
    for command in COMMANDS:
        assert f"complete -c penstock -n '__fish_use_subcommand' -a '{command.name}'" in fish
