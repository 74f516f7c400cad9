"""JSON of types: what it refuses to write, and which objects may be shared."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Generic, Literal, NamedTuple, Optional, TypeVar, Union

import msgspec
import pytest

from penstock.state.errors import ProcessingError, SerdeError
from penstock.state.log import Record
from penstock.state.serdes.serde import optional, serde_of, taking_dicts, typed_json
from penstock.streams.task.task_options import TaskOptions
from penstock.streams.testing.test_driver import TopologyTestDriver
from penstock.topologies.aggregators import agg, count, sum_
from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.expressions.functions import col, struct

T = TypeVar("T")


class Row(msgspec.Struct, frozen=True):
    user: str
    n: int = 0


class More(Row, frozen=True):
    extra: int = 1


class Totals(msgspec.Struct, frozen=True):
    total: int
    seen: int


class Mutable(msgspec.Struct):
    n: int


class Nested(msgspec.Struct, frozen=True):
    row: Row
    rows: tuple[Row, ...]
    next: Nested | None = None


class Both(msgspec.Struct, frozen=True):
    """Every type that cannot be changed in place."""

    a: int | None
    b: Optional[str]  # noqa: UP045  # the old form too
    c: Union[int, float]  # noqa: UP007  # the old form too
    d: tuple[int, str]
    e: tuple[float, ...]
    f: frozenset[bytes]
    g: tuple[frozenset[int], ...] | None
    of_class: ClassVar[list[int]] = []


@dataclasses.dataclass(frozen=True)
class Frozen:
    n: int
    row: Row


class Box(msgspec.Struct, Generic[T], frozen=True):
    held: T


class Pair(NamedTuple):
    a: list[int]


HOLDERS: list[Any] = [
    list[str],
    dict[str, int],
    set[str],
    list[str] | None,
    tuple[list[int], ...],
    frozenset[tuple[list[int]]],
    tuple,
    frozenset,
    list,
    dict,
    Mutable,
    Mutable | None,
    tuple[Mutable, ...],
    Any,
    Pair,
    Box[int],
    Literal["a"],
]


@pytest.mark.parametrize("tp", [Row, More, Nested, Both, Frozen, int, str | None, tuple[int, ...]])
def test_what_cannot_be_changed_in_place_may_be_shared(tp: Any) -> None:
    assert typed_json(tp).immutable


@pytest.mark.parametrize("held", HOLDERS, ids=str)
def test_what_may_be_changed_in_place_or_is_not_known_is_not_shared(held: Any) -> None:
    struct = msgspec.defstruct("Holds", [("n", int), ("held", held)], frozen=True)
    made = dataclasses.make_dataclass("Makes", [("n", int), ("held", held)], frozen=True)
    assert not typed_json(struct).immutable
    assert not typed_json(made).immutable
    outer = msgspec.defstruct("Outer", [("inner", struct)], frozen=True)
    assert not typed_json(outer).immutable


class Tagged(msgspec.Struct, frozen=True):
    tags: list[str]


@pytest.mark.parametrize("restart", [False, True])
def test_a_row_that_a_joiner_changes_is_what_the_log_says_for_the_next_one(restart: bool) -> None:
    def joined(value: str, row: Tagged) -> str:
        row.tags.append(value)
        return ",".join(row.tags)

    builder = StreamsBuilder(key=str, value=str)
    builder.stream("in").join(builder.table("rows", value=Tagged), joined, value=str).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        driver.pipe("rows", "k", Tagged(["a"]), 0)
        driver.pipe("in", "k", "x", 1)
        if restart:
            driver.restart()
        driver.pipe("in", "k", "y", 2)
        assert [r.value for r in driver.read("out")] == ["a,x", "a,y"]


@pytest.mark.parametrize("wrong", ["u", 1, {"user": "u"}, Mutable(1), Frozen(1, Row("u"))], ids=str)
@pytest.mark.parametrize(("tp", "good"), [(Row, Row("u")), (Frozen, Frozen(2, Row("u")))])
def test_only_instances_are_written(tp: Any, good: Any, wrong: Any) -> None:
    if type(wrong) is tp:
        return
    serde = typed_json(tp)
    hint = rf"serde json:{tp.__name__} writes instances of {tp.__name__}, and .* is a {type(wrong).__name__}; name the serde"
    with pytest.raises(SerdeError, match=hint):
        serde.serialize(wrong)
    with pytest.raises(SerdeError, match=hint):
        serde.serialize_all([good, None, wrong, good])
    written = msgspec.json.encode(good)
    assert serde.serialize(good) == written
    assert serde.serialize_all([good, None]) == [written, None]


def test_subclasses_and_generic_structs_are_instances_too() -> None:
    assert typed_json(Row).serialize_all([Row("u"), More("m")]) == [
        b'{"user":"u","n":0}',
        b'{"user":"m","n":0,"extra":1}',
    ]
    boxes = typed_json(Box[int])
    assert boxes.deserialize(boxes.serialize(Box(1))) == Box(1)
    with pytest.raises(SerdeError, match="writes instances of Box"):
        boxes.serialize(1)  # type: ignore[arg-type]  # that is what is refused
    assert typed_json(list[int]).serialize([1]) == b"[1]"


def test_a_result_of_another_type_does_not_leave_under_the_inputs_serde() -> None:
    builder = StreamsBuilder(key=str, value=Row)
    builder.stream("in").map_values(lambda v: v.user).to("out")
    with (
        TopologyTestDriver(builder.build()) as driver,
        pytest.raises(ProcessingError, match=r"'u' is a str; .*value=…"),
    ):
        driver.pipe("in", "k", Row("u"))


@pytest.mark.parametrize("batch", [1, 1_000])
def test_records_made_of_columns_are_dicts_of_the_classes_that_are_named(batch: int) -> None:
    builder = StreamsBuilder(key=str, value=Row)
    grouped = builder.stream("in").group_by(struct(user=col("user"), n=col("n")), key=Row)
    grouped.agg(total=sum_("n"), seen=count(), value=Totals).to_stream().to("out")
    grouped.aggregate(agg(total=sum_("n"), seen=count()), value=Totals, name="whole").to_stream().to("whole")
    with TopologyTestDriver(builder.build(), options=TaskOptions(batch_max_records=batch)) as driver:
        driver.pipe_all("in", [Record("k", Row("u", 2), 0)] * 40)
        for topic in ("out", "whole"):
            found = driver.read(topic)
            assert (found[-1].key, found[-1].value) == (Row("u", 2), Totals(80, 40))


def test_an_optional_value_of_no_bytes_is_refused_as_other_unreadable_ones_are() -> None:
    both = optional(serde_of(str))
    assert [both.deserialize(both.serialize(boxed)) for boxed in ((None,), ("",), ("x",))] == [(None,), ("",), ("x",)]
    with pytest.raises(SerdeError, match=r"optional\(string\) must begin with a byte"):
        both.deserialize(b"")


def test_dicts_are_taken_beside_instances_and_nothing_else_is() -> None:
    serde = taking_dicts(serde_of(Row))
    assert serde is taking_dicts(serde_of(Row))
    assert serde.name == serde_of(Row).name
    assert serde.serialize_all([Row("u"), {"user": "u", "n": 0}, None]) == [b'{"user":"u","n":0}'] * 2 + [None]
    with pytest.raises(SerdeError, match="writes instances of Row"):
        serde.serialize_all(["u"])
    assert taking_dicts(serde_of(dict)) is serde_of(dict)


@pytest.mark.parametrize(("kind", "bad"), [(str, 1), (int, "x"), (float, "x"), (bytes, "x")])
def test_a_value_of_another_type_is_told_from_what_the_serde_writes(kind: type, bad: object) -> None:
    with pytest.raises(SerdeError) as refused:
        serde_of(kind).serialize_all([bad])
    assert f"cannot write {type(bad).__name__} {bad!r}" in str(refused.value)
    assert f"it writes {kind.__name__}; give the operator or the topic the serde of this type" in str(refused.value)
    assert "descriptor" not in str(refused.value)


def test_a_value_of_the_right_type_that_does_not_fit_keeps_its_reason() -> None:
    with pytest.raises(SerdeError, match=r"int too large|format requires|argument out of range"):
        serde_of(int).serialize_all([1 << 70])
