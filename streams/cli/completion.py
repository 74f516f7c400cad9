"""``penstock completion SHELL``: a script that completes commands, their actions, options and choices."""

from __future__ import annotations

import argparse
import importlib
import shlex
from typing import Any, NamedTuple

SHELLS = ("bash", "zsh", "fish")


class CompletionWords(NamedTuple):
    """The words that may follow a command: ``options`` with their help, ``choices`` of those that have some, and the words
    that are themselves commands or choices of a place."""

    options: dict[str, str]
    choices: dict[str, tuple[str, ...]]
    words: dict[str, str]


def register(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "completion",
        help="print a script that completes the commands in bash, zsh or fish",
        description='Print a script for a shell. bash: eval "$(penstock completion bash)" in ~/.bashrc; zsh: the same with '
        "zsh in ~/.zshrc, after compinit; fish: penstock completion fish > ~/.config/fish/completions/penstock.fish",
    )
    parser.add_argument("shell", choices=SHELLS, help="for which shell")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    tree = words_of(whole_parser())
    print({"bash": bash, "zsh": zsh, "fish": fish}[args.shell](tree))
    return 0


def whole_parser() -> argparse.ArgumentParser:
    """A parser of all commands, each with its options."""
    from penstock.streams.cli.main import COMMANDS, WholeWordsParser

    parser = WholeWordsParser(prog="penstock")
    subparsers = parser.add_subparsers()
    for module in dict.fromkeys(command.module for command in COMMANDS):
        importlib.import_module(module).register(subparsers)
    return parser


def words_of(parser: argparse.ArgumentParser) -> dict[str, CompletionWords]:
    """By the path of a command, such as ``topics create``: what may follow it. The empty path is ``penstock`` itself."""
    out: dict[str, CompletionWords] = {}

    def walk(inner: argparse.ArgumentParser, path: str) -> None:
        options: dict[str, str] = {}
        choices: dict[str, tuple[str, ...]] = {}
        words: dict[str, str] = {}
        for action in inner._actions:
            said = "" if action.help in (None, argparse.SUPPRESS) else str(action.help).replace("%%", "%")
            if isinstance(action, argparse._SubParsersAction):
                words |= {choice.dest: choice.help or "" for choice in action._choices_actions}
                for name, child in action.choices.items():
                    walk(child, f"{path} {name}".strip())
            elif action.help == argparse.SUPPRESS:
                continue
            elif action.option_strings:
                options |= dict.fromkeys((o for o in action.option_strings if o.startswith("--")), said)
                if action.choices:
                    choices |= dict.fromkeys(action.option_strings, tuple(map(str, action.choices)))
            elif action.choices:
                words |= dict.fromkeys(map(str, action.choices), "")
        out[path] = CompletionWords(options, choices, words)

    walk(parser, "")
    return out


def bash(tree: dict[str, CompletionWords]) -> str:
    """A function for ``complete -F``."""
    cases = [_bash_case(path, words) for path, words in tree.items()]
    return "\n".join(
        [
            "_penstock() {",
            '  local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}" path="" word',
            '  for word in "${COMP_WORDS[@]:1:$((COMP_CWORD-1))}"; do',
            '    case "$path/$word" in',
            *(f"      {shlex.quote('/'.join(p.rpartition(' ')[::2]))}) path={shlex.quote(p)};;" for p in tree if p),
            "    esac",
            "  done",
            '  case "$path:$prev" in',
            *(line for pair in cases for line in pair[0]),
            "  esac",
            '  case "$path" in',
            *(line for pair in cases for line in pair[1]),
            "  esac",
            '  [[ ${#COMPREPLY[@]} -eq 0 && $cur != -* ]] && COMPREPLY=($(compgen -f -- "$cur"))',
            "}",
            "complete -F _penstock penstock",
        ]
    )


def _bash_case(path: str, words: CompletionWords) -> tuple[list[str], list[str]]:
    valued = [
        f'    {shlex.quote(f"{path}:{option}")}) COMPREPLY=($(compgen -W {shlex.quote(" ".join(some))} -- "$cur")); return;;'
        for option, some in words.choices.items()
    ]
    offered = shlex.quote(" ".join([*words.words, *words.options]))
    return valued, [f'    {shlex.quote(path)}) COMPREPLY=($(compgen -W {offered} -- "$cur"));;']


def zsh(tree: dict[str, CompletionWords]) -> str:
    """bash's function by zsh's own emulation."""
    return "\n".join(["autoload -U +X bashcompinit && bashcompinit", bash(tree)])


def fish(tree: dict[str, CompletionWords]) -> str:
    """One ``complete`` for each word and option, under the condition that its command was given."""
    lines = ["complete -c penstock -f"]
    for path, words in tree.items():
        condition = _fish_condition(path, tree)
        for word, said in words.words.items():
            lines.append(f"complete -c penstock -n {_fish(condition)} -a {_fish(word)} -d {_fish(said)}")
        for option, said in words.options.items():
            some = words.choices.get(option)
            value = f" -x -a {_fish(' '.join(some))}" if some else ""
            lines.append(f"complete -c penstock -n {_fish(condition)} -l {option[2:]}{value} -d {_fish(said)}")
        if path and not any(other.startswith(f"{path} ") for other in tree):
            lines.append(f"complete -c penstock -n {_fish(condition)} -F")
    return "\n".join(lines)


def _fish_condition(path: str, tree: dict[str, CompletionWords]) -> str:
    if not path:
        return "__fish_use_subcommand"
    seen = [f"__fish_seen_subcommand_from {name}" for name in path.split()]
    deeper = [other.split()[-1] for other in tree if other.rpartition(" ")[0] == path]
    return "; and ".join([*seen, *([f"not __fish_seen_subcommand_from {' '.join(deeper)}"] if deeper else [])])


def _fish(text: str) -> str:
    """A text in fish's single quotes."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
