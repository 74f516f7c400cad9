"""The libraries of the extra ``schemas``, imported when they are first used."""

from __future__ import annotations

import functools
import importlib
from typing import Any

from penstock.state.errors import SettingsError


@functools.cache
def needed(module: str) -> Any:
    """The module. Raises ``SettingsError`` with the command that installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as exc:
        raise SettingsError(f"{module} is not installed ({exc}); run: pip install 'penstock[schemas]'") from exc
