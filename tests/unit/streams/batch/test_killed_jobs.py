"""Jobs that are killed before any of their changes of a folder leave the old result whole, or the new one; and the next run
is right."""

from __future__ import annotations

import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from penstock.state.log import TopicPartition
from penstock.state.snapshots.manifest import Manifest
from penstock.state.snapshots.repository import ABANDONED_MS, open_repository
from penstock.streams.batch.cluster import Cluster
from penstock.streams.batch.compact_executor import write_snapshot
from penstock.streams.batch.compaction_plan import CompactPlan, plan_compaction, publish
from penstock.streams.batch.published import check_files, kept_replays, load_replay, prune_replays, publish_replay
from penstock.streams.batch.savepoint import SavepointRepository
from penstock.streams.testing.memory_clients import MemoryAdmin, MemoryConsumer
from penstock.streams.testing.memory_log import LogEntry
from tests.simulation.world import APP, World
from tests.unit.streams.batch.test_keeping import NOW_MS, counted, finished

ROOT = Path(__file__).parents[4]
PARTITIONS = 2
Job = Callable[[str], None]


@contextmanager
def killer(tmp_path: Path, job: Job) -> Iterator[Callable[[Path, int], int]]:
    """Runs the job on a folder, killed before its nth change."""
    pickled = tmp_path / "job.pickle"
    pickled.write_bytes(pickle.dumps(job))
    with subprocess.Popen(
        [sys.executable, "-m", "tests.unit.streams.batch.killed_job", str(pickled)],
        cwd=ROOT,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None and process.stdout is not None

        def run(folder: Path, number: int) -> int:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(f"{folder} {number}\n")
            process.stdin.flush()
            return int(process.stdout.readline())

        yield run
        process.stdin.close()


def deaths(tmp_path: Path, template: Path, job: Job) -> Iterator[Path]:
    """The folder as each death leaves it; there are several."""
    with killer(tmp_path, job) as run:
        for number in range(1, 1_000):
            folder = tmp_path / f"killed-{number}"
            shutil.copytree(template, folder)
            code = run(folder, number)
            if code == 0:
                assert number > 5, "the job changed nothing"
                return
            assert code == -9
            yield folder
            shutil.rmtree(folder)
    pytest.fail("the job does not end")


# -- compaction --------------------------------------------------------------------------------------------------


def compaction(plan: CompactPlan, repository: str) -> None:
    """What executors and driver of a compaction do with the repository."""
    snapshots = open_repository(repository)
    entries = [(b"%03d" % i, bytes(8) + b"%d" % plan.targets[0].end) for i in range(50)]
    written = {t.place: write_snapshot(snapshots, t, iter(entries), 1 << 8) for t in plan.targets}
    publish(repository, plan, written, keep=1, keep_savepoints=1)


def whole(repository: Path, fetched: Path) -> set[int]:
    """The changelog offsets of the latest savepoint's snapshots. Whatever is published can be fetched."""
    saved, snapshots = SavepointRepository(str(repository)), open_repository(repository)
    latest = saved.load(APP)
    found: list[Manifest] = []
    for of in snapshots.contents(APP):
        listing = snapshots.find(of)
        assert not listing.damaged and listing.manifests
        for manifest in listing.manifests:
            assert snapshots.fetch(manifest, fetched)
        found.append(saved.manifest(latest, of))
    assert len(found) == PARTITIONS
    return {m.changelog_offset for m in found}


def test_a_compaction_killed_anywhere_leaves_the_old_snapshots_or_the_new_ones(tmp_path: Path) -> None:
    world = World(counted(), "exactly_once", partitions=PARTITIONS, inputs=["in"], outputs=["out"])
    node = world.node("a")
    cluster = Cluster(MemoryConsumer(world.log, APP), MemoryAdmin(world.log))

    def planned(repository: Path, now_ms: int) -> CompactPlan:
        return plan_compaction(counted(), APP, cluster, str(repository), now_ms=now_ms)

    def fed() -> None:
        for p in range(PARTITIONS):
            world.log.append(TopicPartition("in", p), LogEntry(b"k%d" % p, b"v", 10))
        world.settle(node)

    template, fetched = tmp_path / "template", tmp_path / "fetched"
    fed()
    compaction(planned(template, NOW_MS), str(template))
    (before,) = whole(template, fetched)
    fed()
    plan = planned(template, NOW_MS + 1)
    after = plan.targets[0].end
    assert after > before
    seen: list[int] = []
    for killed in deaths(tmp_path, template, partial(compaction, plan)):
        (at,) = whole(killed, fetched)
        seen.append(at)
        again = planned(killed, NOW_MS + 2)
        if again.targets:
            compaction(again, str(killed))
        else:
            publish(str(killed), again, {}, 1, 1)
        assert whole(killed, fetched) == {after}
        assert_tidy(killed)
    # Deaths before and after the one step that makes the new savepoint visible.
    assert seen == sorted(seen) and set(seen) == {before, after}


def assert_tidy(repository: Path) -> None:
    """After what dead attempts left was removed, everything that is there is named by something."""
    snapshots, saved = open_repository(repository), SavepointRepository(str(repository))
    needed = saved.manifests(APP)
    for of in snapshots.contents(APP):
        snapshots.prune(of, keep=1, now_ms=NOW_MS + 2 * ABANDONED_MS, live=needed)
        manifests = snapshots.find(of).manifests
        named = {m.name for m in manifests} | {f.name for m in manifests for f in m.files}
        (folder,) = (p for p in repository.glob(f"{APP}/{of.store}/{of.partition}"))
        assert {p.name for p in folder.iterdir()} == named


# -- replay ------------------------------------------------------------------------------------------------------


def replay(now_ms: int, output: str) -> None:
    """What executors and driver of a replay do with the folder."""
    publish_replay(output, finished(Path(output), now_ms))
    prune_replays(output, keep=1, now_ms=now_ms)


def test_a_replay_killed_anywhere_shows_the_old_result_or_the_new_one(tmp_path: Path) -> None:
    template = tmp_path / "template"
    replay(NOW_MS, str(template))
    before = load_replay(str(template)).run
    seen: list[bool] = []
    for killed in deaths(tmp_path, template, partial(replay, NOW_MS + 1)):
        shown = load_replay(str(killed))
        check_files(str(killed), shown)
        for kept in kept_replays(str(killed)):
            check_files(str(killed), load_replay(str(killed), kept.run))
        seen.append(shown.run != before)
        replay(NOW_MS + 2, str(killed))
        again = load_replay(str(killed))
        check_files(str(killed), again)
        assert [k.run for k in kept_replays(str(killed))] == [again.run]
    assert seen == sorted(seen) and set(seen) == {False, True}
