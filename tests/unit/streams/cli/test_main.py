"""The shell around the commands: the table, exit codes, and what a user sees instead of a traceback."""

from __future__ import annotations

import argparse
import importlib
import io
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

import penstock
from penstock.state.errors import EnvironmentFault, RetriableError, SettingsError
from penstock.streams.cli import worker
from penstock.streams.cli.client_options import BOOTSTRAP_ENV, bootstrap_servers, pairs, settings_of
from penstock.streams.cli.cluster import EXIT_NOT_RUNNING
from penstock.streams.cli.main import COMMANDS, Command, build_parser, main, run_parsed
from penstock.streams.cli.record_lines import RecordLines, check_format, unescape
from penstock.streams.cli.topic_types import TopicTypes
from penstock.streams.cli.topics import table
from penstock.streams.events.log_format import FORMATS, LEVELS
from penstock.streams.kafka import embedded
from penstock.streams.kafka.follow import FoundRecord
from penstock.streams.runtime.commit_protocol import Guarantee
from penstock.streams.worker import exit_codes
from penstock.streams.worker.settings import Latency, Tracing, WorkerSettings


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No cluster runs and none is named."""
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path))
    monkeypatch.delenv(BOOTSTRAP_ENV, raising=False)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_command_of_the_table_registers_itself(command: Command) -> None:
    parser = argparse.ArgumentParser()
    subparsers = parser.add_subparsers()
    module = importlib.import_module(command.module)
    module.register(subparsers)
    assert command.name in subparsers.choices
    assert subparsers.choices[command.name].get_default("run") is module.run


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--help"])
    assert left.value.code == 0
    printed = capsys.readouterr().out
    lines = [line.split()[0] for line in printed.splitlines() if line.startswith("    ") and line[4] != " "]
    assert {command.name for command in COMMANDS} <= set(lines)


def commands_of(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """A parser and those of its commands."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from commands_of(inner)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_each_command_and_action_says_in_its_own_help_what_it_does(command: Command) -> None:
    inner = [p for p in commands_of(build_parser([command.name])) if p.prog.startswith(f"penstock {command.name}")]
    assert [p.prog for p in inner if not (p.description or "").strip()] == []


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_option_has_help_and_none_has_an_abbreviation(command: Command) -> None:
    for parser in commands_of(build_parser([command.name])):
        assert not parser.allow_abbrev, parser.prog
        assert [a.dest for a in parser._actions if not (a.help or a.required)] == [], parser.prog


def test_the_worker_takes_the_values_that_its_settings_take() -> None:
    (parser,) = [p for p in commands_of(build_parser(["worker"])) if p.prog == "penstock worker"]
    choices = {action.dest: action.choices for action in parser._actions if action.choices}
    assert choices == {
        "guarantee": list(get_args(Guarantee)),
        "latency": list(get_args(Latency)),
        "tracing": list(get_args(Tracing)),
        "log_level": LEVELS,
        "log_format": FORMATS,
    }
    args = parser.parse_args(["m:t", "--latency", "low", "--application-id", "a"])
    given = {name: getattr(args, name) for name in worker.SETTINGS}
    assert settings_of(None, **given).latency == "low"


def test_one_static_membership_is_not_for_several_processes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PENSTOCK_GROUP_INSTANCE_ID", "one")
    topology = "penstock.topologies.examples.word_count:build"
    assert main(["worker", topology, "--application-id", "a", "--processes", "2"]) == 2
    assert "group_instance_id='one' identifies one process; with --processes 2" in capsys.readouterr().err


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--version"])
    assert left.value.code == 0
    assert capsys.readouterr().out == f"penstock {penstock.__version__}\n"


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["nonsense"],
        ["up", "--nonsense"],
        ["topics"],
        ["consume", "t", "--max-messages", "0"],
        ["worker", "m:t", "--processes", "0"],
        ["worker", "m:t", "--process", "3"],
        ["topics", "create", "t", "--part", "3"],
    ],
)
def test_a_wrong_command_line_is_exit_code_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(argv)
    assert left.value.code == 2
    assert "usage: penstock" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["up", "--brokers", "0"], "brokers is 0"),
        (["up", "--config", "nonsense"], "--config takes KEY=VALUE"),
        (["status", "--name", "../x"], "cannot be a cluster's name"),
        (["topics", "list"], "Start one with: penstock up"),
        (["consume", "t"], "no cluster to talk to"),
        (["consume", "t", "--name", "other"], "penstock up --name other"),
        (["consume", "t", "--format", "{nonsense}"], "has no field {nonsense}"),
        (["topics", "list", "--bootstrap-server", "127.0.0.1:1", "--client-config", "nope=1"], "'nope'"),
    ],
)
def test_what_the_user_is_to_correct_is_one_line_and_exit_code_2(
    argv: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("penstock: ")
    assert printed.err.count("\n") == 1
    assert said in printed.err


def test_nothing_runs_and_nothing_is_stopped(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status"]) == 3
    assert "is down. Start it with: penstock up\n" in capsys.readouterr().out
    assert main(["down"]) == 0
    assert "no cluster 'default' was running" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("option", "name", "environment", "running", "expected"),
    [
        ("option:1", "other", "env:1", "running:1", "option:1"),
        (None, "other", "env:1", "running:1", "running of other"),
        (None, None, "env:1", "running:1", "env:1"),
        (None, None, None, "running:1", "running:1"),
    ],
)
def test_the_servers_are_the_option_then_the_environment_then_the_running_cluster(
    option: str | None,
    name: str | None,
    environment: str | None,
    running: str,
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        embedded, "running_bootstrap_servers", lambda of="default": running if of == "default" else f"running of {of}"
    )
    if environment is not None:
        monkeypatch.setenv(BOOTSTRAP_ENV, environment)
    assert bootstrap_servers(argparse.Namespace(bootstrap_servers=option, name=name)) == expected
    if name is None:
        assert settings_of(None, application_id="a", bootstrap_servers=option).bootstrap_servers == expected


def test_an_explicit_server_that_is_the_default_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "running_bootstrap_servers", lambda: "running:1")
    default = WorkerSettings(application_id="a").bootstrap_servers
    file = tmp_path / "worker.toml"
    file.write_text(f'[penstock]\napplication_id = "a"\nbootstrap_servers = "{default}"\n')
    assert settings_of(None, application_id="a", bootstrap_servers=default).bootstrap_servers == default
    assert settings_of(str(file)).bootstrap_servers == default
    monkeypatch.setattr(embedded, "running_bootstrap_servers", lambda: None)
    assert settings_of(None, application_id="a").bootstrap_servers == default


def run_python(program: str) -> subprocess.CompletedProcess[str]:
    """A program in a Python of its own."""
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False)


def test_a_command_loads_neither_spark_nor_what_other_commands_need() -> None:
    path = str(Path(penstock.__file__).parents[1])
    done = run_python(
        f"import sys; sys.path.insert(0, {path!r})\n"
        "from penstock.streams.cli.main import main\n"
        "main(['up', '--brokers', '0'])\n"
        "print(sorted({m.split('.')[0] for m in sys.modules} & {'pyspark', 'pyarrow', 'polars', 'rocksdict', 'faust'}))\n"
    )
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.parametrize(
    ("raised", "code"),
    [
        (None, 0),
        (EnvironmentFault("the disk is full"), exit_codes.FAILED),
        (RetriableError("no answer"), exit_codes.FAILED),
        (SettingsError("no such setting"), exit_codes.USER_ERROR),
        (KeyboardInterrupt(), exit_codes.INTERRUPTED),
    ],
    ids=str,
)
def test_how_a_command_ends_is_its_exit_code(raised: BaseException | None, code: int) -> None:
    def run(_: argparse.Namespace) -> int:
        if raised is not None:
            raise raised
        return 0

    parser = argparse.ArgumentParser()
    parser.set_defaults(run=run)
    assert run_parsed(parser, []) == code


@pytest.mark.parametrize(
    ("argv", "meant"),
    [
        (["worker", "counts:topology", "--aplication-id", "x"], "--application-id"),
        (["topics", "creat", "x"], "create"),
        (["wroker"], "worker"),
        (["worker", "counts:topology", "--metrics-sockt", "x"], None),
        (["lag", "x", "--zzz"], None),
    ],
)
def test_a_misspelt_option_or_command_names_the_one_that_was_meant(
    argv: list[str], meant: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(argv)
    assert left.value.code == 2
    said = capsys.readouterr().err
    assert (f"did you mean {meant}?" in said) if meant else ("--metrics-socket" not in said), said


def test_every_exit_code_is_documented() -> None:
    table = (Path(__file__).parents[4] / "OPERATING.md").read_text()
    rows = re.search(r"^\| exit status \|.*\n\| --- .*\n((?:\| .*\n)+)", table, re.MULTILINE)
    assert rows is not None
    told = {int(line.split("|")[1]) for line in rows[1].splitlines()}
    codes = {value for name, value in vars(exit_codes).items() if name.isupper()}
    assert told == {0, EXIT_NOT_RUNNING, *codes}


def test_a_reader_that_goes_away_is_no_traceback() -> None:
    path = str(Path(penstock.__file__).parents[1])
    program = f"import sys; sys.path.insert(0, {path!r}); from penstock.streams.cli.main import main; sys.exit(main())"
    command = '"$0" -c "$1" status | true; echo "${PIPESTATUS[0]}"'
    gone = "import select; end = select.poll(); end.register(1, 0); end.poll()"  # until the reader has gone
    slow = program.replace("sys.exit(main())", f"{gone}; sys.exit(main())")
    done = subprocess.run(
        ["bash", "-c", command, sys.executable, slow], capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.stdout, done.stderr) == ("141\n", "")


def test_pairs_never_show_what_they_could_not_read() -> None:
    assert pairs(["a=1", "b=x=y", "a=2"], "--o") == {"a": "2", "b": "x=y"}
    with pytest.raises(SettingsError, match="number 2") as error:
        pairs(["a=1", "hunter2"], "--o")
    assert "hunter2" not in str(error.value)


def rendered(template: str, record: FoundRecord) -> str:
    """The line of a record whose types nobody knows."""
    return RecordLines(lambda topic: TopicTypes(), check_format(template)).line(record)


RECORD = FoundRecord("t", 3, 14, 1_500, b"k", None, (("h", b"\xff"), ("n", None)))


@pytest.mark.parametrize(
    ("template", "line"),
    [
        ("{value}", "null"),
        ("{key}\\t{timestamp}", "k\t1500"),
        ("{topic}-{partition}@{offset}", "t-3@14"),
        ("[{headers}]", "[h:\\xff,n:null]"),
        ("a\\\\tb", "a\\tb"),
        ("{} {{key}}", "{} {k}"),
    ],
)
def test_a_record_is_shown_as_asked(template: str, line: str) -> None:
    assert rendered(template, RECORD) == line


def test_a_field_inside_a_value_stays_text() -> None:
    assert rendered("{key}{value}", RECORD._replace(key=b"{value}", value=b"v")) == "{value}v"


def test_escapes() -> None:
    assert unescape("\\t|\\n|\\\\n|\\x") == "\t|\n|\\n|\\x"


def test_a_repository_without_savepoints_is_said_to_have_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["savepoints", "--application-id", "shop", "--repository", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"no savepoint of shop is in {tmp_path}; penstock compact makes them\n"


def test_a_table_is_aligned() -> None:
    assert table(["a", "bcd"], [["long", "x"], ["s", ""]]) == "a     bcd\nlong  x\ns"


def test_standard_input_is_not_read_when_there_is_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    stdin = io.TextIOWrapper(io.BytesIO(b"line\n"))
    monkeypatch.setattr(sys, "stdin", stdin)
    assert main(["produce", "t"]) == 2
    assert stdin.buffer.tell() == 0


def test_describe_prints_the_graph_the_chart_or_the_plan(capsys: pytest.CaptureFixture[str]) -> None:
    printed = {}
    for option in ([], ["--mermaid"], ["--plan"]):
        assert main(["describe", "penstock.topologies.examples.keyed_count:build", *option]) == 0
        printed[tuple(option)] = capsys.readouterr().out
    assert printed[()].startswith("topology keyed-count")
    assert printed[("--mermaid",)].startswith("flowchart")
    assert "clicks (Source): columns; decodes the key" in printed[("--plan",)]
