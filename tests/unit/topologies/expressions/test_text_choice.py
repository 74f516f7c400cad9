"""Whether expressions of texts go by bytes or by distinct values."""

from __future__ import annotations

from penstock.topologies.expressions.text_kernels import TextChoice


def test_a_batch_now_and_then_tells_whether_values_are_few() -> None:
    choice = TextChoice(True)
    assert [choice.by_bytes() for _ in range(2)] == [True, False]
    choice.saw(distinct=30, rows=100)
    assert sum(choice.by_bytes() for _ in range(65)) == 64
    choice.saw(distinct=6, rows=100)
    assert not any(choice.by_bytes() for _ in range(65))
    choice.saw(distinct=7, rows=100)
    assert choice.by_bytes()
