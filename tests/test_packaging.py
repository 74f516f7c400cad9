"""Three folders, one import name: working tree, wheel, sdist and zip hold the same package.

The archives are built by hatchling itself, without a network.
"""

from __future__ import annotations

import ast
import importlib.metadata
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import penstock

ROOT = Path(__file__).parents[1]
ROOMS = ("state", "topologies", "streams")
LOCK = ROOT / "requirements" / "dev.lock"
# What a room may hold beside modules; a file of another kind is litter, or is to be declared here.
DATA_SUFFIXES = {".csv", ".css", ".html", ".js", ".json", ".svg", ".toml", ".txt"}
CLIENT_LIBRARIES = {"confluent_kafka", "faust", "pandas", "polars", "pyarrow", "pyspark", "rocksdict"}


def project() -> dict[str, object]:
    """The ``[project]`` table and, under ``dev``, the development group."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        tables = tomllib.load(file)
    return {**tables["project"], "dev": tables["dependency-groups"]["dev"]}


def room_files() -> set[str]:
    """Every file of the three rooms as its path inside the package, e.g. ``penstock/state/errors.py``."""
    found = (path for room in ROOMS for path in (ROOT / room).rglob("*"))
    return {
        f"penstock/{path.relative_to(ROOT)}" for path in found if path.is_file() and "__pycache__" not in path.parts
    }


def modules(*rooms: str) -> list[str]:
    """Import names of all modules of these rooms."""
    names = (
        path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for path in sorted(room_files())
        if path.endswith(".py")
    )
    return [name for name in names if name.split(".")[1] in rooms]


def python(code: str, *path: Path, arguments: Sequence[str] = ()) -> str:
    """Run code in a fresh interpreter outside the working tree, ``path`` first; what it printed."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path)), "PYTHONSAFEPATH": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        cwd="/",
        env=environment,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def build(kind: str, tree: Path, into: Path) -> Path:
    """Build ``wheel`` or ``sdist`` of a tree; the archive."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(into)],
        cwd=tree,
        check=True,
        capture_output=True,
        timeout=300,
    )
    (archive,) = into.iterdir()
    return archive


def contents(wheel: Path) -> dict[str, bytes]:
    """Name and bytes of every file in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the working tree."""
    return build("wheel", ROOT, tmp_path_factory.mktemp("wheel"))


def test_links_point_at_the_real_folders() -> None:
    for room in ROOMS:
        link = ROOT / ".package" / "penstock" / room
        assert link.is_symlink()
        assert link.resolve() == ROOT / room
        assert not link.readlink().is_absolute(), "an absolute link breaks in the next clone"


def test_rooms_hold_only_modules_and_declared_kinds_of_data() -> None:
    strange = {path for path in room_files() if Path(path).suffix not in DATA_SUFFIXES | {".py"}}
    assert strange == set()


def test_wheel_holds_every_file_of_the_rooms_and_nothing_else(wheel: Path) -> None:
    held = {name for name in contents(wheel) if ".dist-info/" not in name}
    faces = {f"penstock/{path.name}" for path in (ROOT / ".package/penstock").iterdir() if path.is_file()}
    assert held == room_files() | faces


def test_wheel_of_the_sdist_equals_the_wheel_of_the_tree(wheel: Path, tmp_path: Path) -> None:
    sdist = build("sdist", ROOT, tmp_path / "sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "tree", filter="data")
    (tree,) = (tmp_path / "tree").iterdir()
    assert contents(build("wheel", tree, tmp_path / "wheel")) == contents(wheel)


NATIVE_WHEEL = "penstock_native-{version}-cp311-abi3-manylinux2014_x86_64.manylinux_2_17_x86_64.whl"


def with_native(folder: Path, version: str) -> subprocess.CompletedProcess[str]:
    """A build of the wheel with a compiled part of this version; here its module is one line of text."""
    native = folder / NATIVE_WHEEL.format(version=version)
    with zipfile.ZipFile(native, "w") as archive:
        archive.writestr("penstock_native/__init__.py", "from .penstock_native import *\n")
        archive.writestr("penstock_native/penstock_native.abi3.so", "the module")
    return subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / "out")],
        cwd=ROOT,
        env={**os.environ, "NATIVE_WHEEL": str(native)},
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_a_wheel_of_one_platform_has_the_compiled_part_besides(wheel: Path, tmp_path: Path) -> None:
    done = with_native(tmp_path, penstock.__version__)
    assert done.returncode == 0, done.stderr
    (built,) = (tmp_path / "out").iterdir()
    tags = "cp311-abi3-manylinux2014_x86_64.manylinux_2_17_x86_64"
    assert built.name == f"penstock-{penstock.__version__}-{tags}.whl"
    held, plain = contents(built), contents(wheel)
    stub = (ROOT / "native" / "penstock_native.pyi").read_bytes()
    assert held["penstock_native.abi3.so"] == b"the module" and held["penstock_native.pyi"] == stub
    changed = {name for name in held if held[name] != plain.get(name)}
    info = f"penstock-{penstock.__version__}.dist-info"
    assert changed == {"penstock_native.abi3.so", "penstock_native.pyi", f"{info}/WHEEL", f"{info}/RECORD"}
    assert b"Root-Is-Purelib: false" in held[f"{info}/WHEEL"]
    assert b"Tag: cp311-abi3-manylinux_2_17_x86_64\n" in held[f"{info}/WHEEL"]


def test_a_compiled_part_of_another_version_does_not_go_in(tmp_path: Path) -> None:
    done = with_native(tmp_path, "0.0.1")
    assert done.returncode != 0 and "build native/ again" in done.stderr


def test_the_compiled_part_has_the_version_of_the_package() -> None:
    with (ROOT / "native" / "Cargo.toml").open("rb") as file:
        assert tomllib.load(file)["package"]["version"] == penstock.__version__


def test_zip_on_the_path_serves_the_package(wheel: Path) -> None:
    names = modules("state", "topologies")
    out = python(f"import {', '.join(names)}; print(penstock.__file__)", wheel)
    assert out.strip() == str(wheel / "penstock" / "__init__.py")


@pytest.mark.parametrize(("room", "above"), [("state", ("topologies", "streams")), ("topologies", ("streams",))])
def test_lower_rooms_do_not_load_upper_ones(room: str, above: tuple[str, ...]) -> None:
    loaded = python(f"import sys, {', '.join(modules(room))}; print(*sys.modules)", ROOT / ".package").split()
    assert f"penstock.{room}" in loaded
    assert [name for name in loaded if name.startswith(tuple(f"penstock.{upper}" for upper in above))] == []


ALONE = ["penstock", "penstock.state", "penstock.streams", "penstock.streams.cli.main", *modules("topologies")]
# Each name is imported in a process that has imported nothing of ours. A fork takes a hundredth of an interpreter's
# start, and less where the libraries that all of them need are there already.
IMPORT_ALONE = """
import importlib, os, sys, traceback
import msgspec, numpy, orjson
for name in sys.argv[1:]:
    child = os.fork()
    if not child:
        try:
            importlib.import_module(name)
            print(name, *sys.modules, flush=True)
        except BaseException:
            traceback.print_exc()
        os._exit(0)
    os.waitpid(child, 0)
"""


@pytest.fixture(scope="module")
def loaded_alone() -> dict[str, set[str]]:
    """What importing each name, and nothing before it, loads; without the names that could not be imported."""
    lines = python(IMPORT_ALONE, ROOT / ".package", arguments=ALONE).splitlines()
    return {words[0]: set(words) for words in map(str.split, lines) if words and words[0] in ALONE}


@pytest.mark.parametrize("name", ALONE)
def test_import_loads_no_client_library(name: str, loaded_alone: dict[str, set[str]]) -> None:
    assert name in loaded_alone, python(f"import {name}", ROOT / ".package")
    assert CLIENT_LIBRARIES.intersection(loaded_alone[name]) == set()


def test_importing_every_module_only_defines() -> None:
    code = f"import threading, {', '.join(modules(*ROOMS))}; print(threading.active_count())"
    assert python(code, ROOT / ".package").strip() == "1", "something printed or started a thread on import"


def test_the_pythons_that_the_package_names_are_those_that_are_tried() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        classifiers = tomllib.load(file)["project"]["classifiers"]
    named = [c.rpartition(" ")[2] for c in classifiers if re.search(r"Python :: 3\.\d+$", c)]
    tried = re.search(r"PYTHONS:-([\d. ]+)}", (ROOT / ".ci/pythons").read_text())
    assert tried is not None
    assert named == tried[1].split()


def test_command_is_installed() -> None:
    (command,) = importlib.metadata.entry_points(group="console_scripts", name="penstock")
    assert command.value == "penstock.streams.cli.main:main"
    assert callable(command.load())


def declared() -> list[Requirement]:
    """Every requirement that the project declares, extras and the development group included."""
    tables = project()
    extras = tables["optional-dependencies"]
    assert isinstance(extras, dict)
    groups = [tables["dependencies"], tables["dev"], *extras.values()]
    return [Requirement(line) for group in groups for line in group]


def test_engines_and_test_runner_are_declared() -> None:
    names = {requirement.name for requirement in declared()}
    assert names >= {"pyspark", "confluent-kafka", "rocksdict", "faust-streaming", "pytest"}


def test_imported_distributions_are_declared() -> None:
    known = {canonicalize_name(requirement.name) for requirement in declared()}
    distributions = importlib.metadata.packages_distributions()
    roots = {
        name.split(".")[0]
        for path in (file for room in ROOMS for file in (ROOT / room).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        for name in imported(node)
    }
    assert roots >= {"msgspec", "penstock"}
    # penstock_native is built from native/ of this repository, and optional. Only type checkers import typing_extensions,
    # whose stub each of them brings along.
    for root in roots - sys.stdlib_module_names - {"penstock", "penstock_native", "typing_extensions"}:
        owners = {canonicalize_name(owner) for owner in distributions.get(root, [])}
        assert owners & known, f"{root} is imported, and no requirement of pyproject.toml brings it"


def imported(node: ast.AST) -> list[str]:
    """The modules that an import statement names."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module] if isinstance(node, ast.ImportFrom) and node.module else []


def test_lock_pins_every_declared_requirement() -> None:
    pins: dict[str, list[str]] = {}
    for name, version in re.findall(r"^([\w.-]+)==([^\s;]+)", LOCK.read_text(), flags=re.MULTILINE):
        pins.setdefault(canonicalize_name(name), []).append(version)
    for requirement in declared():
        pinned = pins.get(canonicalize_name(requirement.name), [])
        assert pinned, f"{requirement.name} is not in {LOCK.name}: run make lock"
        assert all(version in requirement.specifier for version in pinned), f"{requirement}: run make lock"


def test_lock_names_no_index_and_hashes_every_pin() -> None:
    text = LOCK.read_text()
    assert re.search(r"https?://|--(extra-)?index-url|--find-links", text) is None
    for entry in re.split(r"\n(?=[\w.-]+==)", text)[1:]:
        assert "--hash=sha256:" in entry, f"no hash: {entry.splitlines()[0]}"
