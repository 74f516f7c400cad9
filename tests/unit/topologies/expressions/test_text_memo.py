"""Results of functions of one text that are kept from batch to batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from penstock.topologies.expressions import functions as f
from penstock.topologies.expressions import text_memo
from penstock.topologies.expressions.inference import scope_of
from penstock.topologies.expressions.text_memo import TextMemo
from penstock.topologies.expressions.vectors import Vectors
from penstock.topologies.operator_api.batch import ColumnBatch
from penstock.topologies.operator_api.columns import CodedColumn, StructColumn


class Counted:
    """Upper-cases, counts its calls, and fails for ``"bad"``."""

    def __init__(self) -> None:
        self.calls: list[str | None] = []

    def __call__(self, text: str | None) -> str | None:
        self.calls.append(text)
        if text == "bad":
            raise ValueError(text)
        return None if text is None else text.upper()


def test_each_text_is_computed_once() -> None:
    memo, compute = TextMemo(), Counted()
    assert memo.results(["a", None, "bad"], compute) == (["A", None, None], [2])
    assert memo.results(["bad", "b", "a", None], compute) == ([None, "B", "A", None], [0])
    assert memo.results(["b", "a"], compute) == (["B", "A"], [])
    assert compute.calls == ["a", None, "bad", "b"]


@pytest.mark.parametrize("count", [4, 40])
def test_however_many_texts_fail_each_is_found(count: int) -> None:
    memo = TextMemo()
    texts: list[str | None] = [str(i) if i % 2 else f"{i}x" for i in range(count)]
    for _ in range(2):
        found = memo.results(texts, lambda text: int(text or 0))
        assert found is not None
        results, wrong = found
        assert results == [i if i % 2 else None for i in range(count)]
        assert sorted(wrong) == list(range(0, count, 2))
    assert memo.results(["1", "3"], lambda text: int(text or 0)) == ([1, 3], [])


def test_texts_that_hardly_come_again_are_left_for_a_while() -> None:
    memo, compute = TextMemo(), Counted()
    assert memo.results(["a", "b", "c"], compute) is not None
    assert memo.results(["d", "e", "a"], compute) == (["D", "E", "A"], [])
    assert [memo.results(["a"], compute) for _ in range(64)] == [None] * 64
    assert memo.results(["a"], compute) == (["A"], [])
    assert compute.calls.count("a") == 2


@pytest.mark.parametrize(("name", "most"), [("_ENTRIES_MAX", 3), ("_CHARACTERS_MAX", 7)])
def test_no_more_than_its_bound_is_kept(monkeypatch: pytest.MonkeyPatch, name: str, most: int) -> None:
    monkeypatch.setattr(text_memo, name, most)
    memo, compute = TextMemo(), Counted()
    memo.results(["a", "b", "c"], compute)
    memo.results(["a", "b", "c"], compute)
    assert compute.calls == ["a", "b", "c"]
    memo.results(["a", "b", "c", "d"], compute)
    memo.results(["a", "b", "c", "d"], compute)
    assert compute.calls == ["a", "b", "c", "d", "a", "b", "c", "d"]


def test_results_that_code_can_change_are_not_kept() -> None:
    memo = TextMemo()
    assert memo.results(["a"], lambda text: [text]) == ([["a"]], [])
    assert memo.results(["a"], lambda text: [text]) is None


def column(vectors: Vectors, **fields: list[Any]) -> Any:
    """What a batch of these fields yields."""
    rows = len(next(iter(fields.values())))
    value = StructColumn({name: CodedColumn.of(values) for name, values in fields.items()}, dict)
    return vectors.column(ColumnBatch([None] * rows, value, np.arange(rows), np.arange(rows)))


def test_later_batches_have_the_answers_of_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Counted()
    monkeypatch.setattr(text_memo._Known, "__missing__", _watched(text_memo._Known.__missing__, calls))
    vectors = Vectors(f.col("t").regexp_extract("a(.)", 1), scope_of({"t": str | None}))
    assert column(vectors, t=["ab", None, "x", "ab"]).to_list() == ["b", None, None, "b"]
    assert column(vectors, t=["ac", "ab", None]).to_list() == ["c", "b", None]
    assert calls.calls == ["ab", None, "x", "ac"]


def _watched(plain: Any, calls: Counted) -> Any:
    def missing(known: Any, text: str | None) -> Any:
        calls(text)
        return plain(known, text)

    return missing


def test_a_text_that_fails_leaves_its_batch_to_the_rows_each_time() -> None:
    vectors = Vectors(f.col("t").cast("int64"), scope_of({"t": str}))
    for _ in range(3):
        assert column(vectors, t=["1", "no", "1"]) is None
        assert column(vectors, t=["1", "2", "1"]).to_list() == [1, 2, 1]


def test_only_texts_are_remembered() -> None:
    vectors = Vectors(f.coalesce(f.col("n"), f.lit(0)), scope_of({"n": int | None}))
    assert column(vectors, n=["1"]) is None
    assert column(vectors, n=[1, None]).to_list() == [1, 0]
