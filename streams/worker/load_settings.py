"""A worker's settings from code, a TOML file and the environment.

Strongest first: keyword arguments, ``PENSTOCK_…`` variables, the file's ``[penstock]`` table, defaults. An unknown
name is refused, and the nearest known one is suggested. Librdkafka keys are in TOML under ``[penstock.common]`` and
so on; in the environment ``PENSTOCK_COMMON__SASL_PASSWORD`` is ``common["sasl.password"]``. ``OTHER_VARIABLES`` names
the project's variables that are not settings; any other ``PENSTOCK_…`` is refused.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import re
import tomllib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, get_type_hints

from penstock.state.errors import SettingsError
from penstock.state.rocksdb.tuning import RocksDBOptions
from penstock.streams.task.error_policies import Policies
from penstock.streams.worker.settings import WorkerSettings

ENV_PREFIX = "PENSTOCK_"
OTHER_VARIABLES = frozenset(
    {
        "PENSTOCK_BENCHMARK_CHILD",  # benchmarks/: a worker process below another
        "PENSTOCK_CACHE",  # where jars and the state files of embedded clusters are kept
        "PENSTOCK_FAILPOINTS",  # streams/worker/failpoint_actions.py: where tests strike
        "PENSTOCK_IVY_SETTINGS",  # from where Kafka's jars are fetched
        "PENSTOCK_LIFELINE_FD",  # streams/worker/supervisor.py: the pipe to the supervisor
        "PENSTOCK_TOPICS",  # docker/compose.yaml: what is made before the workers start
        "PENSTOCK_TOPOLOGY",  # docker/compose.yaml: what the workers run
    }
)
"""Variables that have the prefix of settings but are not settings."""
_TABLES = ("common", "consumer", "producer")
_GROUPS: dict[str, Any] = {"policies": Policies, "rocksdb": RocksDBOptions}


def load_settings(
    path: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    *,
    unset: Mapping[str, Callable[[], Any]] | None = None,
    **given: Any,
) -> WorkerSettings:
    """Settings from a file, the environment (default: the process's) and keyword arguments; ``None`` values count as
    not given. ``unset``: by the name of a setting, a function that is called if nothing sets it; if it returns
    ``None``, the default holds. Raises ``SettingsError`` for anything unknown, of a wrong type or out of bounds."""
    merged: dict[str, Any] = {}
    if path is not None:
        _merge(merged, _from_toml(Path(path)), str(path))
    _merge(merged, _from_env(os.environ if env is None else env), "the environment")
    _merge(merged, {k: v for k, v in given.items() if v is not None}, "the call")
    for name, ask in (unset or {}).items():
        if name not in merged and (value := ask()) is not None:
            merged[name] = value
    if "application_id" not in merged:
        raise SettingsError(
            "application_id is missing; give --application-id, PENSTOCK_APPLICATION_ID or put it in the file"
        )
    for name, group in _GROUPS.items():
        if isinstance(merged.get(name), Mapping):
            merged[name] = group(**_typed(group, merged[name], f"[penstock.{name}]"))
    return WorkerSettings(**_typed(WorkerSettings, merged, "the settings"))


def _from_toml(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            document = tomllib.load(file)
    except OSError as exc:
        raise SettingsError(f"the settings file {path} cannot be read ({exc.strerror}); check --config") from exc
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise SettingsError(f"the settings file {path} is not TOML: {exc}") from exc
    table = document.get("penstock")
    if not isinstance(table, dict):
        raise SettingsError(f"the settings file {path} has no [penstock] table; put the settings under it")
    for name in _TABLES:
        if name in table:
            if not isinstance(table[name], dict):  # what it is instead is not shown: it may be a secret
                raise SettingsError(f"{name} in {path} must be a table; put its keys under [penstock.{name}]")
            table[name] = _flattened(table[name])
    return table


_SERVICE_LINK = re.compile(r"\w+_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)")
"""The variables that Kubernetes sets in every container for a Service whose name begins with penstock."""


def _flattened(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """``sasl.password = …`` without quotes is a nested table in TOML; librdkafka's keys are flat."""
    out: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            out |= _flattened(value, f"{prefix}{key}.")
        else:
            out[prefix + key] = value
    return out


def _from_env(env: Mapping[str, str]) -> dict[str, Any]:
    plain = {f.name for f in dataclasses.fields(WorkerSettings)} - {*_TABLES, *_GROUPS}
    out: dict[str, Any] = {}
    for variable, text in env.items():
        if not variable.startswith(ENV_PREFIX) or variable in OTHER_VARIABLES:
            continue
        name, parted, rest = variable[len(ENV_PREFIX) :].lower().partition("__")
        if rest and name in (*_TABLES, *_GROUPS):
            key = rest.replace("_", ".") if name in _TABLES else rest
            out.setdefault(name, {})[key] = text
        elif name in plain and not parted:
            out[name] = text
        elif not _SERVICE_LINK.fullmatch(variable):
            raise _unknown_variable(variable, plain)
    return out


def _unknown_variable(variable: str, plain: Collection[str]) -> SettingsError:
    """The error for a variable that is not a setting. Its value is not shown: it may be a secret."""
    groups = {name: f"{ENV_PREFIX}{name.upper()}__" for name in (*_TABLES, *_GROUPS)}
    inner = [f"{groups[g]}{f.name.upper()}" for g, cls in _GROUPS.items() for f in dataclasses.fields(cls)]
    known = [*(ENV_PREFIX + name.upper() for name in plain), *inner, *groups.values(), *OTHER_VARIABLES]
    near = difflib.get_close_matches(variable, known, 1)
    meant = near[0] + "KEY" if near and near[0] in groups.values() else (near or [""])[0]
    hint = f"did you mean {meant}? Rename it" if near else "variables are called as the settings are. Correct it"
    return SettingsError(f"the environment sets {variable}, which is not a setting; {hint}, or unset it")


def _merge(into: dict[str, Any], more: Mapping[str, Any], source: str) -> None:
    known = [f.name for f in dataclasses.fields(WorkerSettings)]
    for name, value in more.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]}?" if near else f"known are: {', '.join(known)}"
            raise SettingsError(f"{source} sets {name!r}, which is not a setting; {hint}")
        if isinstance(value, Mapping) and isinstance(into.get(name), Mapping):
            into[name] = {**into[name], **value}
        else:
            into[name] = value


def _typed(cls: Any, values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The values, with text converted to numbers for numeric fields. Raises ``SettingsError`` for wrong types."""
    hints = get_type_hints(cls)
    out: dict[str, Any] = {}
    for name, value in values.items():
        if name not in hints:
            near = difflib.get_close_matches(name, list(hints), 1)
            raise SettingsError(f"{where} has no {name!r}" + (f"; did you mean {near[0]}?" if near else ""))
        wanted = hints[name]
        if wanted in (int, float) and isinstance(value, str):
            try:
                value = wanted(value.replace("_", ""))
            except ValueError as exc:
                raise SettingsError(f"{name}={value!r} in {where}: it must be a number") from exc
        simple: Any = {int: int, float: (int, float), str: str}.get(wanted)
        if simple is not None and (not isinstance(value, simple) or isinstance(value, bool)):
            raise SettingsError(
                f"{name}={value!r} in {where}: it must be {wanted.__name__}, not {type(value).__name__}"
            )
        out[name] = value
    return out
