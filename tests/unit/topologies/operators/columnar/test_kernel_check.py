"""The check before compiled kernels are used: it finds none wrong, and would find one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from penstock.state import native
from penstock.topologies.operators.columnar.kernel_check import why_not_trusted


def test_the_compiled_part_is_trusted() -> None:
    assert why_not_trusted() is None


def test_without_it_there_is_nothing_to_check() -> None:
    with native.without():
        assert native.compiled() is None
        assert why_not_trusted() is None


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (SimpleNamespace(), "fails at columns of bytes"),
        (SimpleNamespace(pack_rows=lambda values: (b"", bytes(8 * len(values) + 8), None), list_rows=list), "fails at"),
        (
            SimpleNamespace(
                pack_rows=lambda values: (b"", bytes(8 * len(values) + 8), None),
                list_rows=lambda data, offsets, nulls: [data] * (len(offsets) - 1),
                take_rows=lambda data, offsets, nulls, places: (b"", bytes(8 * len(places) + 8), None),
            ),
            "wrong at columns of bytes",
        ),
    ],
)
def test_a_module_that_fails_or_differs_is_not_trusted(
    monkeypatch: pytest.MonkeyPatch, module: Any, words: str
) -> None:
    monkeypatch.setattr(native, "_in_use", [module])
    found = why_not_trusted()
    assert found is not None and words in found


class Other:
    """A tally of the compiled part, but for what a test changes."""

    def __init__(self, tally: Any) -> None:
        self._tally = tally

    def __len__(self) -> int:
        return len(self._tally)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tally, name)


class Forgetting(Other):
    """Forgets what the store holds."""

    def base(self, stored: list[bytes | None]) -> None:
        self._tally.base([None] * len(stored))


class Miscoding(Other):
    """Takes a code for the one before it."""

    def add_coded(self, codes: Any, *rest: Any) -> bool:
        return bool(self._tally.add_coded(np.maximum(codes - 1, 0), *rest))


class Refusing(Other):
    """Counts nothing by code."""

    def add_coded(self, *_: Any) -> bool:
        return False


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Forgetting, "wrong at tallies:"),
        (Miscoding, "wrong at tallies of codes"),
        (Refusing, "wrong at tallies of codes"),
    ],
)
def test_a_tally_that_miscounts_is_found(monkeypatch: pytest.MonkeyPatch, kind: type[Other], words: str) -> None:
    built: Any = native.compiled()
    if built is None:
        assert why_not_trusted() is None
        return
    others = {name: getattr(built, name) for name in dir(built) if not name.startswith("__")}
    module = SimpleNamespace(**{**others, "Tally": lambda: kind(built.Tally())})
    monkeypatch.setattr(native, "_in_use", [module])
    found = why_not_trusted()
    assert found is not None and words in found


class Erring:
    """Functions on tuples that err in one thing."""

    def __init__(self, built: Any) -> None:
        self._built = built

    def write_tuples(self, values: list[Any], forms: bytes | None, stamped: bool) -> Any:
        """Writes numbers of 8 bytes as any others."""
        return self._built.write_tuples(values, None if forms is None else forms.replace(b"q", b"n"), stamped)

    def read_tuples(self, values: list[Any], forms: bytes | None, stamped: bool) -> Any:
        """Reads no times."""
        found = self._built.read_tuples(values, forms, stamped)
        return [entry and (entry[0], 0) for entry in found] if found and stamped else found

    def pack_tuples(self, values: list[Any], forms: bytes | None) -> Any:
        """Takes nulls for bytes."""
        found = self._built.pack_tuples(values, forms)
        return found and (*found[:2], None)


@pytest.mark.parametrize("name", ["write_tuples", "read_tuples", "pack_tuples"])
def test_tuples_that_come_out_otherwise_are_found(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    built: Any = native.compiled()
    if built is None:
        assert why_not_trusted() is None
        return
    others = {one: getattr(built, one) for one in dir(built) if not one.startswith("__")}
    module = SimpleNamespace(**{**others, name: getattr(Erring(built), name)})
    monkeypatch.setattr(native, "_in_use", [module])
    found = why_not_trusted()
    assert found is not None and " at accumulators: " in found


def said_with(monkeypatch: pytest.MonkeyPatch, built: Any, name: str, kind: Any) -> str | None:
    """What the check says if ``kind`` stands around the class of this name."""
    others = {one: getattr(built, one) for one in dir(built) if not one.startswith("__")}
    module = SimpleNamespace(**{**others, name: lambda *args: kind(getattr(built, name)(*args))})
    monkeypatch.setattr(native, "_in_use", [module])
    return why_not_trusted()


def test_sessions_that_lose_a_record_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    built: Any = native.compiled()
    if built is None:
        assert why_not_trusted() is None
        return

    class Losing(Other):
        def take(self, names: Any, numbers: Any, times: Any, at: Any, levels: Any, moved: bool, counts: Any) -> Any:
            return self._tally.take(names, numbers[1:], times[1:], at[1:], levels, moved, counts[1:])

    found = said_with(monkeypatch, built, "SessionCounts", Losing)
    assert found is not None and "wrong at sessions" in found


def test_sessions_that_forget_what_is_stored_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    built: Any = native.compiled()
    if built is None:
        assert why_not_trusted() is None
        return

    class Forgetting(Other):
        def hold(self, name: bytes, stored: Any) -> Any:
            return self._tally.hold(name, [])

    found = said_with(monkeypatch, built, "SessionParts", Forgetting)
    assert found is not None and "wrong at aggregates of sessions" in found


def test_patterns_that_skip_an_event_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    built: Any = native.compiled()
    if built is None:
        assert why_not_trusted() is None
        return

    class Blind(Other):
        def take(self, names: Any, numbers: Any, times: Any, bits: Any, *rest: Any) -> Any:
            return self._tally.take(names, numbers, times, np.where(np.arange(len(bits)) == 7, 0, bits), *rest)

    found = said_with(monkeypatch, built, "Patterns", Blind)
    assert found is not None and "wrong at patterns" in found


class Misplacing(Other):
    """Adds numbers to the group before theirs."""

    def __bool__(self) -> bool:
        return True

    def add_numbers(self, count: int, groups: Any, numbers: Any) -> None:
        self._tally.add_numbers(count, np.maximum(groups - 1, 0), numbers)


class Losing(Other):
    """Keeps no member."""

    def keep(self) -> None:
        pass


class Overcounting(Other):
    """Takes each member for a new one."""

    def fresh(self, absent: Any) -> Any:
        return self._tally.fresh(b"\1" * len(absent))


class Mislogging(Other):
    """Logs the keys of the store."""

    def logged(self) -> Any:
        return self._tally.keys()


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("Bags", Misplacing, "wrong at distinct values"),
        ("Members", Losing, "wrong at members"),
        ("Members", Overcounting, "wrong at members"),
        ("Members", Mislogging, "wrong at members"),
    ],
)
def test_distinct_counts_that_err_are_found(
    monkeypatch: pytest.MonkeyPatch, name: str, kind: type[Other], words: str
) -> None:
    built: Any = native.compiled()
    if built is None:
        assert why_not_trusted() is None
        return
    others = {one: getattr(built, one) for one in dir(built) if not one.startswith("__")}
    module = SimpleNamespace(**{**others, name: lambda: kind(getattr(built, name)())})
    monkeypatch.setattr(native, "_in_use", [module])
    found = why_not_trusted()
    assert found is not None and words in found


def test_choosing(monkeypatch: pytest.MonkeyPatch) -> None:
    fitting: Any = SimpleNamespace()
    monkeypatch.setattr(native, "_in_use", [None])
    monkeypatch.setattr(native, "_FITTING", fitting)
    native.choose("auto")
    assert native.compiled() is fitting
    native.choose("off")
    assert native.compiled() is None
