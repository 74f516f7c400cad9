"""Failpoints do nothing until they are armed, stand where their list says, and are documented."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.state import failpoints
from penstock.state.errors import SettingsError
from penstock.state.failpoints import FAILPOINTS, arm, failpoint
from penstock.streams.ports.log import AbortableError
from penstock.streams.worker.failpoint_actions import FailpointError, Strikes, arm_from
from tests.integration.faults.scenarios import SCENARIOS

ROOT = Path(__file__).parents[3]
SOURCES = [path for room in ("state", "streams", "topologies") for path in (ROOT / room).rglob("*.py")]


@pytest.fixture(autouse=True)
def unarmed() -> Iterator[None]:
    yield
    arm(None)


def named_in_the_code() -> list[str]:
    texts = [path.read_text() for path in SOURCES if path.name not in ("failpoints.py", "failpoint_actions.py")]
    found = [name for text in texts for name in re.findall(r'(?:failpoint|_passing)\(f?"([^"]+)"', text)]
    return sorted(set(found))


def test_the_list_is_what_stands_in_the_code() -> None:
    steps = {name for name in FAILPOINTS if name.startswith("commit.") and name != "commit.end_answered"}
    assert set(named_in_the_code()) - {"commit.{step}"} == set(FAILPOINTS) - steps
    assert len(FAILPOINTS) >= 25


def test_steps_of_a_commit_are_failpoints() -> None:
    from typing import get_args

    from penstock.streams.events.measurements import CommitStep

    assert {f"commit.{step}" for step in get_args(CommitStep)} <= set(FAILPOINTS)


def test_every_failpoint_has_a_way_to_it() -> None:
    assert set(SCENARIOS) == set(FAILPOINTS)


def test_the_documents_list_them_all() -> None:
    text = (ROOT / "tests/integration/faults/FAILPOINTS.md").read_text()
    rows = re.findall(r"^\| `([a-z_]+\.[a-z_]+)` \| (.+) \|$", text, re.MULTILINE)
    assert dict(rows) == FAILPOINTS


def test_nothing_happens_where_nothing_is_asked() -> None:
    arm_from({})
    assert failpoints._armed is None
    failpoint("commit.sent")


def test_acts_at_the_nth_passage_only() -> None:
    arm_from({"PENSTOCK_FAILPOINTS": "commit.sent=raise@2; commit.flushed=raise:abortable"})
    failpoint("commit.sent")
    with pytest.raises(FailpointError, match=r"commit\.sent"):
        failpoint("commit.sent")
    failpoint("commit.sent")
    with pytest.raises(AbortableError):
        failpoint("commit.flushed")


def test_notes_each_name_once(capsys: pytest.CaptureFixture[str]) -> None:
    arm(Strikes("*=note"))
    failpoint("commit.sent")
    failpoint("commit.sent")
    assert capsys.readouterr().err == "failpoint commit.sent passed\n"


@pytest.mark.parametrize("text", ["commit.snet=kill", "commit.sent=burn", "commit.sent=kill@often", "commit.sent"])
def test_orders_that_cannot_be_followed_are_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="PENSTOCK_FAILPOINTS"):
        Strikes(text)


@pytest.mark.parametrize("action", ["kill", "stop"])
def test_signals_strike_the_process_itself(action: str) -> None:
    program = (
        "import os\nfrom penstock.streams.worker.failpoint_actions import arm_from\n"
        "from penstock.state.failpoints import failpoint\n"
        "arm_from(os.environ)\nfailpoint('flush.done')\nprint('went on', flush=True)\n"
    )
    env = {"PENSTOCK_FAILPOINTS": f"flush.done={action}", "PYTHONPATH": str(ROOT / ".package")}
    with subprocess.Popen(
        [sys.executable, "-c", program], env=env, stderr=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stderr is not None
        assert process.stdout is not None
        assert process.stderr.readline() == f"failpoint flush.done: {action}\n".encode()
        if action == "stop":
            os.waitid(os.P_PID, process.pid, os.WSTOPPED)  # a signal to go on that comes before the stop has no effect
            process.send_signal(signal.SIGCONT)
            assert process.stdout.read() == b"went on\n"
            assert process.wait() == 0
        else:
            assert process.wait() == -9


def test_a_line_is_written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread's line cannot come between a line and its end."""

    class Stream(io.StringIO):
        def __init__(self) -> None:
            super().__init__()
            self.writes: list[str] = []

        def write(self, text: str) -> int:
            self.writes.append(text)
            return len(text)

    stream = Stream()
    monkeypatch.setattr(sys, "stderr", stream)
    Strikes("*=note;commit.sent=sleep:0@2")("commit.sent")
    strikes = Strikes("commit.sent=sleep:0")
    strikes("commit.sent")
    assert stream.writes == ["failpoint commit.sent passed\n", "failpoint commit.sent: sleep 0\n"]
