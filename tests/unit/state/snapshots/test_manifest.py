"""The manifest: what is written is read; nothing damaged, foreign or unsound is."""

from __future__ import annotations

import msgspec
import pytest

from penstock.state.errors import StateCorruptedError
from penstock.state.log import TopicPartition
from penstock.state.snapshots.manifest import Manifest, SnapshotFile, StorePartition, decode_manifest, encode_manifest

FILES = (
    SnapshotFile("a1-00000.sst", 100, "ab" * 32, 2, b"\x00a", b"\xffb"),
    SnapshotFile("a1-00001.sst", 50, "cd" * 32, 1, b"\xffc", b"\xffc"),
)
MANIFEST = Manifest(
    application_id="app",
    store="counts",
    kind="window",
    partition=3,
    cluster_id="c1",
    topic="app-counts-changelog",
    topic_id="t1",
    changelog_offset=42,
    attempt="a1",
    created_ms=1_700_000_000_000,
    delete_retention_ms=86_400_000,
    segment_ms=0,
    files=FILES,
    input_offsets=(("views", 3, 99),),
)

WRITTEN = (
    b'{"version":2,"sha256":"ff1d82b4a5e4fa9bb630ab7236ac6b33475cf1030cd69b9f7854ecc709d2cacf","snapshot":'
    b'{"application_id":"app","store":"counts","kind":"window","partition":3,"cluster_id":"c1",'
    b'"topic":"app-counts-changelog","topic_id":"t1","changelog_offset":42,"attempt":"a1","created_ms":1700000000000,'
    b'"delete_retention_ms":86400000,"segment_ms":0,"files":[{"name":"a1-00000.sst","size_bytes":100,"sha256":"'
    + b"ab" * 32
    + b'","entries":2,"first_key":"AGE=","last_key":"/2I="},{"name":"a1-00001.sst","size_bytes":50,"sha256":"'
    + b"cd" * 32
    + b'","entries":1,"first_key":"/2M=","last_key":"/2M="}],"input_offsets":[["views",3,99]],"oldest_ms":null,'
    b'"newest_ms":null,"dropped":0}}'
)


def test_it_is_written_as_ever() -> None:
    assert encode_manifest(MANIFEST) == WRITTEN
    assert decode_manifest(WRITTEN, "here") == MANIFEST


def test_what_is_written_is_read() -> None:
    assert decode_manifest(encode_manifest(MANIFEST), "here") == MANIFEST
    assert MANIFEST.of == StorePartition("app", "counts", 3)
    assert MANIFEST.offsets() == {TopicPartition("views", 3): 99}
    assert (MANIFEST.entries, MANIFEST.size_bytes) == (3, 150)
    assert msgspec.structs.replace(MANIFEST, input_offsets=None).offsets() is None


def test_names_sort_by_offset() -> None:
    offsets = [9, 10, 2**63 - 1, 0]
    names = [msgspec.structs.replace(MANIFEST, changelog_offset=o).name for o in offsets]
    assert [n for _, n in sorted(zip(offsets, names, strict=True))] == sorted(names)


def test_every_truncation_and_every_changed_byte_is_damage() -> None:
    data = encode_manifest(MANIFEST)
    for length in range(len(data)):
        with pytest.raises(StateCorruptedError, match="here"):
            decode_manifest(data[:length], "here")
    for place in range(len(data)):
        broken = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        try:
            read = decode_manifest(broken, "here")
        except StateCorruptedError:
            continue
        assert read == MANIFEST, f"byte {place}"


def test_every_flipped_bit_is_damage() -> None:
    """Some make text that is not UTF-8."""
    whole = encode_manifest(MANIFEST)
    for bit in range(8 * len(whole)):
        changed = bytearray(whole)
        changed[bit >> 3] ^= 1 << (bit & 7)
        try:
            assert decode_manifest(bytes(changed), "here") == MANIFEST, "white space or the case of a word"
        except StateCorruptedError:
            continue


@pytest.mark.parametrize("data", [b"[" * 100_000, b'{"version":2,"sha256":"","snapshot":' + b"[" * 100_000])
def test_what_is_nested_too_deep_is_damage(data: bytes) -> None:
    with pytest.raises(StateCorruptedError):
        decode_manifest(data, "here")


@pytest.mark.parametrize("version", [1, 3])
def test_a_manifest_of_another_release_is_not_guessed_at(version: int) -> None:
    data = encode_manifest(MANIFEST).replace(b'"version":2', b'"version":%d' % version)
    with pytest.raises(StateCorruptedError, match=f"version {version}, and this release reads version 2"):
        decode_manifest(data, "here")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"files": ()}, "names no file"),
        ({"files": FILES[::-1]}, "do not follow"),
        ({"files": (msgspec.structs.replace(FILES[0], name="../../etc/passwd"),)}, "cannot be a file's name"),
        ({"files": (msgspec.structs.replace(FILES[0], name=".."),)}, "cannot be a file's name"),
        ({"files": (msgspec.structs.replace(FILES[0], first_key=None),)}, "no keys"),
        ({"attempt": "a/b"}, "attempt"),
        ({"attempt": "a2"}, "not of the attempt a2"),
        ({"kind": "list"}, "segments of 0 ms"),
        ({"segment_ms": 5}, "segments of 5 ms"),
    ],
)
def test_an_unsound_manifest_is_neither_written_nor_read(fields: dict[str, object], words: str) -> None:
    bad = msgspec.structs.replace(MANIFEST, **fields)
    with pytest.raises(ValueError, match=words):
        encode_manifest(bad)
    with pytest.raises(StateCorruptedError, match=words):
        decode_manifest(sealed(bad), "here")


def sealed(manifest: Manifest) -> bytes:
    """A document with a right checksum, whatever it says."""
    import hashlib

    snapshot = msgspec.json.encode(manifest)
    return b'{"version":2,"sha256":"%s","snapshot":%s}' % (hashlib.sha256(snapshot).hexdigest().encode(), snapshot)
