"""Looking into stores: every kind decoded, while another has the database open, and from a snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from penstock.state.machine.state_directory import StateDirectory
from penstock.state.recovery.position import Position, encode_position
from penstock.state.rocksdb.rocksdb_backend import RocksDBBackend
from penstock.state.rocksdb.table_files import write_ssts
from penstock.state.serdes.serde import INT, JSON, STRING
from penstock.state.snapshots.manifest import Manifest, StorePartition
from penstock.state.snapshots.repository import open_repository
from penstock.state.stores.store import StoreKind, StoreSpec, StoreWrites
from penstock.streams.cli.main import main
from penstock.streams.cli.stored_entries import StoreReader

EXAMPLE = "penstock.topologies.examples.keyed_count:build"
NOW_MS = 1_700_000_000_000
POSITION = encode_position(Position(7, {}, "cluster", {}, NOW_MS))


def stamped(value: bytes, timestamp_ms: int = NOW_MS) -> bytes:
    """A stored value."""
    return timestamp_ms.to_bytes(8, "big") + value


def store_key(kind: StoreKind, key: bytes) -> bytes:
    """A key of a store of this kind, with 60 s and 90 s as its times."""
    first, second = (60_000).to_bytes(8, "big"), (90_000).to_bytes(8, "big")
    return {
        "key_value": key,
        "window": first + key,
        "key_window": bytes(8) + key + first,
        "session": bytes(8) + key + second + first,
        "list": bytes(8) + key + first + (3).to_bytes(4, "big"),
        "versioned": key + first,
    }[kind]


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("key_value", {}),
        ("window", {"start": 60_000, "end": 120_000}),
        ("key_window", {"start": 60_000, "end": 120_000}),
        ("session", {"start": 60_000, "end": 90_000}),
        ("list", {"at": 60_000, "sequence": 3}),
        ("versioned", {"valid_from": 60_000}),
    ],
)
def test_entries_of_every_kind_are_found_by_their_keys(kind: StoreKind, more: dict[str, int], tmp_path: Path) -> None:
    spec = StoreSpec("s", kind, STRING, JSON, window_size_ms=60_000 if "window" in kind else None, retention_ms=9)
    mark = b"\x01" if kind == "versioned" else b""
    backend = RocksDBBackend(tmp_path, [spec])
    puts = [(store_key(kind, k), stamped(mark + b'{"of":"%s"}' % k)) for k in (b"a", b"ab", b"b")]
    backend.commit([StoreWrites("s", sorted(puts), POSITION)])
    reader = StoreReader(spec)

    class Whole:
        """The backend, as commands read it."""

        def range(
            self, store: str, low: bytes | None = None, high: bytes | None = None
        ) -> Iterator[tuple[bytes, bytes]]:
            return backend.range(store, low, high)

    expected = {"key": "a", **more, "value": {"of": "a"}, "timestamp": NOW_MS}
    assert [reader.shown(*entry) for entry in reader.of_key(Whole(), b"a")] == [expected]
    between = [reader.shown(*entry)["key"] for entry in reader.between(Whole(), b"ab", b"b")]
    assert sorted(between) == ["ab", "b"]
    backend.close()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """The state folder of a worker that still runs: its database is open, and was written out."""
    backend = RocksDBBackend(StateDirectory(tmp_path, "app").database_path("0_1"), ["counts"])
    backend.commit([StoreWrites("counts", [(b"ann", stamped(INT.serialize(2)))], POSITION)])
    backend.flush()
    yield tmp_path
    backend.close()


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Status, output and errors of the command."""
    status = main(["state", *words, "--application-id", "app"])
    said = capsys.readouterr()
    return status, said.out, said.err


def test_a_running_workers_stores_are_read(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ("--state-dir", str(folder))
    status, out, _ = run(capsys, "list", EXAMPLE, *where, "--json")
    (part,) = orjson.loads(out)
    assert status == 0
    assert (part["store"], part["partition"], part["changelog_offset"], part["as_of_ms"]) == ("counts", 1, 7, NOW_MS)
    status, out, err = run(capsys, "get", EXAMPLE, "counts", "ann", *where)
    assert (status, out) == (0, "ann\t2\t2023-11-14T22:13:20Z\n")
    assert "counts [1] as of 2023-11-14T22:13:20Z" in err
    status, out, err = run(capsys, "get", EXAMPLE, "counts", "bob", *where)
    assert (status, out) == (1, "")
    assert "store counts has no entry of key bob" in err
    status, out, _ = run(capsys, "scan", EXAMPLE, "counts", *where, "--json", "--from", "ann", "--to", "b")
    assert orjson.loads(out) == {"partition": 1, "key": "ann", "value": 2, "timestamp": NOW_MS}


def test_a_snapshot_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    repository, of = open_repository(tmp_path / "snapshots"), StorePartition("app", "counts", 3)
    entries = [(b"u%d" % n, stamped(INT.serialize(n))) for n in range(5)]
    files = tuple(write_ssts(tmp_path, "attempt", entries, position=POSITION))
    repository.upload(of, tmp_path, files)
    repository.publish(
        Manifest(
            application_id="app",
            store="counts",
            kind="key_value",
            partition=3,
            cluster_id="c",
            topic="t",
            topic_id="i",
            changelog_offset=7,
            attempt="attempt",
            created_ms=NOW_MS,
            delete_retention_ms=0,
            segment_ms=0,
            files=files,
        )
    )
    where = ("--snapshots", str(tmp_path / "snapshots"))
    status, out, err = run(capsys, "scan", EXAMPLE, "counts", *where, "--limit", "2")
    assert (status, [line.split("\t")[:2] for line in out.splitlines()]) == (0, [["u0", "0"], ["u1", "1"]])
    assert "stopped at --limit 2; for more entries, give a larger one" in err
    status, out, _ = run(capsys, "list", EXAMPLE, *where)
    assert out.splitlines()[1].split()[:4] == ["counts", "key_value", "3", "5"]
    assert run(capsys, "get", EXAMPLE, "counts", "u4", *where)[1].startswith("u4\t4\t")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("list", EXAMPLE), "holds no stores; name the workers' folder with --state-dir"),
        (("get", EXAMPLE, "nope", "k"), "the topology has no store 'nope'; its stores are counts"),
        (("scan", EXAMPLE, "counts", "--snapshots", "absent"), "absent holds no snapshot of store counts of app"),
    ],
)
def test_what_is_not_there_is_said(
    words: tuple[str, ...],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    status, out, err = run(capsys, *words)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert said in err
