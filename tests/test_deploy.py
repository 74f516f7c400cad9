"""The files of ``deploy/``: true to a worker's metrics, settings and signals, and right for the tools that read them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from penstock.streams.cli.main import build_parser
from penstock.streams.cli.worker import STOP_LIMIT_S
from penstock.streams.events import metric_names
from penstock.streams.worker import exit_codes
from penstock.streams.worker.load_settings import load_settings
from penstock.streams.worker.worker_pages import WorkerPages

DEPLOY = Path(__file__).parents[1] / "deploy"
OF_PROCESSES = {"process_resident_memory_bytes", "up"}
"""What Prometheus and its client give of every process."""
OF_PROMETHEUS = {"instance", "job", "le"}
WORDS = re.compile(r"\b(penstock_\w+|process_\w+|up)\b")


def loaded(name: str) -> Any:
    """A YAML file."""
    return YAML(typ="safe").load(DEPLOY / name)


def alerts() -> list[dict[str, Any]]:
    """The rules of the alerts."""
    rules: list[dict[str, Any]] = loaded("monitoring/alerts.yaml")["groups"][0]["rules"]
    return rules


def panels() -> list[dict[str, Any]]:
    """The panels of the dashboard."""
    found: list[dict[str, Any]] = json.loads((DEPLOY / "monitoring/dashboard.json").read_text())["panels"]
    return found


def queries() -> list[str]:
    """Every query of the alerts and of the dashboard."""
    return [rule["expr"] for rule in alerts()] + [t["expr"] for panel in panels() for t in panel["targets"]]


def metric_of(word: str) -> str:
    """The metric that a series belongs to."""
    base = re.sub(r"_(bucket|sum|count)$", "", word)
    histogram = base in metric_names.BY_NAME and metric_names.BY_NAME[base].kind == "histogram"
    return base if histogram else word


@pytest.mark.parametrize("query", queries())
def test_queries_name_metrics_and_labels_that_workers_serve(query: str) -> None:
    words = {metric_of(word) for word in WORDS.findall(query)}
    assert words, query
    assert words - OF_PROCESSES <= metric_names.BY_NAME.keys()
    known = {label for word in words - OF_PROCESSES for label in metric_names.BY_NAME[word].labels} | OF_PROMETHEUS
    grouped = re.findall(r"\b(?:by|on) \(([^)]*)\)", query)
    asked = {label.strip() for group in grouped for label in group.split(",")}
    asked |= {label for inner in re.findall(r"\{([^}]*)\}", query) for label in re.findall(r"(\w+)(?:=~|=|!=)", inner)}
    assert asked <= known, query
    assert query.count("(") == query.count(")")


def test_histograms_are_read_by_their_buckets_and_counters_by_their_growth() -> None:
    for query in queries():
        for word in WORDS.findall(query):
            metric = metric_names.BY_NAME.get(metric_of(word))
            if metric is None:
                continue
            if metric.kind == "histogram":
                assert word.endswith("_bucket") and "histogram_quantile" in query and "by (le)" in query
            elif metric.kind == "counter":
                assert re.search(rf"(rate|increase)\({word}[\[{{]", query), query


def test_alerts_say_what_was_seen_and_what_to_do() -> None:
    assert len({rule["alert"] for rule in alerts()}) == len(alerts()) >= 8
    for rule in alerts():
        assert {"summary", "action"} == set(rule["annotations"])
        for label in re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())):
            aggregated = re.findall(r"\bby \(([^)]*)\)", rule["expr"])
            kept = {name.strip() for group in aggregated for name in group.split(",")}
            metrics = [metric_names.BY_NAME[w] for w in WORDS.findall(rule["expr"]) if w in metric_names.BY_NAME]
            own = {name for metric in metrics for name in metric.labels} | OF_PROMETHEUS
            assert label in (kept or own), f"{rule['alert']}: the query drops {label}"


def test_rules_are_right_for_prometheus_where_its_tool_is_installed() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed")
    subprocess.run([promtool, "check", "rules", str(DEPLOY / "monitoring/alerts.yaml")], check=True, timeout=60)


def test_dashboard_has_no_panel_over_another() -> None:
    places = [(p["gridPos"]["x"], p["gridPos"]["y"]) for p in panels()]
    assert len(set(places)) == len(places)
    assert all(p["gridPos"]["x"] + p["gridPos"]["w"] <= 24 for p in panels())
    assert len({p["id"] for p in panels()}) == len(panels())


def manifests() -> dict[str, Any]:
    """The Kubernetes objects by kind."""
    return {found["kind"]: found for found in YAML(typ="safe").load_all(DEPLOY / "kubernetes/worker.yaml")}


def pod() -> Any:
    """The pods of the StatefulSet."""
    return manifests()["StatefulSet"]["spec"]["template"]


def test_objects_select_the_pods_and_name_each_other() -> None:
    kinds = manifests()
    labels = pod()["metadata"]["labels"]
    assert set(kinds) == {"ConfigMap", "Service", "StatefulSet", "PodDisruptionBudget"}
    assert kinds["StatefulSet"]["spec"]["selector"]["matchLabels"] == labels
    assert kinds["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    assert kinds["Service"]["spec"]["selector"] == labels
    assert kinds["StatefulSet"]["spec"]["serviceName"] == kinds["Service"]["metadata"]["name"]
    assert kinds["PodDisruptionBudget"]["spec"]["maxUnavailable"] == 1
    volumes = {volume["name"]: volume for volume in pod()["spec"]["volumes"]}
    assert volumes["settings"]["configMap"]["name"] == kinds["ConfigMap"]["metadata"]["name"]
    claims = {claim["metadata"]["name"] for claim in kinds["StatefulSet"]["spec"]["volumeClaimTemplates"]}
    (container,) = pod()["spec"]["containers"]
    assert {mount["name"] for mount in container["volumeMounts"]} == claims | set(volumes)


def test_pods_run_a_worker_with_settings_that_it_takes(tmp_path: Path) -> None:
    (container,) = pod()["spec"]["containers"]
    (name,) = manifests()["ConfigMap"]["data"]
    (tmp_path / name).write_text(manifests()["ConfigMap"]["data"][name])
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    args = build_parser(["worker"]).parse_args(["worker", "shop:topology", *container["args"]])
    assert args.config == f"{mounts['settings']}/{name}"
    fields = {
        v["name"]: v["valueFrom"]["fieldRef"]["fieldPath"] for v in container["env"] if "fieldRef" in v["valueFrom"]
    }
    assert fields == {"PENSTOCK_GROUP_INSTANCE_ID": "metadata.name"}, "one identity per pod, the same after a restart"
    environment = {variable["name"]: "x" for variable in container["env"]}
    settings = load_settings(str(tmp_path / name), env=environment)
    assert settings.group_instance_id == "x"
    assert settings.common["sasl.password"] == "x"
    assert (settings.state_dir, settings.metrics_host) == (mounts["state"], "0.0.0.0")
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"metrics": settings.metrics_port}
    limit = int(container["resources"]["limits"]["memory"].removesuffix("Gi")) << 30
    assert settings.memory_max_bytes <= limit * 0.75


def test_probes_ask_pages_that_exist_and_pods_have_time_to_stop() -> None:
    (container,) = pod()["spec"]["containers"]
    for probe, page in (("livenessProbe", "health"), ("readinessProbe", "ready")):
        assert container[probe]["httpGet"] == {"path": f"/{page}", "port": "metrics"}
        assert callable(getattr(WorkerPages, page))
        assert container[probe]["timeoutSeconds"] > 5, "a page may take five seconds"
    grace_s = pod()["spec"]["terminationGracePeriodSeconds"]
    assert grace_s >= 2 * STOP_LIMIT_S


def unit() -> dict[str, str]:
    """The last value of each line of the systemd unit."""
    return dict(re.findall(r"^(\w+)=(.*)$", (DEPLOY / "systemd/penstock@.service").read_text(), re.MULTILINE))


def test_unit_stops_and_starts_again_as_workers_expect() -> None:
    assert int(unit()["TimeoutStopSec"]) >= 2 * STOP_LIMIT_S
    assert unit()["Restart"] == "always"
    assert unit()["RestartPreventExitStatus"] == str(exit_codes.USER_ERROR)
    words = unit()["ExecStart"].replace("%i", "shop").split()
    args = build_parser(words[1:]).parse_args(words[1:])
    assert (args.topology, args.config, args.processes) == ("shop:topology", "/etc/penstock/shop.toml", 2)
    assert unit()["Environment"].split()[0] == f"PENSTOCK_STATE_DIR=/var/lib/{unit()['StateDirectory']}"


def test_unit_is_right_for_systemd_where_it_is_installed(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd is not installed")
    text = (DEPLOY / "systemd/penstock@.service").read_text()
    file = tmp_path / "penstock@.service"
    file.write_text(text.replace("/opt/penstock/bin/penstock", "/bin/true").replace("User=penstock", "User=root"))
    done = subprocess.run([analyze, "verify", str(file)], capture_output=True, text=True, timeout=60)
    said = [line for line in done.stderr.splitlines() if "penstock" in line]
    assert (done.returncode, said) == (0, [])


def test_monitoring_lies_on_the_workers_of_the_compose_file() -> None:
    services = loaded("monitoring/compose.yaml")["services"]
    below = YAML(typ="safe").load(DEPLOY.parent / "docker" / "compose.yaml")["services"]
    changed = {name for name, service in services.items() if "image" not in service}
    assert changed <= set(below)
    (job,) = loaded("monitoring/prometheus.yaml")["scrape_configs"]
    targets = job["static_configs"][0]["targets"]
    assert targets == [f"{name}:{below[name]['environment']['PENSTOCK_METRICS_PORT']}" for name in sorted(changed)]
    assert f'up{{job="{job["job_name"]}"}} == 0' in {rule["expr"] for rule in alerts()}
    for name, service in services.items():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if source.startswith("."):
                assert (DEPLOY.parent / "docker" / source).resolve().is_file(), f"{name}: {source}"
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
        if "image" in service:
            assert re.search(r":v?\d+\.\d+\.\d+$", service["image"]), f"{name} has no exact version"


def test_settings_that_the_page_names_are_settings() -> None:
    page = (DEPLOY / "README.md").read_text()
    fields = set(tomllib.loads(manifests()["ConfigMap"]["data"]["penstock.toml"])["penstock"])
    assert {"session_timeout_ms", "memory_max_bytes"} <= {word for word in fields if f"`{word}`" in page}
