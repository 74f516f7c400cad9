"""``penstock new NAME``: a folder with a topology, its test, settings, Dockerfile and CI, to begin with."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

import penstock
from penstock.state.errors import SettingsError, UserError

_NAME = re.compile(r"[a-z][a-z0-9_]{0,49}")

_TOPOLOGY = '''"""Counts the events of each user."""

import penstock as ps

builder = ps.StreamsBuilder("{name}", key=str, value=dict)
events = builder.stream("{name}-events")
counts = events.filter(lambda user, event: event.get("type") != "test").group_by_key().count(name="counts")
counts.to_stream().to("{name}-counts", value=int)
topology = builder.build()
'''

_TEST = """import penstock as ps

from {name} import topology


def test_events_are_counted_by_user() -> None:
    with ps.TopologyTestDriver(topology) as driver:
        driver.pipe("{name}-events", "ann", {{"type": "view"}})
        driver.pipe("{name}-events", "ann", {{"type": "test"}})
        driver.pipe("{name}-events", "ann", {{"type": "view"}})
        assert [(r.key, r.value) for r in driver.read("{name}-counts")] == [("ann", 1), ("ann", 2)]
"""

_SETTINGS = """# Any setting of a worker; environment variables PENSTOCK_... are stronger.
[penstock]
application_id = "{name}"
guarantee = "exactly_once"
"""

_README = """# {name}

    pip install -r requirements.txt pytest
    python -m pytest                                       # no broker is needed
    penstock dev {name}:topology --config penstock.toml    # Kafka, topics, a worker; restarts when you save

`penstock dev` says where its Kafka answers. In another terminal:

    export PENSTOCK_BOOTSTRAP_SERVERS=HOST:PORT
    echo 'ann|{{"type":"view"}}' | penstock produce {name}-events --key-separator '|'
    penstock lag {name}

Where Penstock is not in your package index, put its wheel (`make wheel` in its repository) into `wheels/`, and add
`--find-links wheels` to pip; the Dockerfile does so.

    docker build -t {name} .
    docker run -e PENSTOCK_BOOTSTRAP_SERVERS=kafka:9092 -v {name}-state:/var/lib/{name} {name}
"""

_REQUIREMENTS = "penstock>={version}\n"

_DOCKERFILE = """FROM python:3.11.14-slim-bookworm
RUN useradd --create-home --uid 10001 app && install -d -o app -g app /var/lib/{name}
WORKDIR /app
COPY requirements.txt ./
COPY wheel[s] wheels/
RUN pip install --no-cache-dir --find-links wheels -r requirements.txt
COPY {name}.py penstock.toml ./
# Keep it on a volume: without it, stores are restored from Kafka at each start.
ENV PENSTOCK_STATE_DIR=/var/lib/{name} PENSTOCK_METRICS_PORT=9400 PENSTOCK_METRICS_HOST=0.0.0.0
VOLUME /var/lib/{name}
USER 10001
# No shell in between, so that SIGTERM reaches the worker, which then commits and leaves its group.
ENTRYPOINT ["penstock", "worker", "{name}:topology", "--config", "penstock.toml"]
"""

_CI = """name: test
on: [push, pull_request]
jobs:
  test:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with:
          python-version: "3.11"
      - run: pip install --find-links wheels -r requirements.txt pytest
      - run: python -m pytest
"""

_PYTEST = """# Its tests run by themselves, also where the folder lies inside another project that uses pytest.
[pytest]
testpaths = .
"""

_IGNORED = """.penstock/
__pycache__/
.pytest_cache/
"""

FILES = {
    "{name}.py": _TOPOLOGY,
    "test_{name}.py": _TEST,
    "pytest.ini": _PYTEST,
    "penstock.toml": _SETTINGS,
    "requirements.txt": _REQUIREMENTS,
    "Dockerfile": _DOCKERFILE,
    ".github/workflows/test.yaml": _CI,
    ".gitignore": _IGNORED,
    "README.md": _README,
}
"""The files of a new project; each name and text is a format of the project's name and Penstock's version."""


def register(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser("new", help="create a project: topology, test, settings, Dockerfile and CI")
    parser.add_argument("name", metavar="NAME", help="of the folder, the module and the application: a-z, 0-9 and _")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Make it in the folder that the command is called in."""
    folder = make_project(Path.cwd(), args.name)
    print(f"made {folder.name}/ with {', '.join(sorted(p.name for p in folder.iterdir()))}")
    print(f"try it: cd {folder.name} && python -m pytest")
    return 0


def make_project(parent: Path, name: str) -> Path:
    """Make the project's folder, which must not be there yet. Raises ``SettingsError`` for a name that no module can have,
    and ``UserError`` where something has that name."""
    if not _NAME.fullmatch(name) or name == "penstock":
        raise SettingsError(
            f"{name!r} cannot name a project; use 1 to 50 of a-z, 0-9 and _, a letter first, and not penstock itself"
        )
    folder = parent / name
    try:
        folder.mkdir()
    except FileExistsError as exc:
        raise UserError(f"{folder} already exists; choose another name, or remove it") from exc
    for file, text in FILES.items():
        path = folder / file.format(name=name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.format(name=name, version=penstock.__version__))
    return folder
