"""An application goes on with other partitions: every answer is that of an undisturbed run, wherever the job is killed, and
an old worker that wakes is refused."""

from __future__ import annotations

import dataclasses
import os
import signal
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.state.errors import EnvironmentFault, SettingsError
from penstock.state.serdes.serde import serde_of
from penstock.streams.batch.cluster import ClusterAddress, open_admin, open_cluster
from penstock.streams.batch.handover.rescale_executor import STEPS as WRITER_STEPS
from penstock.streams.spark.handover import rescale as rescale_module
from penstock.streams.spark.handover.bootstrap import Predecessor
from penstock.streams.spark.handover.rescale import STEPS, Rescaled, rescale
from penstock.streams.worker.settings import WorkerSettings
from penstock.streams.worker.worker import Worker
from tests.child_process import started
from tests.integration.spark.live import App, Live, Row, command
from tests.integration.spark.topologies import resized
from tests.integration.worker.application import UNDISTURBED, until

number = serde_of(int).deserialize
BEFORE_WRITING = STEPS[: STEPS.index("written")]
MARKS = 24
"""So many users that every task behind the repartition has some, of two tasks and of three."""


@dataclasses.dataclass
class Shop:
    """The application under test, and the answers that it must give."""

    live: Live
    folder: Path
    events: list[Row] = dataclasses.field(default_factory=list)
    users: dict[bytes, bytes] = dataclasses.field(default_factory=dict)
    named: dict[bytes, list[bytes]] = dataclasses.field(default_factory=lambda: defaultdict(list))
    views: dict[bytes, int] = dataclasses.field(default_factory=lambda: defaultdict(int))
    suffix: str = ""

    def settings(self, application_id: str, **more: Any) -> WorkerSettings:
        given = {
            "application_id": application_id,
            "bootstrap_servers": self.live.bootstrap_servers,
            "guarantee": "exactly_once",
            "state_dir": str(self.folder / "state"),
            "session_timeout_ms": 6_000,
        }
        return WorkerSettings(**(given | more))

    def topology(self, suffix: str = "") -> Any:
        return resized(self.live.application_id, suffix)

    def topic(self, name: str) -> str:
        return self.live.topic(name) + self.suffix

    def set_users(self, rows: dict[bytes, bytes | None], at_ms: int) -> None:
        self.live.produce(self.topic("users"), [(k, v, at_ms) for k, v in rows.items()])
        for key, value in rows.items():
            if value is None:
                self.users.pop(key, None)
            else:
                self.users[key] = value

    def produce(self, rows: list[Row], *, late: bool = False) -> None:
        """``late``: windows of these records have closed."""
        self.live.produce(self.topic("events"), rows)
        self.events += rows
        for key, value, ms in rows:
            assert key is not None and value is not None
            user = self.users.get(key, b"-")
            self.named[key].append(value + b"|" + user)
            if not late:
                self.views[b"%s@%d" % (user, ms // 1000 * 1000)] += 1

    def rescale(self, partitions: int, suffix: str, **more: Any) -> Rescaled:
        old_id = self.live.application_id
        old = Predecessor(self.topology(self.suffix), old_id)
        settings = self.settings(f"{old_id}{suffix}", **more)
        return rescale(self.topology(suffix), settings, replaces=old, partitions=partitions)

    def order(self, suffix: str, **more: Any) -> dict[str, Any]:
        settings = dataclasses.asdict(self.settings(self.live.application_id + suffix))
        plain = {
            k: settings[k]
            for k in ("application_id", "bootstrap_servers", "guarantee", "state_dir", "session_timeout_ms")
        }
        return {"settings": plain, "prefix": self.live.application_id, "suffix": suffix, **more}

    def killed(self, step: str, partitions: int, suffix: str) -> None:
        """Rescale in a process that dies after a step."""
        order = self.order(suffix, replaces=self.live.application_id, partitions=partitions, kill_at=step)
        log = self.folder / f"{step}.log"
        process = started("tests.integration.spark.rescaling_process", order, log)
        assert process.wait(300) == -signal.SIGKILL, log.read_text()[-4_000:]

    def read_as_far(self, application_id: str, topic: str) -> bool:
        """Whether the application has read a topic to its end."""
        ends = self.live.settled(topic)
        with open_cluster(ClusterAddress(self.live.bootstrap_servers), application_id) as cluster:
            done = cluster.committed(list(ends))
        # the last offset is the marker of a transaction, not a record
        return all(tp in done and done[tp].offset >= end - 1 for tp, end in ends.items() if end)

    def members(self, application_id: str) -> int:
        """How many members the application's group has."""
        return open_admin(ClusterAddress(self.live.bootstrap_servers)).group_members(application_id)

    def assert_answered_once(self) -> None:
        """Every answer is there once, in the order of its key."""
        seen: dict[bytes, list[int]] = defaultdict(list)
        for _, key, value, _ in self.live.read(self.live.topic("seen")):
            seen[key or b""].append(number(value or b""))
        assert seen == {k: list(range(1, len(v) + 1)) for k, v in self.named.items()}
        named: dict[bytes, list[bytes]] = defaultdict(list)
        for _, key, value, _ in self.live.read(self.live.topic("named")):
            named[key or b""].append(value or b"")
        assert named == self.named
        views: dict[bytes, list[int]] = defaultdict(list)
        for _, key, value, _ in self.live.read(self.live.topic("views")):
            views[key or b""].append(number(value or b""))
        assert views == {k: list(range(1, n + 1)) for k, n in self.views.items()}


def dying_at(step: str) -> Callable[[str], None]:
    """A function that is sent to executors with its code, and ends the process there."""

    def die(passed: str) -> None:
        if passed == step:
            os.kill(os.getpid(), signal.SIGKILL)

    return die


def rows(start: int, stop: int, first_ms: int) -> list[Row]:
    return [(b"k%d" % (i % 30), b"%d" % i, first_ms + i % 1000) for i in range(start, stop)]


def begin(shop: Shop, partitions: int) -> None:
    """Users, events of one second, and a mark of the next one in every task behind the repartition."""
    names = [shop.topic("users"), shop.topic("events"), *map(shop.live.topic, ("seen", "named", "views"))]
    shop.live.create(partitions, *names)
    shop.set_users(
        {b"k%d" % i: b"u%d" % (i % 7) for i in range(30)} | {b"m%d" % i: b"n%d" % i for i in range(MARKS)}, 1
    )
    shop.set_users({b"k3": None, b"k4": b"u9"}, 2)


def marks(ms: int) -> list[Row]:
    return [(b"m%d" % i, b"mark", ms) for i in range(MARKS)]


@pytest.mark.parametrize(
    "deaths", [pytest.param(STEPS[-1:], id="handed-over"), pytest.param(STEPS, marks=pytest.mark.long, id="every-step")]
)
def test_two_partitions_become_three_wherever_the_job_is_killed(
    spark: SparkSession, live: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deaths: tuple[str, ...]
) -> None:
    shop = Shop(live, tmp_path)
    begin(shop, 2)
    with App(live, shop.topology()()) as app:
        app.run()
        shop.produce(rows(0, 3_000, 19_000))
        shop.produce(marks(20_000))
        app.run(commit_every=500)
        # More is joined, and stands in the repartition topic; and more is not read at all.
        shop.produce(rows(3_000, 3_400, 20_000))
        app.tasks = [task for task in app.tasks if shop.topic("events") in task.topics]
        app.run(commit_every=100)
    shop.produce(rows(3_400, 3_600, 20_000))
    old_id, new_id = live.application_id, f"{live.application_id}-3"

    with pytest.raises(SettingsError, match="give --partitions N"):
        rescale(shop.topology("-3"), shop.settings(new_id), replaces=Predecessor(shop.topology(), old_id))
    for step in (s for s in deaths if s in BEFORE_WRITING):
        shop.killed(step, 3, "-3")
    with monkeypatch.context() as patch, pytest.raises(EnvironmentFault, match="the rescaling"):
        patch.setattr(rescale_module, "on_write", dying_at(WRITER_STEPS[1]))
        shop.rescale(3, "-3")
    for application_id, suffix in ((old_id, ""), (new_id, "-3")):
        with pytest.raises(SettingsError, match="penstock rescale"):
            Worker(shop.topology(suffix)(), shop.settings(application_id)).run()
    for step in (s for s in deaths if s not in BEFORE_WRITING):
        shop.killed(step, 3, "-3")
    repository = str(tmp_path / "snapshots")
    done = shop.rescale(3, "-3", snapshots=repository)
    assert done.entries is None and done.tasks == {0: (2, 3), 1: (2, 3)} and not done.left
    assert done.savepoint is not None, done.no_savepoint
    with pytest.raises(SettingsError, match="has begun already"):
        shop.rescale(3, "-3", snapshots=repository)
    shop.assert_answered_once()

    shop.suffix = "-3"
    worker = Worker(shop.topology("-3")(), shop.settings(new_id, snapshots=repository, **UNDISTURBED))
    worker.start()
    try:
        shop.set_users({b"k5": b"u20", b"k6": None}, 20_000)
        until("the rows are read", lambda: shop.read_as_far(new_id, shop.topic("users")))
        shop.produce(rows(3_600, 4_200, 20_500))
        shop.produce(rows(4_200, 4_300, 10_000), late=True)
        until("all is answered", lambda: len(live.read(live.topic("views"))) == sum(shop.views.values()), every_s=1.0)
    finally:
        worker.stop()
    shop.assert_answered_once()
    with pytest.raises(SettingsError, match=f"goes on as {new_id}"):
        Worker(shop.topology()(), shop.settings(old_id)).run()


def test_three_partitions_become_two_and_an_old_worker_that_wakes_is_refused(
    spark: SparkSession, live: Live, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shop = Shop(live, tmp_path)
    begin(shop, 3)
    old_id, new_id = live.application_id, f"{live.application_id}-2"
    log = tmp_path / "old.log"
    frozen = started("tests.integration.spark.rescaling_process", shop.order(""), log)
    try:
        until("the rows are read", lambda: shop.read_as_far(old_id, shop.topic("users")))
        shop.produce(rows(0, 1_000, 19_000))
        shop.produce(marks(20_000))
        until("all is answered", lambda: len(live.read(live.topic("views"))) == sum(shop.views.values()), every_s=1.0)
        with pytest.raises(SettingsError, match="stop the group's workers first"):
            shop.rescale(2, "-2")
        frozen.send_signal(signal.SIGSTOP)
        shop.produce(rows(1_000, 1_300, 20_000))
        until("the group has lost it", lambda: shop.members(old_id) == 0)
        (tmp_path / "shops.py").write_text(
            f"from tests.integration.spark.topologies import resized\n"
            f"old = resized({old_id!r}, '')\nnew = resized({old_id!r}, '-2')\n"
        )
        options = ["--replaces", f"{tmp_path}/shops.py:old", "--replaced-id", old_id, "--partitions", "2"]
        into = dataclasses.replace(live, application_id=new_id)
        page = tmp_path / "page.html"
        assert command("rescale", f"{tmp_path}/shops.py:new", into, *options, "--report", str(page)) == 0
        said = capsys.readouterr().out
        assert "sub-topology 0: 3 tasks, now 2" in said and "sub-topology 1: 3 tasks, now 2" in said
        told = page.read_text()
        assert f"{new_id} goes on with the state of {old_id}." in told and "records in<b>" in told
        assert f"the tasks of {old_id}: sub-topology 0" in told and f"the move of the stores of {old_id}" in told
        shop.suffix = "-2"
        worker = Worker(shop.topology("-2")(), shop.settings(new_id, **UNDISTURBED))
        worker.start()
        try:
            frozen.send_signal(signal.SIGCONT)
            shop.produce(rows(1_300, 2_000, 20_500))
            until(
                "all is answered", lambda: len(live.read(live.topic("views"))) == sum(shop.views.values()), every_s=1.0
            )
            assert frozen.wait(300) != 0
        finally:
            worker.stop()
    finally:
        frozen.kill()
        frozen.wait()
    assert f"goes on as {new_id}" in log.read_text()
    shop.assert_answered_once()
