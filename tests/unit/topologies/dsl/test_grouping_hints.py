"""Who asks a stream for what only a grouped one has is told to group it."""

from __future__ import annotations

import pytest

from penstock.topologies.dsl.builder import StreamsBuilder
from penstock.topologies.dsl.kgrouped_stream import KGroupedStream
from penstock.topologies.dsl.kstream import OF_GROUPED, KStream


@pytest.fixture
def stream() -> KStream:
    return StreamsBuilder("t").stream("in")


@pytest.mark.parametrize("name", sorted(OF_GROUPED))
def test_a_stream_says_that_it_is_to_be_grouped(name: str, stream: KStream) -> None:
    with pytest.raises(AttributeError, match=rf"Group the stream first: stream\.group_by_key\(\)\.{name}\("):
        getattr(stream, name)
    assert not hasattr(stream, name)
    assert callable(getattr(KGroupedStream, name))


def test_other_names_are_missed_as_anywhere(stream: KStream) -> None:
    with pytest.raises(AttributeError, match="'KStream' object has no attribute 'fold'"):
        stream.fold()  # type: ignore[attr-defined]  # that it is missing is the test
    assert not hasattr(stream, "__deepcopy__")
