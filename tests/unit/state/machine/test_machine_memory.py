"""How much memory a process may use, as control groups say."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.state.machine.machine_memory import cgroup_limit_bytes, own_share_bytes, share_bytes


@pytest.fixture
def mounted(tmp_path: Path) -> Path:
    folder = tmp_path / "cgroup"
    folder.mkdir()
    return folder


def own(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "own"
    path.write_text(text)
    return path


def limit(folder: Path, text: str, name: str = "memory.max") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


def test_the_lowest_limit_on_the_way_up_counts(tmp_path: Path, mounted: Path) -> None:
    limit(mounted / "a" / "b", "max\n")
    limit(mounted / "a", "5000\n")
    limit(mounted, "9000\n")
    limit(mounted / "other", "10\n")
    assert cgroup_limit_bytes(own(tmp_path, "0::/a/b\n"), mounted) == 5000


def test_a_container_sees_its_own_group_at_the_top(tmp_path: Path, mounted: Path) -> None:
    limit(mounted, "7000\n")
    assert cgroup_limit_bytes(own(tmp_path, "0::/docker/of/the/host\n"), mounted) == 7000


def test_limits_of_version_1_are_in_the_memory_controllers_folder(tmp_path: Path, mounted: Path) -> None:
    limit(mounted / "memory" / "a", "6000\n", "memory.limit_in_bytes")
    limit(mounted / "cpu" / "a", "10\n", "memory.limit_in_bytes")
    assert cgroup_limit_bytes(own(tmp_path, "4:cpu,cpuacct:/a\n3:rdma,memory:/a\n1:name=systemd:/a\n"), mounted) == 6000


@pytest.mark.parametrize("text", ["max\n", "9223372036854771712\n", "", "0\n", "many\n"])
def test_no_limit_is_none(tmp_path: Path, mounted: Path, text: str) -> None:
    limit(mounted, text)
    limit(mounted / "memory", text, "memory.limit_in_bytes")
    assert cgroup_limit_bytes(own(tmp_path, "0::/\n1:memory:/\n"), mounted) is None


def test_a_machine_without_control_groups_has_no_limit(tmp_path: Path) -> None:
    assert cgroup_limit_bytes(tmp_path / "own", tmp_path / "cgroup") is None


def test_a_process_on_every_processor_takes_an_eighth_together() -> None:
    assert share_bytes(64 << 30, 16) * 16 == 8 << 30
    assert share_bytes(64 << 30, 0) == share_bytes(64 << 30, 1)
    assert 0 < own_share_bytes() < 1 << 50
