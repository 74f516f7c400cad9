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


CASES = [
    (("penstock", "wor"), ["worker"]),
    (("penstock", "topics", "al"), ["alter"]),
    (("penstock", "topics", "alter", "x", "--re"), ["--retention"]),
    (("penstock", "worker", "--guarantee", "ex"), ["exactly_once"]),
    (("penstock", "lag", "counts", "--js"), ["--json"]),
    (("penstock", "completion", "z"), ["zsh"]),
]


@pytest.mark.parametrize(("words", "expected"), CASES)
def test_bash_offers_commands_actions_options_and_choices(
    scripts: dict[str, Path], words: tuple[str, ...], expected: list[str]
) -> None:
    assert completed(scripts["bash"], *words) == expected


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
@pytest.mark.parametrize(("words", "expected"), CASES)
def test_fish_offers_them_with_their_help(
    scripts: dict[str, Path], words: tuple[str, ...], expected: list[str]
) -> None:
    asked = f"source {scripts['fish']}; complete -C '{' '.join(words)}'"
    done = subprocess.run(["fish", "--no-config", "-c", asked], capture_output=True, text=True, timeout=60, check=True)
    assert [line.partition("\t")[0] for line in done.stdout.splitlines()] == expected


# A shell at a terminal of its own, since completion works only while a line is edited.
ZSH = r"""
zmodload zsh/zpty
seen=""
until_seen() {
  local part
  for i in {1..600}; do
    while zpty -r -t shell part 2>/dev/null; do seen+="$part"; done
    [[ "$seen" == *"$1"* ]] && return
    sleep 0.05
  done
  print -r -- "no $1 in: $seen"; exit 1
}
zpty -b shell env TERM=dumb zsh -f -i
zpty -w shell "bindkey -e; PS1='%%'; autoload -Uz compinit; compinit -u -D; source $1; echo REA''DY"
until_seen READY
zpty -w -n shell "$2"$'\t'
sleep 0.5
zpty -w -n shell $'\x01print -r -- "GOT:\x05:E""ND"\r'
until_seen ":END"
print -r -- "${${seen##*GOT:}%%:END*}"
zpty -d shell
"""


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
@pytest.mark.parametrize(("words", "expected"), CASES)
def test_zsh_completes_them_at_a_terminal(
    scripts: dict[str, Path], words: tuple[str, ...], expected: list[str]
) -> None:
    script = scripts["zsh"].with_name("ask.zsh")
    script.write_text(ZSH)
    command = ["zsh", "-f", str(script), str(scripts["zsh"]), " ".join(words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.split()) == (0, [*words[:-1], *expected]), done.stdout + done.stderr


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
