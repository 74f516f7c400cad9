"""The files of ``docker/``: loadable by Compose, pinned, on loopback, true to what they install."""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from penstock.streams.cli.main import build_parser
from penstock.streams.cli.worker import SETTINGS
from penstock.streams.worker.load_settings import load_settings
from penstock.streams.worker.metrics_endpoint import MetricsEndpoint, Report, Starting
from penstock.topologies.operators.records.source_sink import SinkSpec, SourceSpec

ROOT = Path(__file__).parents[1]
COMPOSE = ROOT / "docker" / "compose.yaml"
DOCKERFILE = (ROOT / "docker" / "Dockerfile").read_text()


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    """The services of the compose file, merge keys resolved."""
    loaded: dict[str, Any] = YAML(typ="safe").load(COMPOSE)
    return {name: dict(service) for name, service in loaded["services"].items()}


def test_compose_file_keeps_the_specification() -> None:
    """By Docker Compose itself where its plugin is installed, and everywhere by the published schema."""
    checks = [[sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(COMPOSE)]]
    docker = shutil.which("docker")
    if docker and subprocess.run([docker, "compose", "version"], capture_output=True).returncode == 0:
        checks.append([docker, "compose", "-f", str(COMPOSE), "config", "--quiet"])
    for check in checks:
        done = subprocess.run(check, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr


def test_compose_has_kafka_two_workers_and_spark(services: dict[str, Any]) -> None:
    assert set(services) >= {"kafka", "worker-a", "worker-b", "spark"}
    for name, service in services.items():
        assert "healthcheck" in service or service["restart"] == "no", f"{name} has no health check"


def test_images_are_pinned(services: dict[str, Any]) -> None:
    bases = re.findall(r"^FROM (\S+:\S+)", DOCKERFILE, flags=re.MULTILINE)
    pulled = [service["image"] for service in services.values() if "build" not in service]
    assert bases and pulled
    for image in [*bases, *pulled]:
        assert re.search(r":\d+\.\d+\.\d+", image), f"{image} names no exact version"


def test_ports_are_published_on_loopback_only(services: dict[str, Any]) -> None:
    ports = [port for service in services.values() for port in service.get("ports", [])]
    assert ports
    assert [port for port in ports if not port.startswith("127.0.0.1:")] == []


def test_build_targets_exist(services: dict[str, Any]) -> None:
    targets = {service["build"]["target"] for service in services.values() if "build" in service}
    stages = set(re.findall(r"^FROM \S+ AS (\S+)", DOCKERFILE, flags=re.MULTILINE))
    assert {"worker", "spark"} <= targets <= stages


def test_dockerfile_copies_what_exists() -> None:
    sources = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, flags=re.MULTILINE)
    copied = [path for paths in sources for path in paths.split()]
    mounted = re.findall(r"type=bind,source=([^,]+),", DOCKERFILE)
    assert {"state", "topologies", "streams"} <= set(copied)
    assert [path for path in [*copied, *mounted] if not (ROOT / path).exists()] == []
    stages = re.findall(r"^FROM \S+ AS (\S+)", DOCKERFILE, flags=re.MULTILINE)
    taken = re.findall(r"(?:--from=|,from=)([\w-]+)", DOCKERFILE)
    assert "native" in taken
    assert set(taken) <= set(stages)


def test_images_get_the_compiled_part_under_the_name_that_is_imported() -> None:
    name = re.search(r'^name = "(\w+)"', (ROOT / "native" / "Cargo.toml").read_text().split("[lib]")[1], re.MULTILINE)
    assert name is not None
    laid = re.findall(r"^COPY --from=native \S+/lib(\w+)\.so \S+/(\w+)\.abi3\.so$", DOCKERFILE, flags=re.MULTILINE)
    assert laid == [(name[1], name[1])] * 2


def test_workers_run_a_topology_that_exists_on_topics_that_are_made(services: dict[str, Any]) -> None:
    ((module, name),) = re.findall(r":-([\w.]+):(\w+)}", services["worker-a"]["command"][1])
    topology = getattr(importlib.import_module(module), name)()
    (made,) = re.findall(r":-([\w -]+)}", services["topics"]["environment"]["TOPICS"])
    read_or_written = {
        endpoint.topic
        for endpoint in topology.operators.values()
        if isinstance(endpoint, SourceSpec | SinkSpec) and not endpoint.internal
    }
    assert services["worker-a"]["command"] == services["worker-b"]["command"]
    assert set(made.split()) == read_or_written


def resolved(text: str) -> str:
    """A value of the compose file where none of its variables is set."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)


def test_own_topologies_in_the_readme_merge_into_the_workers(services: dict[str, Any]) -> None:
    readme = (ROOT / "docker" / "README.md").read_text()
    (override,) = re.findall(r"^```yaml\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    named = YAML(typ="safe").load(override)["services"]
    assert set(named) == {"worker-a", "worker-b"} <= set(services)
    for service in named.values():
        (mounted,) = service["volumes"]
        assert mounted.split(":")[1] == service["environment"]["PYTHONPATH"]


@pytest.mark.parametrize("name", ["worker-a", "worker-b"])
def test_workers_have_the_settings_that_they_need(name: str, services: dict[str, Any]) -> None:
    argv = [resolved(word) for word in services[name]["command"]]
    args = build_parser(argv).parse_args(argv)
    environment = {variable: resolved(value) for variable, value in services[name]["environment"].items()}
    settings = load_settings(args.config, env=environment, **{s: getattr(args, s) for s in SETTINGS})
    assert (settings.application_id, settings.bootstrap_servers) == ("word-count", "kafka:9092")


@pytest.mark.parametrize("name", ["worker-a", "worker-b"])
@pytest.mark.parametrize("well", [True, False])
def test_health_check_of_a_worker_asks_its_health_page(name: str, well: bool, services: dict[str, Any]) -> None:
    """The command of the file, run against a real endpoint on another port."""
    command = services[name]["healthcheck"]["test"]
    port = services[name]["environment"]["PENSTOCK_METRICS_PORT"]
    assert command[:3] == ["CMD", "python", "-c"]
    assert command[3].count(f":{port}/") == 1
    endpoint = MetricsEndpoint(("127.0.0.1", 0), HealthPages(well))
    try:
        asked = command[3].replace(f":{port}/", f":{endpoint.port}/")
        done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, timeout=60)
    finally:
        endpoint.close()
    assert (done.returncode == 0) == well, done.stderr
    assert well or "503" in done.stderr


class HealthPages(Starting):
    """The pages of a worker that is healthy, or not."""

    def __init__(self, well: bool) -> None:
        self._well = well

    def health(self) -> Report:
        return Report(self._well, {})


def test_variables_of_the_compose_file_are_documented() -> None:
    asked = set(re.findall(r"(?<!\$)\$\{(\w+)", COMPOSE.read_text()))
    told = set(re.findall(r"^\| `(PENSTOCK_\w+)` \|", (ROOT / "docker" / "README.md").read_text(), re.MULTILINE))
    assert asked == told


def test_images_install_what_development_pins() -> None:
    def pins(name: str) -> set[str]:
        return set(re.findall(r"^[\w.-]+==[^\s\\]+", (ROOT / "requirements" / name).read_text(), re.MULTILINE))

    developed = pins("dev.lock")
    for image in ("worker.lock", "spark.lock"):
        assert pins(image) <= developed, f"{image} differs from dev.lock: run make lock"
    assert any(pin.startswith("pyspark==") for pin in pins("spark.lock"))
