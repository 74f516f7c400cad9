"""Loading settings: where they come from, which source is stronger, what is refused, and that no secret is shown."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from penstock.state.errors import SettingsError
from penstock.state.native import without
from penstock.state.rocksdb.tuning import RocksDBOptions
from penstock.streams.runtime.memory_budget import LEAST_BYTES
from penstock.streams.task.error_policies import Policies
from penstock.streams.task.task_options import STATE_CACHE_BYTES
from penstock.streams.worker import settings
from penstock.streams.worker.load_settings import OTHER_VARIABLES, load_settings
from penstock.streams.worker.secret_redaction import HIDDEN, redacted
from penstock.streams.worker.settings import CACHE_BYTES_MAX, WRITE_OUT_LOW_BYTES, WorkerSettings
from tests.test_tidy import ROOMS

ROOT = Path(__file__).parents[4]
SUFFIXES = {"", ".java", ".md", ".py", ".rs", ".toml", ".yaml"}
PYTHON_NAMES = {"PENSTOCK_ROWS"}
"""Constants of modules that look like variables."""
TOML = """
[penstock]
application_id = "from-file"
guarantee = "exactly_once"
state_dir = "/file"
[penstock.policies]
processing = "dead_letter"
dead_letter_topic = "dead"
[penstock.common]
sasl.password = "marker"
"security.protocol" = "SASL_SSL"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "worker.toml"
    path.write_text(TOML)
    return path


def test_defaults_follow_the_guarantee() -> None:
    assert WorkerSettings(application_id="a").commit_interval_ms == 1_000
    assert WorkerSettings(application_id="a", guarantee="exactly_once").commit_interval_ms == 100


def test_a_dead_workers_transaction_holds_nobody_up_for_longer_than_its_membership() -> None:
    assert WorkerSettings(application_id="a").transaction_timeout_ms == 10_000
    assert WorkerSettings(application_id="a", session_timeout_ms=6_000).transaction_timeout_ms == 6_000
    given = WorkerSettings(application_id="a", session_timeout_ms=6_000, transaction_timeout_ms=60_000)
    assert given.transaction_timeout_ms == 60_000


def test_file_is_read_with_its_groups(file: Path) -> None:
    settings = load_settings(file, env={})
    assert settings.application_id == "from-file"
    assert settings.policies == Policies(processing="dead_letter", dead_letter_topic="dead")
    assert settings.common == {"sasl.password": "marker", "security.protocol": "SASL_SSL"}


def test_environment_beats_the_file_and_the_call_beats_both(file: Path) -> None:
    env = {"PENSTOCK_STATE_DIR": "/env", "PENSTOCK_APPLICATION_ID": "env", "PENSTOCK_COMMON__CLIENT_ID": "me"}
    settings = load_settings(file, env=env, application_id="call", guarantee=None)
    assert (settings.application_id, settings.state_dir) == ("call", "/env")
    assert settings.common["client.id"] == "me" and settings.common["sasl.password"] == "marker"


def test_what_nothing_gives_is_asked_for(file: Path) -> None:
    def asked(unset: str | None, env: dict[str, str], **given: str) -> str:
        calls = {"bootstrap_servers": lambda: unset}
        return load_settings(file, env=env, unset=calls, **given).bootstrap_servers

    default = WorkerSettings(application_id="a").bootstrap_servers
    assert asked("running:1", {}) == "running:1"
    assert asked(None, {}) == default
    assert asked("running:1", {"PENSTOCK_BOOTSTRAP_SERVERS": default}) == default
    assert asked("running:1", {}, bootstrap_servers=default) == default


@pytest.mark.parametrize(
    ("variable", "said"),
    [
        ("PENSTOCK_GUARANTE", "did you mean PENSTOCK_GUARANTEE"),
        ("PENSTOCK_ROCKSDB__BLOK_CACHE_BYTES", "did you mean block_cache_bytes"),
        ("PENSTOCK_ROCKDB__BLOCK_CACHE_BYTES", "did you mean PENSTOCK_ROCKSDB__BLOCK_CACHE_BYTES"),
        ("PENSTOCK_COMON__SASL_PASSWORD", "PENSTOCK_COMON__SASL_PASSWORD, which is not a setting"),
        ("PENSTOCK_COMMON", "did you mean PENSTOCK_COMMON__KEY"),
        ("PENSTOCK_STATE_DIR__X", "did you mean PENSTOCK_STATE_DIR"),
        ("PENSTOCK_", "PENSTOCK_, which is not a setting"),
        ("PENSTOCK_0123456789", "called as the settings are"),
    ],
)
def test_unknown_variables_are_refused_without_their_values(variable: str, said: str) -> None:
    with pytest.raises(SettingsError, match=said) as refused:
        load_settings(env={variable: "hunter2", "PENSTOCKS": "fish"}, application_id="a")
    assert "hunter2" not in str(refused.value)


def test_variables_of_the_project_are_settings_or_named_as_others() -> None:
    """Every name in the tree, so that a new one is not refused where somebody sets it."""
    places = [path for room in (*ROOMS, ".ci", ".package") for path in (ROOT / room).rglob("*")]
    found: set[str] = set()
    for path in [*places, *ROOT.iterdir()]:
        if path.suffix in SUFFIXES and path.is_file() and path != Path(__file__) and "target" not in path.parts:
            found |= set(re.findall(r"(?<!\w)PENSTOCK_[A-Z][A-Z0-9_]*(?!\w)", path.read_text()))
    found -= PYTHON_NAMES
    assert found >= OTHER_VARIABLES
    load_settings(env=dict.fromkeys(OTHER_VARIABLES, "x"), application_id="a")
    settings = {f"PENSTOCK_{f.name.upper()}" for f in dataclasses.fields(WorkerSettings)}
    assert {name for name in found - OTHER_VARIABLES if name.partition("__")[0] not in settings} == set()


def test_numbers_of_the_environment_are_numbers() -> None:
    env = {"PENSTOCK_COMMIT_INTERVAL_MS": "250", "PENSTOCK_ROCKSDB__BLOCK_CACHE_BYTES": "8_388_608"}
    settings = load_settings(env=env, application_id="a")
    assert settings.commit_interval_ms == 250
    assert settings.rocksdb.block_cache_bytes == 8 << 20


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"commit_intervall_ms": 5}, "did you mean commit_interval_ms"),
        ({"commit_interval_ms": -1}, "from 1 to"),
        ({"commit_interval_ms": "soon"}, "must be a number"),
        ({"commit_interval_ms": True}, "must be int"),
        ({"state_dir": 5}, "must be str"),
        ({"guarantee": "twice"}, "exactly_once"),
        ({"latency": "none"}, "balanced, low"),
        ({"native": "maybe"}, "auto, off, require"),
        ({"columns": "none"}, "auto, off"),
        ({"guarantee": "exactly_once", "commit_interval_ms": 9_000}, "over half of transaction_timeout_ms"),
        ({"policies": {"proccessing": "skip"}}, "did you mean processing"),
        ({"policies": {"processing": "dead_letter"}}, "dead_letter_topic"),
        ({"policies": {"processing": "clamp"}}, "timestamps only"),
        ({"policies": {"retry_attempts": "many"}}, "it must be a number"),
        ({"policies": {"retry_attempts": 101}}, "give 2 to 100 attempts"),
        ({"rocksdb": {"block_cache_bytes": 5}}, "block_cache_bytes"),
        ({"memory_max_bytes": LEAST_BYTES - 1}, f"at least {LEAST_BYTES}"),
        ({"memory_max_bytes": -1}, "memory_max_bytes=-1"),
    ],
)
def test_what_is_wrong_is_refused_with_its_name(given: dict[str, object], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        load_settings(env={}, application_id="a", **given)


def test_application_id_is_asked_for() -> None:
    with pytest.raises(SettingsError, match="--application-id"):
        load_settings(env={})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[other]\n", "no .penstock. table"),
        ("[penstock", "not TOML"),
        ("# \xe9\n", "not TOML"),
        (
            "[penstock]\ncommon = 'sasl.password=x'\n",
            "common in .* must be a table; put its keys under .penstock.common",
        ),
    ],
)
def test_files_that_cannot_be_used_are_named(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(SettingsError, match=said):
        load_settings(path, env={})
    with pytest.raises(SettingsError, match="cannot be read"):
        load_settings(tmp_path / "absent.toml", env={})


def test_no_secret_is_shown() -> None:
    secrets = {
        "sasl.password": "marker",
        "ssl.key.password": "marker",
        "ssl.key.pem": "marker",
        "sasl.oauthbearer.client.secret": "marker",
        "ssl.keystore.password": "marker",
    }
    settings = WorkerSettings(
        application_id="a", common=secrets, snapshots="s3://user:marker@host/path", producer={"linger.ms": 5}
    )
    shown = repr(settings)
    assert "marker" not in shown and "linger.ms" in shown and HIDDEN in shown
    assert redacted({"nested": [{"password": "marker"}], "plain": 1}) == {"nested": [{"password": HIDDEN}], "plain": 1}


def test_low_latency_lets_little_wait_to_be_written_out() -> None:
    few = RocksDBOptions(write_out_bytes=1 << 20)
    assert load_settings(env={}, application_id="a").stores_options() == RocksDBOptions()
    low = load_settings(env={}, application_id="a", latency="low").stores_options()
    assert low == RocksDBOptions(write_out_bytes=WRITE_OUT_LOW_BYTES)
    assert load_settings(env={}, application_id="a", latency="low", rocksdb=few).stores_options() == few


@pytest.mark.parametrize(
    ("share", "expected"), [(0, STATE_CACHE_BYTES), (1 << 30, 1 << 29), (1 << 45, CACHE_BYTES_MAX)]
)
def test_without_the_compiled_part_decoded_entries_get_half_of_the_share(
    share: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "own_share_bytes", lambda: share)
    with without():
        assert WorkerSettings(application_id="a").cache_bytes() == expected
        assert WorkerSettings(application_id="a", state_cache_max_bytes=1 << 20).cache_bytes() == 1 << 20
    monkeypatch.setattr(settings, "compiled", lambda: settings)
    assert WorkerSettings(application_id="a").cache_bytes() == STATE_CACHE_BYTES


@pytest.mark.parametrize("wrong", [-1, 1, (1 << 20) - 1, (1 << 40) + 1])
def test_a_cache_has_room_for_a_batch(wrong: int) -> None:
    with pytest.raises(SettingsError, match="state_cache_max_bytes"):
        WorkerSettings(application_id="a", state_cache_max_bytes=wrong)


@pytest.mark.parametrize(
    "name",
    [
        "PENSTOCK_SERVICE_HOST",
        "PENSTOCK_SERVICE_PORT",
        "PENSTOCK_WORKERS_SERVICE_PORT_METRICS",
        "PENSTOCK_PORT",
        "PENSTOCK_PORT_9400_TCP",
        "PENSTOCK_WORKERS_PORT_9400_TCP_ADDR",
    ],
)
def test_links_of_kubernetes_services_are_passed_over(name: str) -> None:
    """A Service of that name beside the worker sets them."""
    assert load_settings(env={"PENSTOCK_APPLICATION_ID": "a", name: "tcp://10.0.0.1:9400"}).application_id == "a"


def test_of_groups_of_settings_only_what_differs_is_shown() -> None:
    settings = WorkerSettings(
        application_id="a",
        policies=Policies(deserialization="skip"),
        rocksdb=RocksDBOptions(background_jobs=4),
        common={"sasl.password": "hunter2"},
        max_task_idle_ms=7,
    )
    shown = settings.changed()
    assert (shown["policies.deserialization"], shown["rocksdb.background_jobs"], shown["max_task_idle_ms"]) == (
        "skip",
        "4",
        "7",
    )
    assert not {name for name in shown if name.startswith(("policies", "rocksdb"))} - {
        "policies.deserialization",
        "rocksdb.background_jobs",
    }
    assert "hunter2" not in str(shown) and "sasl.password" in shown["common"]


def test_defaults_that_follow_from_other_settings_are_not_shown_as_changed() -> None:
    settings = WorkerSettings(application_id="app", guarantee="exactly_once", session_timeout_ms=6_000)
    assert (settings.commit_interval_ms, settings.transaction_timeout_ms) == (100, 6_000)
    assert settings.changed() == {"session_timeout_ms": "6000"}
    assert WorkerSettings(application_id="app").changed() == {}
    assert WorkerSettings(application_id="app", commit_interval_ms=50).changed() == {"commit_interval_ms": "50"}
