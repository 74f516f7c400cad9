"""What a supervisor starts: processes that supervise nothing themselves."""

from __future__ import annotations

import pytest

from penstock.streams.cli.main import build_parser
from penstock.streams.worker import supervisor

ARGV = ["worker", "m:t", "--application-id", "a", "--state-dir", "s"]


@pytest.mark.parametrize(
    "given",
    [
        ["--processes", "3"],
        ["--processes=3"],
        ["--processes", "3", "--partitions", "0,1,2"],
        ["--partitions=0,1,2", "--processes", "3", "--processes", "2"],
    ],
)
def test_each_process_is_told_to_be_one(given: list[str]) -> None:
    partitions = [0, 2] if "--partitions" in " ".join(given) else None
    command = supervisor._command([*ARGV, *given], partitions)
    _, module, name, *argv = command
    assert (module, name) == ("-m", "penstock.streams.cli.main")
    assert argv[-2:] == ["--processes", "1"]
    args = build_parser(argv).parse_args(argv)
    assert build_parser(argv).parse_args([*argv, supervisor.PROCESS_OPTION, "1"]).process_number == 1
    assert (args.processes, args.partitions) == (1, None if partitions is None else "0,2")
    assert (args.topology, args.application_id, args.state_dir) == ("m:t", "a", "s")


def test_a_word_that_was_not_understood_cannot_ask_for_more() -> None:
    """Whatever else stands before it, the last word wins."""
    argv = supervisor._command([*ARGV, "--processes", "3"], None)[3:]
    assert build_parser(argv).parse_args([*argv[:-2], "--processes", "5", *argv[-2:]]).processes == 1
