"""Loading settings: where they come from, which source is stronger, what is refused, and that no secret is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.state.errors import SettingsError
from penstock.state.native import without
from penstock.state.rocksdb_options import RocksDBOptions
from penstock.streams import settings
from penstock.streams.load_settings import load_settings
from penstock.streams.memory_parts import LEAST_BYTES
from penstock.streams.policies import Policies
from penstock.streams.redact import HIDDEN, redacted
from penstock.streams.settings import CACHE_BYTES_MAX, WRITE_OUT_LOW_BYTES, WorkerSettings
from penstock.streams.task import STATE_CACHE_BYTES

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


@pytest.mark.parametrize(("text", "said"), [("[other]\n", "no .penstock. table"), ("[penstock", "not TOML")])
def test_files_that_cannot_be_used_are_named(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
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
