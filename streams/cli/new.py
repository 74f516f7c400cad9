"""``penstock new NAME``: a folder with a topology, its test and its settings, to begin with."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

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

    python -m pytest                                       # no broker is needed
    penstock up                                            # Kafka on this machine
    penstock topics create {name}-events --partitions 4
    penstock topics create {name}-counts --partitions 4
    penstock worker {name}:topology --config penstock.toml

In another terminal:

    echo 'ann|{{"type":"view"}}' | penstock produce {name}-events --key-separator '|'
    penstock lag {name}
"""

FILES = {"{name}.py": _TOPOLOGY, "test_{name}.py": _TEST, "penstock.toml": _SETTINGS, "README.md": _README}
"""What a new project has; each name and text is a format of the project's name."""


def register(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser("new", help="create a folder with a topology, its test and its settings")
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
        (folder / file.format(name=name)).write_text(text.format(name=name))
    return folder
