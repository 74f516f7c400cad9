"""A worker's settings from code, a TOML file and the environment.

Strongest first: keyword arguments, ``PENSTOCK_…`` variables, the file's ``[penstock]`` table, defaults. Unknown names
are refused with the nearest known one. Librdkafka keys are in TOML under ``[penstock.common]`` and so on; in the
environment ``PENSTOCK_COMMON__SASL_PASSWORD`` is ``common["sasl.password"]``.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_type_hints

from penstock.state.errors import SettingsError
from penstock.state.rocksdb_options import RocksDBOptions
from penstock.streams.policies import Policies
from penstock.streams.settings import WorkerSettings

ENV_PREFIX = "PENSTOCK_"
_TABLES = ("common", "consumer", "producer")
_GROUPS: dict[str, Any] = {"policies": Policies, "rocksdb": RocksDBOptions}


def load_settings(path: str | Path | None = None, env: Mapping[str, str] | None = None, **given: Any) -> WorkerSettings:
    """Settings from a file, the environment (default: the process's) and keyword arguments; ``None`` values count as
    not given. Raises ``SettingsError`` for anything unknown, of a wrong type or out of bounds."""
    merged: dict[str, Any] = {}
    if path is not None:
        _merge(merged, _from_toml(Path(path)), str(path))
    _merge(merged, _from_env(os.environ if env is None else env), "the environment")
    _merge(merged, {k: v for k, v in given.items() if v is not None}, "the call")
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
    except tomllib.TOMLDecodeError as exc:
        raise SettingsError(f"the settings file {path} is not TOML: {exc}") from exc
    table = document.get("penstock")
    if not isinstance(table, dict):
        raise SettingsError(f"the settings file {path} has no [penstock] table; put the settings under it")
    for name in _TABLES:
        if name in table:
            table[name] = _flattened(table[name])
    return table


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
    known = {f.name for f in dataclasses.fields(WorkerSettings)}
    out: dict[str, Any] = {}
    for variable, text in env.items():
        if not variable.startswith(ENV_PREFIX):
            continue
        name, _, rest = variable[len(ENV_PREFIX) :].lower().partition("__")
        if rest and name in (*_TABLES, *_GROUPS):
            key = rest.replace("_", ".") if name in _TABLES else rest
            out.setdefault(name, {})[key] = text
        elif name in known:
            out[name] = text
    return out


def _merge(into: dict[str, Any], more: Mapping[str, Any], source: str) -> None:
    known = [f.name for f in dataclasses.fields(WorkerSettings)]
    for name, value in more.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]}?" if near else f"known are: {', '.join(known)}"
            raise SettingsError(f"{source} sets {name!r}, which is no setting; {hint}")
        if isinstance(value, Mapping) and isinstance(into.get(name), Mapping):
            into[name] = {**into[name], **value}
        else:
            into[name] = value


def _typed(cls: Any, values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The values with text made into numbers where the field is one. Raises ``SettingsError`` for wrong types."""
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
