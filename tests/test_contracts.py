"""The import contracts of pyproject.toml bite: each is broken by the offence planted for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OFFENCES = {
    "rooms": ("topologies/planted.py", "import penstock.streams.ports.log"),
    "hosts": ("streams/batch/planted.py", "import penstock.streams.spark.slots"),
    "streams-rooms": ("streams/task/planted.py", "import penstock.streams.runtime.runtime"),
    "topologies-rooms": ("topologies/operator_api/planted.py", "import penstock.topologies.dsl.builder"),
    "operators-rooms": (
        "topologies/operators/base/planted.py",
        "import penstock.topologies.operators.joins.side_input",
    ),
    "core": ("topologies/planted.py", "import time"),
    "home-confluent-kafka": ("streams/cli/planted.py", "import confluent_kafka"),
    "home-prometheus-client": ("streams/kafka/planted.py", "import prometheus_client"),
    "home-pyspark": ("streams/batch/planted.py", "import pyspark.sql"),
    "home-pyarrow": ("state/planted.py", "import pyarrow"),
    "home-faust": ("streams/cli/planted.py", "def main() -> None:\n    import faust"),
    "kafka-chosen-by-hosts": ("streams/batch/planted.py", "from penstock.streams.kafka.consumer import KafkaConsumer"),
    "rocksdb-chosen-once": (
        "streams/worker/planted.py",
        "from penstock.state.rocksdb.rocksdb_backend import RocksDBBackend",
    ),
    "home-rocksdict": ("streams/spark/planted.py", "from rocksdict import Rdict"),
}
# Besides a plain import: through a middleman, and in a module that nobody has named in the contract yet.
ROUNDABOUT = [
    ("streams/planted.py", "import threading"),
    ("state/planted.py", "from pathlib import Path"),
    ("streams/planted.py", "import penstock.streams.kafka.planted"),
]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the package, links resolved, with the contracts beside it."""
    skip = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / ".package" / "penstock", tmp_path / "penstock", ignore=skip)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def plant(tree: Path, file: str, code: str) -> None:
    """Add a module with one offence."""
    path = tree / "penstock" / file
    path.write_text(f'"""Planted."""\n{code}\n')


def broken(tree: Path, contract: str) -> bool:
    """Whether import-linter finds the contract broken in the tree."""
    call = f"lint_imports(limit_to_contracts=({contract!r},), no_cache=True)"
    code = f"from importlinter.cli import lint_imports; raise SystemExit({call})"
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONSAFEPATH": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tree, env=environment, capture_output=True, text=True, timeout=300
    )
    verdict = f"{1 - done.returncode} kept, {done.returncode} broken."
    assert f"Contracts: {verdict}" in done.stdout, done.stdout + done.stderr
    return done.returncode == 1


@pytest.mark.parametrize("contract", OFFENCES)
def test_contract_holds_and_is_broken_by_its_offence(tree: Path, contract: str) -> None:
    assert not broken(tree, contract), "the tree itself breaks the contract: make lint tells where"
    plant(tree, *OFFENCES[contract])
    assert broken(tree, contract)


@pytest.mark.parametrize("offence", ROUNDABOUT)
def test_new_modules_are_core_until_named_as_an_edge(tree: Path, offence: tuple[str, str]) -> None:
    plant(tree, "streams/kafka/planted.py", "import socket")
    assert not broken(tree, "core"), "an edge may import what it likes"
    plant(tree, *offence)
    assert broken(tree, "core")
