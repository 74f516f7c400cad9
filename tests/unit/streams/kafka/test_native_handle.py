"""The compiled part's check of what it is given: anything but a client's handle is refused, and nothing is touched.
Collected where it was built (``conftest.py``). No broker is asked."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import confluent_kafka
import penstock_native
import pytest
from confluent_kafka import Consumer, Producer, cimpl

from tests.unit.streams.kafka.test_native import are_native

LIBRARY, VERSION = str(cimpl.__file__), confluent_kafka.libversion()[1]
CONFIG = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "client.id": "mine"}


class Slotted:
    """Where a client has its handle, this has a pointer to something else."""

    __slots__ = ("other",)

    def __init__(self) -> None:
        self.other = bytearray(100_000)


def closed() -> Consumer:
    consumer = Consumer(CONFIG)
    consumer.close()
    return consumer


STRANGERS = [object, Slotted, closed, lambda: 1 << 240, lambda: 5, lambda: b"x" * 64, lambda: [1] * 8, lambda: (1,) * 8]


@pytest.mark.parametrize("kind", [penstock_native.Reader, penstock_native.Writer])
@pytest.mark.parametrize("make", STRANGERS)
def test_what_is_no_client_is_refused(kind: Any, make: Any) -> None:
    with pytest.raises(RuntimeError):
        kind(make(), LIBRARY, VERSION, "mine")


@pytest.mark.parametrize(
    ("library", "version", "name"),
    [
        (LIBRARY, VERSION, "other"),
        (LIBRARY, VERSION, "min"),
        (LIBRARY, VERSION + 1, "mine"),
        ("/no/such/library.so", VERSION, "mine"),
        ("\0", VERSION, "mine"),
        (pytest.__file__, VERSION, "mine"),
    ],
)
def test_a_client_that_is_not_as_said_is_refused(library: str, version: int, name: str) -> None:
    consumer = Consumer(CONFIG)
    with pytest.raises(RuntimeError):
        penstock_native.Reader(consumer, library, version, name)
    consumer.close()


def test_kinds_are_told_apart() -> None:
    consumer, producer = Consumer(CONFIG), Producer(CONFIG | {"group.id": ""})
    with pytest.raises(RuntimeError):
        penstock_native.Writer(consumer, LIBRARY, VERSION, "mine")
    with pytest.raises(RuntimeError):
        penstock_native.Reader(producer, LIBRARY, VERSION, "mine")
    penstock_native.Writer(producer, LIBRARY, VERSION, "mine").close()
    penstock_native.Reader(consumer, LIBRARY, VERSION, "mine").close()
    consumer.close()


def test_clients_are_native_where_it_was_built() -> None:
    assert are_native("require")


def writer() -> penstock_native.Writer:
    return penstock_native.Writer(Producer(CONFIG), LIBRARY, VERSION, "mine")


COLUMNS: list[tuple[Any, ...]] = [
    (["text"], [b"v"], [1], None, -1),
    ([b"k"], [bytearray(b"v")], [1], None, -1),
    ([b"k"], [], [1], None, -1),
    ([b"k"], [b"v"], [], None, -1),
    ([b"k"], [b"v"], [1 << 70], None, -1),
    ([b"k"], [b"v"], [1], [[("a", b"b")]], -1),
    ([b"k"], [b"v"], [1], [(("a", 1),)], -1),
    ([b"k"], [b"v"], [1], [(("a\0b", b"1"),)], -1),
    ([b"k"], [b"v"], [1], None, []),
    ([b"k"], [b"v"], [1], None, "x"),
    ((b"abc", memoryview(b"\0" * 8), None), [b"v"], [1], None, -1),
    (
        (b"abc", memoryview((1).to_bytes(8, "little") + (9).to_bytes(8, "little")).cast("q"), None),
        [b"v"],
        [1],
        None,
        -1,
    ),
    (
        (b"abc", memoryview((2).to_bytes(8, "little") + (1).to_bytes(8, "little")).cast("q"), None),
        [b"v"],
        [1],
        None,
        -1,
    ),
    ((memoryview((7).to_bytes(4, "little")).cast("i"), [b"a"]), [b"v"], [1], None, -1),
    ((memoryview((-1).to_bytes(4, "little", signed=True)).cast("i"), [b"a"]), [b"v"], [1], None, -1),
]


@pytest.mark.parametrize("columns", COLUMNS)
def test_columns_that_do_not_fit_are_refused_whole(columns: tuple[Any, ...]) -> None:
    with pytest.raises((TypeError, ValueError, LookupError, OverflowError, BufferError)):
        writer().send("t", *columns, 0, 1)


def test_closed_parts_refuse() -> None:
    closed_writer = writer()
    closed_writer.close()
    closed_writer.close()
    with pytest.raises(RuntimeError, match="closed"):
        closed_writer.send("t", [b"k"], [b"v"], [1], None, -1, 0, 1)
    consumer = Consumer(CONFIG)
    reader = penstock_native.Reader(consumer, LIBRARY, VERSION, "mine")
    reader.follow("t", 0)
    assert reader.drain(10, 0) == ([], [])
    reader.close()
    reader.close()
    with pytest.raises(RuntimeError, match="closed"):
        reader.drain(10, 0)
    consumer.close()


def test_a_reader_of_a_closed_client_refuses() -> None:
    consumer = Consumer(CONFIG)
    reader = penstock_native.Reader(consumer, LIBRARY, VERSION, "mine")
    reader.follow("t", 0)
    consumer.close()
    uses: list[Callable[[], Any]] = [
        lambda: reader.drain(10, 0),
        lambda: reader.follow("t", 1),
        lambda: reader.leave("t", 0),
    ]
    for use in uses:
        with pytest.raises(RuntimeError, match="the client is closed"):
            use()
    reader.close()
    with pytest.raises(RuntimeError, match="the reader is closed"):
        reader.drain(10, 0)


def test_a_reader_that_outlives_its_client_is_dropped_in_peace() -> None:
    consumer = Consumer(CONFIG)
    reader = penstock_native.Reader(consumer, LIBRARY, VERSION, "mine")
    reader.follow("t", 0)
    consumer.close()
    del reader
    gc.collect()


def test_a_writer_of_a_closed_client_refuses() -> None:
    producer = Producer({**CONFIG, "group.id": ""})
    of_it = penstock_native.Writer(producer, LIBRARY, VERSION, "mine")
    producer.close()
    with pytest.raises(RuntimeError, match="the client is closed"):
        of_it.send("t", [b"k"], [b"v"], [1], None, -1, 0, 1)
    of_it.close()


@pytest.mark.parametrize("length", [1, 115, 116, 117, 118, 119, 125, 126, 127, 128, 300])
def test_a_client_is_known_by_as_much_of_its_name_as_the_library_keeps(length: int) -> None:
    name = "x" * length
    consumer = Consumer({**CONFIG, "client.id": name})
    penstock_native.Reader(consumer, LIBRARY, VERSION, name).close()
    with pytest.raises(RuntimeError):
        penstock_native.Reader(consumer, LIBRARY, VERSION, "y" + name[1:])
    with pytest.raises(RuntimeError, match=r"other kind|not called"):
        penstock_native.Writer(consumer, LIBRARY, VERSION, name)
    consumer.close()


class Owner:
    """Has a client, and is what the client calls."""

    def __init__(self, kind: str) -> None:
        self.client: Any
        if kind == "reader":
            self.client = Consumer(CONFIG)
            self.client.subscribe(["t"], on_assign=self.heard)
            self.part: Any = penstock_native.Reader(self.client, LIBRARY, VERSION, "mine")
            self.part.follow("t", 0)
        else:
            self.client = Producer({**CONFIG, "group.id": "", "error_cb": self.heard})
            self.part = penstock_native.Writer(self.client, LIBRARY, VERSION, "mine")
            self.part.send("t", [b"k"], [b"v"], [1], None, -1, 0, 1)

    def heard(self, *_: Any) -> None:
        """Whatever the client tells."""


@pytest.mark.parametrize("kind", ["reader", "writer"])
def test_a_client_that_nobody_has_is_collected(kind: str) -> None:
    gone = weakref.ref(Owner(kind))
    gc.collect()
    assert gone() is None
