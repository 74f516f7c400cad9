"""Format log records as lines: for a person on a terminal, or as JSON for a collector."""

from __future__ import annotations

import logging
import sys
import time
from typing import Any, Literal, get_args

import orjson

from penstock.streams.events.sentences import FieldValue, Line

LogFormat = Literal["human", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]
FORMATS: tuple[LogFormat, ...] = get_args(LogFormat)
LEVELS: tuple[LogLevel, ...] = get_args(LogLevel)
FACT = "penstock_line"
"""The attribute of a log record that holds the line of a fact."""


def values_of(line: Line) -> str:
    """The fields of a line as ``key=value`` words."""
    return " ".join(f"{name}={_word(value)}" for name, value in line.fields.items())


def _word(value: FieldValue) -> str:
    if isinstance(value, list):
        return ",".join(value) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = str(value).replace("\n", " ")
    quoted = not text or any(c in text for c in ' "=')
    return orjson.dumps(text).decode() if quoted else text


class HumanFormatter(logging.Formatter):
    """Local time, level and message. The message of a fact is its sentence and its fields. ``process``: the number of a
    supervised process, whose lines it begins. ``error_follows``: of why a worker stopped only the class is given, as
    the command says all of it on the line behind."""

    def __init__(self, process: int | None = None, *, error_follows: bool = False) -> None:
        super().__init__()
        self._error_follows = error_follows
        self._process = "" if process is None else f"[process {process}] "

    def format(self, record: logging.LogRecord) -> str:
        """See the class."""
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        text = record.getMessage().replace("\n", " ")
        fact: Line | None = getattr(record, FACT, None)
        if fact is None:
            text = f"{record.name}: {text}"
        elif (
            self._error_follows and fact.fact == "WorkerStopped" and isinstance(cause := fact.fields.get("cause"), str)
        ):
            fields = {**fact.fields, "cause": cause.partition(":")[0]}
            text = f"{fact.sentence}. {values_of(fact._replace(fields=fields))}"
        line = f"{at}.{int(record.msecs):03d} {record.levelname:<7} {self._process}{text}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """One JSON object per line: ``time`` (UTC), ``level``, ``logger`` and ``message``; ``process``, the number of a
    supervised process; for a fact also ``fact`` and its fields."""

    def __init__(self, process: int | None = None) -> None:
        super().__init__()
        self._process: dict[str, Any] = {} if process is None else {"process": process}

    def format(self, record: logging.LogRecord) -> str:
        """See the class."""
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        out: dict[str, Any] = {
            "time": f"{at}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            **self._process,
        }
        line: Line | None = getattr(record, FACT, None)
        if line is None:
            out["message"] = record.getMessage()
        else:
            out |= {"message": line.sentence, "fact": line.fact, **line.fields}
        if record.exc_info:
            out["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(out, default=str).decode(errors="replace")


class StderrHandler(logging.StreamHandler[Any]):
    """Writes to the current standard error, so that progress bars can put lines above themselves."""

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__(sys.stderr)
        self.setFormatter(formatter)

    def emit(self, record: logging.LogRecord) -> None:
        """See the class."""
        self.stream = sys.stderr
        super().emit(record)


def set_up(level: LogLevel, form: LogFormat, process: int | None = None) -> None:
    """Write this process's log to standard error, with the number of a supervised process. Lines of other libraries are
    included from ``info`` on."""
    formatter = JsonFormatter(process) if form == "json" else HumanFormatter(process, error_follows=True)
    number = logging.getLevelNamesMapping()[level.upper()]
    logging.basicConfig(level=max(number, logging.INFO), handlers=[StderrHandler(formatter)], force=True)
    logging.getLogger("penstock").setLevel(number)
