"""Records as nobody should write them, through a worker: odd keys and values, and bytes that would run if unpickled."""

from __future__ import annotations

import pickle
import re
import socket
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.integration.faults.workers import StruckApplication
from tests.integration.worker.application import LIMIT_S, until

pytestmark = pytest.mark.long
RECEIVED_MAX_BYTES = 100_000_000
"""The client's default of ``receive.message.max.bytes``."""
PROGRAM_MB = 200
WATCHED = """
import sys
def hook(event, args):
    if event == "pickle.find_class":
        print("unpickles:", args, flush=True)
sys.addaudithook(hook)
"""
"""Loading the bomb below raises this event of Python's before anything runs."""


class Explodes:
    """What runs when it is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, ("print('runs bytes: a record', flush=True)",)


BOMB = pickle.dumps(Explodes())
TABLE = """
import penstock as ps
builder = ps.StreamsBuilder("table", key=bytes, value=bytes)
builder.table({0!r}, name="rows").to_stream().to({1!r})
topology = builder.build()
"""

LENGTHS = """
import penstock as ps
builder = ps.StreamsBuilder("lengths", key=bytes, value=bytes)
builder.stream({0!r}).map_values(lambda value: b"%d" % len(value)).to({1!r})
topology = builder.build()
"""


def test_odd_records_of_a_table_stay_what_they_are(bootstrap_servers: str, tmp_path: Path) -> None:
    """D4: an empty value is one, no value deletes, a null key makes no row; a large key, many headers and a 900 KB value
    survive."""
    app = StruckApplication(bootstrap_servers, "odd", tmp_path)
    (tmp_path / "counting.py").write_text(TABLE.format(app.source, app.output))
    keys: list[bytes | None] = [b"empty", b"gone", b"gone", b"k" * 60_000, b"large", b"", b"empty", b"headers"]
    values: list[bytes | None] = [b"x", b"x", None, b"long key", b"v" * 900_000, b"empty key", b"", b"many"]
    headers = [()] * 7 + [tuple((f"h{i}", b"") for i in range(10_000))]
    app.write(app.source, values, keys=keys, headers=headers)
    worker = app.worker("state")
    try:
        until("all is written", lambda: not worker.alive or len(app.read(app.output)) == len(keys))
        assert worker.alive, worker.said
        worker.stop()
    finally:
        worker.kill()
    written = Counter((w.key, w.value) for w in app.read(app.output))
    assert written == Counter(zip(keys, values, strict=True))


def test_bytes_are_never_run(bootstrap_servers: str, tmp_path: Path) -> None:
    """D7: pickles in the input, in the changelog and over HTTP are texts like others."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    app = StruckApplication(bootstrap_servers, "pickles", tmp_path, before=WATCHED)
    app.add_lines(50)
    worker = app.worker("state", metrics_port=port)
    try:
        app.wait()
        text = pickle.dumps(Explodes(), protocol=0)
        app.write(app.source, [text], keys=[text])
        app.wanted.update(text.decode().lower().split())
        request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", data=BOMB)
        try:
            urllib.request.urlopen(request, timeout=LIMIT_S)
        except urllib.error.HTTPError as error:
            assert error.code == 405
        app.wait()
        worker.stop()
        again = app.worker("fresh")  # restores from the changelog
        app.add_lines(50)
        app.wait()
        again.stop()
    finally:
        worker.kill()
    app.assert_exact()
    assert "unpickles" not in worker.said + again.said
    assert "runs bytes" not in worker.said + again.said


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
@pytest.mark.parametrize("size_mb", [64, 320])
def test_a_decompression_bomb_takes_no_record_with_it(
    codec: str, size_mb: int, bootstrap_servers: str, tmp_path: Path
) -> None:
    """D6: a batch below the broker's limit that becomes huge. It is read, or the worker ends and says where; no record is
    skipped."""
    app = StruckApplication(bootstrap_servers, "bomb", tmp_path)
    (tmp_path / "counting.py").write_text(LENGTHS.format(app.source, app.output))
    lengths = [1, size_mb << 20, 3]
    writer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "compression.type": codec,
            "message.max.bytes": 1_000_000_000,
            "queue.buffering.max.kbytes": 2_000_000,
        }
    )
    for length in lengths:
        writer.produce(app.source, bytes(length), key=b"k", partition=0)
        assert writer.flush(LIMIT_S) == 0
    worker = app.worker("state")
    try:
        until("it is read or refused", lambda: not worker.alive or len(app.read(app.output)) == len(lengths))
        if codec == "zstd" and size_mb << 20 > RECEIVED_MAX_BYTES:
            assert worker.wait() == 2
            assert f"topic {app.source}, partition 0, at or after offset" in worker.said
            assert "receive.message.max.bytes" in worker.said
            assert [w.value for w in app.read(app.output)] in ([], [b"1"])
        else:
            assert worker.alive, worker.said
            assert [w.value for w in app.read(app.output)] == [b"%d" % length for length in lengths]
            peak = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{worker.pid}/status").read_text())
            assert peak is not None
            assert int(peak[1]) >> 10 < 2 * size_mb + PROGRAM_MB
    finally:
        worker.kill()
