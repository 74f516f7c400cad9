"""A module of the tests in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def started(module: str, order: Mapping[str, Any], log: Path) -> subprocess.Popen[bytes]:
    """Start ``python -m MODULE ORDER``, with the order as JSON. What it prints goes to ``log``."""
    with log.open("wb") as out:
        return subprocess.Popen(
            [sys.executable, "-m", module, json.dumps(order)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / ".package"), str(ROOT)])},
            stdout=out,
            stderr=subprocess.STDOUT,
        )
