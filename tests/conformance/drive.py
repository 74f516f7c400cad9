"""The test driver as the runner of cases."""

from __future__ import annotations

from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.test_driver import TopologyTestDriver
from tests.conformance.case_format import Case
from tests.conformance.scenario import Clock, Mark, Played, Put, Restart, Scenario, Setting, Step, dropped_count
from tests.conformance.stores import records_of


class DriverPlayer:
    """Plays scenarios in the test driver. ``batch_size`` 1 processes and commits every record on its own; above it all
    input between two restarts, watermarks or readings of stores is one piece, processed in batches of that size, and
    then committed. A restart finds the stores at size 1, and above it restores them from their changelogs. ``columns``:
    tasks get their input as columns, as of a native reader."""

    def __init__(self, batch_size: int, *, columns: bool = False) -> None:
        self.batch_size = batch_size
        self.columns = columns

    def setting(self, case: Case) -> Setting:
        """As the case says: every driver is a world of its own."""
        return Setting()

    def __call__(self, scenario: Scenario) -> Played:
        """Play; an error of the topology while it runs is part of the result."""
        options = TaskOptions(batch_max_records=self.batch_size, wall_resolution_ms=1)
        driver = TopologyTestDriver(scenario.topology, options=options, arrival_order=True, columns=self.columns)
        try:
            return _Playing(driver, scenario, self.batch_size > 1).run()
        finally:
            driver.release()


class _Playing:
    """One scenario on its way."""

    def __init__(self, driver: TopologyTestDriver, scenario: Scenario, in_batches: bool) -> None:
        self._driver = driver
        self._scenario = scenario
        self._in_batches = in_batches
        self._waiting: list[Put | Mark] = []
        self._played = Played()

    def run(self) -> Played:
        """All steps, or those before an error."""
        steps = self._scenario.steps
        for step, following in zip(steps, (*steps[1:], None), strict=True):
            after = step.index + 1
            last = following is None or following.index > step.index
            try:
                self._take(step)
                if following is None or (last and self._scenario.ends_batch(after)):
                    self._pipe()
            except Exception as exc:  # whatever processing raises is the case's answer, and is judged as such
                self._played.error = (after, f"{type(exc).__name__}: {exc}")
                break
            if self._driver.shutdown_requested:
                self._played.error = (after, "an operator asked its worker to stop")
                break
            if last:
                self._look(after)
        self._read_sinks()
        return self._played

    def _take(self, step: Step) -> None:
        if isinstance(step, Put):
            self._waiting.append(step)
            if not self._in_batches:
                self._pipe()
            return
        self._pipe()
        if isinstance(step, Mark):
            self._waiting.append(step)
            self._pipe()
        elif isinstance(step, Clock):
            self._driver.advance_wall_time(step.now_ms - self._driver.wall_ms, label=step.index)
        elif isinstance(step, Restart):
            self._driver.restart(restore=self._in_batches)

    def _pipe(self) -> None:
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._driver.pipe_sequence([(p.topic, p.record) for p in waiting], labels=[p.index for p in waiting])

    def _look(self, after: int) -> None:
        for n, store in self._scenario.stores:
            if n == after:
                rows = [self._scenario.row(f"table:{store}", r) for r in records_of(self._driver, store)]
                self._played.stores[n, store] = rows
        if after in self._scenario.counts:
            self._played.dropped[after] = dropped_count(self._driver.dropped_records)

    def _read_sinks(self) -> None:
        for sink, topic in self._scenario.sinks.items():
            found = sorted(self._driver.read_caused(topic), key=lambda pair: pair[0])
            self._played.outputs[sink] = [(label, self._scenario.row(sink, r)) for label, r in found]
            self._played.headers[sink] = [r.headers for _, r in found]
