"""Decide whether the compiled reader and writer can be used with this client.

``penstock_native`` (folder ``native/``, see ``penstock.state.native``) is optional. It works on the client's own
librdkafka handle. So it is used only with client releases whose sources were checked for what it relies on, and only if
the handle looks as expected; both checks touch nothing that could end the process. Then some records go through it
(``client_check``), once per process. If anything is unexpected, the plain path is used, with one line in the log.

It relies on this: the handle is the first field of ``Consumer`` and ``Producer``; the delivery callback skips records
without an opaque; records and errors of a partition are on its queue, and callbacks never are.
"""

from __future__ import annotations

import functools
import importlib.metadata
import logging
import os
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_args

import confluent_kafka
from confluent_kafka import cimpl

from penstock.state import native
from penstock.state.errors import EnvironmentFault, SettingsError
from penstock.streams.kafka import client_check
from penstock.topologies.operators.columnar.kernel_check import why_not_trusted

if TYPE_CHECKING:
    import penstock_native

MODE_ENV = "PENSTOCK_NATIVE"
_CLIENTS = ((2, 13), (2, 17))
"""The supported client releases: from the first one on, below the second."""

_log = logging.getLogger("penstock.kafka")
_T = TypeVar("_T")


def open_reader(
    client: confluent_kafka.Consumer, config: Mapping[str, Any], mode: str = "auto"
) -> penstock_native.Reader | None:
    """Open a reader on this consumer; ``None``: read plainly. ``mode`` as ``penstock.state.native.Choice``: with
    ``auto`` it is used if it is installed and fits; with ``require`` it raises ``EnvironmentFault`` if it does not.
    ``PENSTOCK_NATIVE`` overrides ``auto``."""
    return _opened("reading", mode, lambda module: module.Reader(client, *_known(config)))


def open_writer(
    client: confluent_kafka.Producer, config: Mapping[str, Any], mode: str = "auto"
) -> penstock_native.Writer | None:
    """Open a writer on this producer, as ``open_reader``."""
    return _opened("writing", mode, lambda module: module.Writer(client, *_known(config)))


def _opened(doing: str, mode: str, open_on: Callable[[Any], _T]) -> _T | None:
    choice = chosen(mode)
    if choice == "off":
        return None
    module, why = _module()
    if module is not None:
        try:
            return open_on(module)
        except RuntimeError as exc:
            why = f"the client is not built as expected: {exc}"
    if choice == "require":
        raise EnvironmentFault(f"{doing} natively is required, and {why}; or set native='auto'")
    _say(f"{doing} without the native part: {why}")
    return None


def chosen(mode: str) -> native.Choice:
    """Return the effective mode: the environment decides if the settings leave it open."""
    named = os.environ.get(MODE_ENV, "auto") if mode == "auto" else mode
    for choice in get_args(native.Choice):
        if named == choice:
            return cast(native.Choice, choice)
    raise SettingsError(f"native={named!r}; choose one of {', '.join(get_args(native.Choice))}")


def choose(mode: str) -> None:
    """Turn the compiled part on or off for this process, as ``chosen`` says. If its kernels answer differently from
    their Python versions, it is not used, or ``EnvironmentFault`` is raised under ``require``."""
    choice = chosen(mode)
    native.choose(choice)
    if (wrong := _why_not_trusted()) is None:
        return
    if choice == "require":
        raise EnvironmentFault(f"native='require', and {wrong}: run make native, or set native='auto'")
    native.choose("off")
    _say(f"going on without the native part: {wrong}; run make native, or all is several times slower", logging.WARNING)


@functools.cache
def _why_not_trusted() -> str | None:
    """Check once per process: the module stays the same."""
    return why_not_trusted()


@functools.cache
def _say(line: str, level: int = logging.INFO) -> None:
    """Log once per process: every client would log the same."""
    _log.log(level, line)


def _module() -> tuple[Any, str]:
    """Return the module, or why it is not used."""
    if (module := native.compiled()) is None:
        return None, native.why_not() or "it is turned off for this process"
    why = _why_not_this_client() or _why_not_passing(module)
    return (module, "") if why is None else (None, why)


@functools.cache
def _why_not_this_client() -> str | None:
    version = importlib.metadata.version("confluent-kafka")
    number = re.match(r"(\d+)\.(\d+)", version)
    if number is None or not _CLIENTS[0] <= (int(number[1]), int(number[2])) < _CLIENTS[1]:
        return f"confluent-kafka {version} is not one of the releases whose sources were read for it"
    return None


@functools.cache
def _why_not_passing(module: Any) -> str | None:
    """Check once per process, when the first client is opened."""
    known = _known({"client.id": client_check.CLIENT_ID})
    return client_check.why_not_passing(
        client_check.Native(lambda client: module.Reader(client, *known), lambda client: module.Writer(client, *known))
    )


def _known(config: Mapping[str, Any]) -> tuple[str, int, str]:
    """Return what the module checks a client against: its extension module, its library's version, its name."""
    return str(cimpl.__file__), int(confluent_kafka.libversion()[1]), str(config.get("client.id", "rdkafka"))
