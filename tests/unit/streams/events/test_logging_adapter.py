"""Facts as lines of a log: one each, for people and for collectors."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from penstock.state.errors import IncompatibleError
from penstock.state.log import TaskId
from penstock.streams.events import facts as f
from penstock.streams.events.log_format import HumanFormatter, JsonFormatter, set_up
from penstock.streams.events.logging_adapter import BAD_RECORDS_MAX, BAD_RECORDS_S, LoggingEvents
from penstock.streams.events.measurements import BatchProcessed
from tests.fact_samples import KINDS, SAMPLES, SECRET, TASK


class Lines(logging.Handler):
    """Keeps records as a formatter writes them."""

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    @property
    def lines(self) -> list[str]:
        return [self.format(record) for record in self.records]


@pytest.fixture(params=["human", "json"])
def lines(request: pytest.FixtureRequest) -> Iterator[Lines]:
    handler = Lines(HumanFormatter() if request.param == "human" else JsonFormatter())
    logger = logging.getLogger("penstock")
    logger.addHandler(handler)
    before = logger.level
    logger.setLevel(logging.DEBUG)
    yield handler
    logger.setLevel(before)
    logger.removeHandler(handler)


def test_there_is_a_sample_of_every_fact() -> None:
    assert sorted(kind.__name__ for kind in KINDS) == sorted(type(fact).__name__ for fact in SAMPLES)
    assert len(KINDS) > 30


@pytest.mark.parametrize("fact", SAMPLES, ids=lambda fact: type(fact).__name__)
def test_a_fact_is_one_line_without_what_records_hold(lines: Lines, fact: f.Fact) -> None:
    LoggingEvents().emit(fact)
    (line,) = lines.lines
    assert "\n" not in line
    assert SECRET not in line
    assert lines.records[0].name.startswith("penstock.")


@pytest.mark.parametrize("fact", [s for s in SAMPLES if SECRET in repr(s)], ids=lambda fact: type(fact).__name__)
def test_what_records_hold_is_logged_when_asked_for(lines: Lines, fact: f.Fact) -> None:
    LoggingEvents(records=True).emit(fact)
    assert SECRET in lines.lines[0]


def test_a_line_for_people_and_one_for_collectors() -> None:
    said = {}
    for formatter in (HumanFormatter(), JsonFormatter()):
        handler = Lines(formatter)
        logging.getLogger("penstock").addHandler(handler)
        try:
            LoggingEvents().emit(f.StoreQuarantined(TASK, 'a "bad" block'))
        finally:
            logging.getLogger("penstock").removeHandler(handler)
        said[type(formatter)] = handler.lines[0]
    people = said[HumanFormatter]
    assert people[23:].startswith(" WARNING Local state quarantined")
    assert people.endswith(' task=0_1 reason="a \\"bad\\" block"')
    collected = json.loads(said[JsonFormatter])
    assert collected.pop("time").endswith("Z")
    assert collected == {
        "level": "warning",
        "logger": "penstock.restore",
        "message": "Local state quarantined; restoring it from the log",
        "fact": "StoreQuarantined",
        "task": "0_1",
        "reason": 'a "bad" block',
    }


def test_why_a_worker_stopped_is_said_once_to_people_and_wholly_to_collectors() -> None:
    """The command says it behind the last line."""
    said = {}
    for formatter in (HumanFormatter(error_follows=True), JsonFormatter()):
        handler = Lines(formatter)
        logging.getLogger("penstock").addHandler(handler)
        try:
            LoggingEvents().emit(f.WorkerStopped("error", IncompatibleError("there is no topic: create it")))
        finally:
            logging.getLogger("penstock").removeHandler(handler)
        said[type(formatter)] = handler.lines[0]
    assert said[HumanFormatter].endswith(" Worker stopped with an error. reason=error cause=IncompatibleError")
    assert json.loads(said[JsonFormatter])["cause"] == "IncompatibleError: there is no topic: create it"


def test_a_flood_of_bad_records_is_cut_and_counted(lines: Lines) -> None:
    now_s = 0.0
    events = LoggingEvents(monotonic_s=lambda: now_s)

    def skip(offset: int, task: TaskId = TASK) -> None:
        events.emit(f.RecordSkipped(task, "processing", "map", ("in", 0, offset), "ValueError", ""))

    for offset in range(3 * BAD_RECORDS_MAX):
        skip(offset)
    skip(0, TaskId(0, 2))
    assert len(lines.records) == BAD_RECORDS_MAX + 1
    now_s = BAD_RECORDS_S
    skip(1_000)
    assert len(lines.records) == BAD_RECORDS_MAX + 3
    assert f"{2 * BAD_RECORDS_MAX}" in lines.lines[-2] and "1000" in lines.lines[-1]
    for offset in range(BAD_RECORDS_MAX):
        skip(offset)
    events.emit(f.WorkerStopped("requested", None))
    assert "More of the same" in lines.lines[-2] and "Worker stopped" in lines.lines[-1]


def test_measurements_are_not_logged(lines: Lines) -> None:
    LoggingEvents().measure(BatchProcessed(TASK, 1, 0.1))
    assert lines.records == []


def test_lines_name_the_process_that_wrote_them() -> None:
    record = logging.LogRecord("elsewhere", logging.WARNING, "a.py", 1, "lost", None, None)
    assert HumanFormatter(1).format(record).endswith(" WARNING [process 1] elsewhere: lost")
    assert json.loads(JsonFormatter(1).format(record))["process"] == 1
    assert "process" not in HumanFormatter().format(record)
    assert "process" not in json.loads(JsonFormatter().format(record))


def test_the_command_logs_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    before, handlers, level = root.level, list(root.handlers), logging.getLogger("penstock").level
    try:
        set_up("warning", "json")
        events = LoggingEvents()
        events.emit(f.TaskCaughtUp(TASK))
        events.emit(f.CommitLate(9.0, 1.0))
        logging.getLogger("elsewhere").warning("of %s", "users")
        try:
            raise ValueError("x")
        except ValueError:
            logging.getLogger("elsewhere").exception("failed")
    finally:
        root.handlers[:] = handlers
        root.setLevel(before)
        logging.getLogger("penstock").setLevel(level)
    said = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["message"] for line in said] == ["Commit is late", "of users", "failed"]
    assert "ValueError: x" in said[2]["exception"]
