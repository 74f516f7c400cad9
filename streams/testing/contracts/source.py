"""The contract of sources that keep positions: a position always leads to the same rest."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import pytest

from penstock.streams.connectors.source import Source, SourceRecord

RecordsRead = list[tuple[SourceRecord, str]]
_BATCHES_MAX = 10_000


class SourceContract(ABC):
    """The contract of every source that keeps positions. Subclass it, and say how one is made::

        class TestMySource(SourceContract):
            def source(self):
                return MySource(self.folder)

    ``folder``: a fresh one for each test."""

    @abstractmethod
    def source(self) -> Source:
        """A source of this test, always of the same content: two splits at least, with five records or more in the first."""

    @pytest.fixture(autouse=True)
    def _own_folder(self, tmp_path: Any) -> None:
        self.folder = tmp_path

    def read(self, split: str, position: str | None, max_records: int) -> RecordsRead:
        """All records from a position on, with the position behind each batch."""
        reader, found = self.source().open(split, position), []
        for _ in range(_BATCHES_MAX):
            batch = reader.read(max_records)
            assert batch.position is not None, "a source that keeps no positions is at-least-once; it has no contract"
            assert len(batch.records) <= max_records
            found += [(record, batch.position) for record in batch.records]
            if batch.ended:
                break
        else:
            raise AssertionError("it does not end")
        reader.close()
        reader.close()
        return found

    def test_it_has_the_splits_that_the_contract_needs(self) -> None:
        splits = self.source().splits()
        assert len(splits) >= 2
        assert len(set(splits)) == len(splits)
        assert splits == self.source().splits()
        assert len(self.read(splits[0], None, 100)) >= 5

    @pytest.mark.parametrize("max_records", [1, 2, 3, 5])
    def test_records_are_the_same_in_batches_of_any_size(self, max_records: int) -> None:
        for split in self.source().splits():
            whole = [record for record, _ in self.read(split, None, 1_000)]
            assert [record for record, _ in self.read(split, None, max_records)] == whole

    def test_each_position_leads_to_the_rest(self) -> None:
        for split in self.source().splits():
            whole = self.read(split, None, 1)
            for done, (_, position) in enumerate(whole, 1):
                rest = [record for record, _ in self.read(split, position, 2)]
                assert rest == [record for record, _ in whole[done:]]

    def test_a_position_does_not_depend_on_the_way_to_it(self) -> None:
        split = self.source().splits()[0]
        one_by_one = self.read(split, None, 1)
        again = self.read(split, one_by_one[1][1], 1)
        assert [position for _, position in again] == [position for _, position in one_by_one[2:]]

    def test_reading_on_at_the_end_gives_nothing(self) -> None:
        split = self.source().splits()[0]
        reader = self.source().open(split, self.read(split, None, 1_000)[-1][1])
        for _ in range(2):
            batch = reader.read(10)
            assert batch.records == []
            assert batch.ended
        reader.close()
