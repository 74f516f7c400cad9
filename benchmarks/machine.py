"""The machine that figures belong to: its kind, by which stored figures are found, and the versions of what ran."""

from __future__ import annotations

import importlib
import os
import platform
import re
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.systems import ROOT

PACKAGES = ("confluent-kafka", "rocksdict", "orjson", "msgspec", "numpy")


def cpu_model() -> str:
    """As the kernel names it (Linux), else as Python does."""
    try:
        names = re.findall(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        names = []
    return names[0].strip() if names else platform.processor() or platform.machine()


def kind(model: str | None = None, cores: int | None = None) -> str:
    """Processor and cores as a file's name: ``amd-epyc-2-cores``."""
    words = re.sub(r"[^a-z0-9]+", "-", (model or cpu_model()).lower()).strip("-")
    return f"{words}-{cores or os.cpu_count()}-cores"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _native() -> str:
    """The native part's interface; it is laid into the environment as a bare module, without a version."""
    try:
        return f"interface {importlib.import_module('penstock_native').INTERFACE}"
    except ImportError:
        return "not built"


def _said(command: list[str]) -> str:
    """The first line that a command prints; empty if it cannot be run."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    except OSError:
        return ""
    return (done.stdout or done.stderr).partition("\n")[0].strip()


def machine() -> dict[str, Any]:
    """Kind, cores, memory, kernel, the versions that matter, and the commit that ran."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "machine": kind(),
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "memory_gb": round(pages / 2**30),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "java": _said(["java", "-version"]),
        "commit": _said(["git", "rev-parse", "--short", "HEAD"]),
        "native": _native(),
        **{package: _version(package) for package in PACKAGES},
    }
