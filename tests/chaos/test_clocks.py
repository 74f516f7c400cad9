"""Windows under a wall clock that jumps: they close by the records' times alone."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.integration.faults.test_operations import SKEWED
from tests.integration.faults.workers import StruckApplication
from tests.integration.worker.application import NOW_MS, PARTITIONS, until

pytestmark = pytest.mark.long
WINDOW_MS = 10_000
WINDOWS = 30
A_WINDOW = 20
LATE_MS = 3_000
"""Records are that far behind those before them, within the grace."""
COUNTS = """
import penstock as ps
builder = ps.StreamsBuilder("windows", key=str, value=bytes)
counts = builder.stream({0!r}).group_by_key().windowed_by(ps.tumbling("10s", grace="15s")).count(emission="on_close")
counts.to_stream(lambda window, count: f"{{window.key}}@{{window.start_ms}}", key=str).map_values(str, value=str).to({1!r})
topology = builder.build()
"""


def test_windows_close_by_the_times_of_records_alone(bootstrap_servers: str, tmp_path: Path) -> None:
    """K1: the clock goes five minutes ahead and back every second, a worker is killed and another joins; each window is
    written once, with every record of it."""
    app = StruckApplication(bootstrap_servers, "clock-windows", tmp_path, before=SKEWED.format(skew_ms=300_000))
    (tmp_path / "counting.py").write_text(SKEWED.format(skew_ms=300_000) + COUNTS.format(app.source, app.output))
    first_ms = NOW_MS - NOW_MS % WINDOW_MS
    wanted: Counter[bytes] = Counter()

    def add(window: int) -> None:
        start_ms = first_ms + window * WINDOW_MS
        for partition in range(PARTITIONS):
            step_ms = WINDOW_MS // A_WINDOW
            times = [start_ms + n * step_ms for n in range(A_WINDOW)]
            # Every other record changes places with one of earlier windows' time, but never past the grace.
            times += [max(t - LATE_MS, first_ms) for t in times[::2]]
            key = b"p%d" % partition
            app.write(app.source, [b""] * len(times), keys=[key] * len(times), timestamps=times, partition=partition)
            wanted.update(b"%s@%d" % (key, t - t % WINDOW_MS) for t in times)

    def closed() -> Counter[bytes]:
        return Counter({w.key or b"": int(w.value or b"0") for w in app.read(app.output)})

    def closes(window: int) -> None:
        """Wait until the windows before this one are written."""
        until("windows close", lambda: not worker.alive or len(app.read(app.output)) >= (window - 1) * PARTITIONS)

    worker = app.worker("state")
    other = None
    try:
        for window in range(WINDOWS):
            add(window)
            if window == WINDOWS // 3:
                closes(window)
                other = app.worker("other")
            if window == 2 * WINDOWS // 3:
                closes(window)
                worker.kill()
                worker = app.worker("state")
        last_ms = first_ms + (WINDOWS + 2) * WINDOW_MS
        for partition in range(PARTITIONS):
            app.write(app.source, [b""], keys=[b"end"], timestamps=[last_ms], partition=partition)
        until("all are written", lambda: not worker.alive or len(app.read(app.output)) >= WINDOWS * PARTITIONS)
        worker.stop()
        assert other is not None
        other.stop()
    finally:
        worker.kill()
        if other is not None:
            other.kill()
    written = app.read(app.output)
    assert len(written) == len(wanted), "a window was written twice, or never"
    assert closed() == wanted
