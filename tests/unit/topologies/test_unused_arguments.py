"""Which functions are known not to use an argument: those whose code never names it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from penstock.topologies.functions import leaves_alone


def alone(key: Any, value: Any, so_far: Any) -> Any:
    found = [key for _ in (1, 2)]
    return (found, so_far)


def nested(key: Any, value: Any, so_far: Any) -> Any:
    return (lambda: value)()


def in_comprehension(key: Any, value: Any, so_far: Any) -> Any:
    return [value for _ in (1, 2)]


def two_at_once(key: Any, value: Any, so_far: Any) -> Any:
    return key, value, so_far


def rebound(key: Any, value: Any, so_far: Any) -> Any:
    value = key
    return value


def all_variables(key: Any, value: Any, so_far: Any) -> Any:
    return locals()


def any_number(key: Any, *rest: Any) -> Any:
    return key


def by_attribute(key: Any, value: Any, so_far: Any) -> Any:
    return so_far.value


USING = [nested, in_comprehension, two_at_once, rebound, all_variables, any_number]


def test_a_function_that_does_not_name_its_argument_leaves_it_alone() -> None:
    assert leaves_alone(alone, 1)
    assert not leaves_alone(alone, 0)
    assert not leaves_alone(alone, 2)
    assert not leaves_alone(alone, 3)
    assert leaves_alone(lambda key, value, so_far: so_far + 1, 1)


@pytest.mark.parametrize("fn", USING)
def test_what_may_use_it_does(fn: Callable[..., Any]) -> None:
    assert not leaves_alone(fn, 1)


def test_a_name_is_enough() -> None:
    assert not leaves_alone(by_attribute, 1), "an attribute of that name is not told apart"


def test_of_other_callables_nothing_is_known() -> None:
    class Callable3:
        def __call__(self, key: Any, value: Any, so_far: Any) -> Any:
            return so_far

    for fn in (functools.partial(alone), Callable3(), Callable3().__call__, max):
        assert not leaves_alone(fn, 1)
