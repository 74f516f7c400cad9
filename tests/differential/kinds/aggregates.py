"""Kinds that aggregate streams: per key, per key and window, and several streams together."""

from __future__ import annotations

from typing import Any

from tests.differential.kinds.kind import (
    WINDOWS,
    Node,
    aggregate,
    by_key,
    count,
    kind,
    node,
    one_of,
    reduce,
    sink,
    stream,
)

FOLDS: dict[str, tuple[str, dict[str, str]]] = {
    "count": ("count", {}),
    "reduce": ("reduce", {"reducer": "chain"}),
    "aggregate": ("aggregate", {"init": "empty", "adder": "append"}),
}


_LAGGING = {"kafka_retention_ms": 100_000}
"""Of windows that one input can still reach after another one has passed them, which Kafka Streams forgets sooner."""


def _fold(name: str, of: str, **fields: object) -> Node:
    fn, functions = FOLDS[name]
    return node("aggregate", "made", of, fn=fn, **functions, **fields)


def _kept(type_: str, emit: str = "on_update") -> dict[str, Any]:
    """How long Kafka Streams is to keep windows where its default is too short: sessions are
    forgotten that a record in time can still reach, and windows that wait for their close are lost when time jumps over
    them."""
    if emit == "on_close":
        return {"kafka_retention_ms": 100_000}
    return {"kafka_retention_for_merging": True} if type_ == "session" else {}


for _name in FOLDS:
    kind(f"keyed_{_name}", stream("s"), by_key("s"), _fold(_name, "s_by_key"), sink("made"))
    kind(
        f"rekeyed_{_name}",
        stream("s"),
        node("group_by", "grouped", "s", fn="by_letter"),
        _fold(_name, "grouped"),
        sink("made"),
    )
kind("keyed_reduce_least", stream("s"), by_key("s"), reduce("made", "s_by_key", "least"), sink("made"))
kind("keyed_reduce_to_null", stream("s"), by_key("s"), reduce("made", "s_by_key", "chain_or_null"), sink("made"))
kind("keyed_aggregate_to_null", stream("s"), by_key("s"), aggregate("made", "s_by_key", "append_or_null"), sink("made"))
kind("keyed_aggregate_from_null", stream("s"), by_key("s"), aggregate("made", "s_by_key", init="nothing"), sink("made"))
kind(
    "keyed_after_select_key",
    stream("s"),
    node("select_key", "keyed", "s", fn="by_key_and_letter"),
    by_key("keyed"),
    aggregate("made", "keyed_by_key", "append_keyed", store="rows"),
    sink("made"),
)
kind(
    "keyed_two_of_one_stream",
    stream("s"),
    by_key("s"),
    count("n", "s_by_key"),
    reduce("made", "s_by_key"),
    sink("n", "counts"),
    sink("made"),
)
kind(
    "keyed_filtered_after_map",
    stream("s"),
    node("map", "mapped", "s", fn="swapped"),
    node("filter", "kept", "mapped", fn="short"),
    by_key("kept"),
    aggregate("made", "kept_by_key"),
    sink("made"),
)

# -- windows -----------------------------------------------------------------------------------------------------

for _type, _window in WINDOWS.items():
    for _name in FOLDS:
        _extra = {"merger": "merged"} if (_type, _name) == ("session", "aggregate") else {}
        for _emit in ("on_update", "on_close"):
            kind(
                f"{_type}_{_name}_{_emit}",
                stream("s"),
                by_key("s"),
                _fold(_name, "s_by_key", window=_window, emit=_emit, **_extra, **_kept(_type, _emit)),
                sink("made"),
                null_values=False,
                rocksdb=(_type, _emit)
                == ("session", "on_close"),  # sessions of one end come in another order in memory
            )
    kind(
        f"{_type}_suppressed",
        stream("s"),
        by_key("s"),
        reduce("made", "s_by_key", window=_window, **_kept(_type)),
        node("suppress", "last", "made", until="window_close"),
        sink("last"),
        null_values=False,
    )
    kind(
        f"{_type}_rekeyed",
        stream("s"),
        node("group_by", "grouped", "s", fn="by_letter"),
        reduce("made", "grouped", window=_window, **_kept(_type)),
        sink("made"),
        null_values=False,
    )
    kind(
        f"{_type}_suppressed_by_time",
        stream("s"),
        by_key("s"),
        reduce("made", "s_by_key", window=_window, **_kept(_type)),
        node("suppress", "last", "made", until="time_limit", limit_ms=one_of(0, 5, 20)),
        sink("last"),
        null_values=False,
    )
_FOR_EVER = {"type": "unlimited", "start_ms": one_of(0, 20)}
for _name in FOLDS:
    kind(
        f"unlimited_{_name}",
        stream("s"),
        by_key("s"),
        _fold(_name, "s_by_key", window=_FOR_EVER),
        sink("made"),
        null_values=False,
    )
for _type in ("tumbling", "session"):
    kind(
        f"{_type}_filtered_and_mapped",
        stream("s"),
        by_key("s"),
        reduce("n", "s_by_key", window=WINDOWS[_type], **_kept(_type)),
        node("filter", "kept", "n", fn="short"),
        node("map_values", "made", "kept", fn="tagged"),
        sink("made"),
        null_values=False,
    )
for _type in ("tumbling", "hopping", "session"):
    for _emit in ("on_update", "on_close"):
        kind(
            f"{_type}_default_{_emit}",
            stream("s"),
            by_key("s"),
            reduce("made", "s_by_key", window=WINDOWS[_type], emit=_emit),
            sink("made"),
            null_values=False,
            rocksdb=(_type, _emit) == ("session", "on_close"),
        )
kind(
    "windowed_null_values",
    stream("s"),
    by_key("s"),
    count("made", "s_by_key", window=WINDOWS["tumbling"]),
    sink("made"),
)
kind(
    "windowed_two_of_one_stream",
    stream("s"),
    by_key("s"),
    count("n", "s_by_key", window=WINDOWS["hopping"]),
    reduce("made", "s_by_key", window=WINDOWS["session"], **_kept("session")),
    sink("n", "counts"),
    sink("made"),
    null_values=False,
)
kind(
    "windowed_suppressed_behind_a_map",
    stream("s"),
    by_key("s"),
    reduce("made", "s_by_key", window=WINDOWS["tumbling"]),
    node("map_values", "tagged", "made", fn="tagged"),
    node("suppress", "last", "tagged", until="window_close"),
    sink("last"),
    null_values=False,
)
kind(
    "windowed_suppressed_behind_a_filter",
    stream("s"),
    by_key("s"),
    count("n", "s_by_key", window=WINDOWS["tumbling"]),
    node("filter", "odd", "n", fn="odd"),
    node("suppress", "last", "odd", until="window_close"),
    sink("last"),
    null_values=False,
)
kind(
    "windowed_to_stream_rekeyed",
    stream("s"),
    by_key("s"),
    count("n", "s_by_key", window=WINDOWS["tumbling"]),
    node("to_stream", "made", "n", key_fn="window_text"),
    sink("made"),
    null_values=False,
)

# -- several streams ---------------------------------------------------------------------------------------------


def _cogroup(*others: str, **fields: object) -> list[Node]:
    names = ["s", *others]
    adders = ["append_left", "append_right", "append_third"]
    groups = [{"in": f"{n}_by_key", "adder": a} for n, a in zip(names, adders, strict=False)]
    return [
        *[stream(n) for n in names],
        *[by_key(n) for n in names],
        {"op": "cogroup", "id": "made", "groups": groups, "init": "empty", **fields},
    ]


kind("cogroup_of_one", *_cogroup(), sink("made"))
kind("cogroup_of_two", *_cogroup("t"), sink("made"))
kind("cogroup_of_three", *_cogroup("t", "u"), sink("made"))
kind(
    "cogroup_rekeyed",
    stream("s"),
    stream("t"),
    by_key("s"),
    node("group_by", "grouped", "t", fn="by_letter"),
    {
        "op": "cogroup",
        "id": "made",
        "init": "empty",
        "groups": [{"in": "s_by_key", "adder": "append_left"}, {"in": "grouped", "adder": "append_right"}],
    },
    sink("made"),
    keys="pabc",
)
for _type, _window in WINDOWS.items():
    _extra = {"merger": "merged"} if _type == "session" else {}
    _made = _cogroup("t", window=_window, **_extra, **_LAGGING)
    kind(f"cogroup_{_type}", *_made, sink("made"), null_values=False)
kind("cogroup_unlimited", *_cogroup("t", window=_FOR_EVER), sink("made"), null_values=False)
kind(
    "cogroup_tumbling_suppressed",
    *_cogroup("t", window=WINDOWS["tumbling"], **_LAGGING),
    node("suppress", "last", "made", until="window_close"),
    sink("last"),
    null_values=False,
)
kind(
    "cogroup_session_suppressed",
    *_cogroup("t", window=WINDOWS["session"], merger="merged", **_LAGGING),
    node("suppress", "last", "made", until="window_close"),
    sink("last"),
    null_values=False,
)

# -- what was aggregated, aggregated again -----------------------------------------------------------------------

kind(
    "again_count_of_counts",
    stream("s"),
    by_key("s"),
    count("n", "s_by_key"),
    node("group_by", "by_count", "n", fn="row_by_number"),
    count("made", "by_count"),
    sink("made"),
)
kind(
    "again_all_counts",
    stream("s"),
    by_key("s"),
    count("n", "s_by_key"),
    node("group_by", "all", "n", fn="row_by_all_above_zero"),
    aggregate("made", "all", subtractor="take_out"),
    sink("made"),
)
kind(
    "again_count_of_counts_from_zero",
    stream("s"),
    by_key("s"),
    count("n", "s_by_key"),
    node("group_by", "by_count", "n", fn="row_by_text"),
    count("made", "by_count"),
    sink("made"),
)
kind(
    "again_reduce_of_reduce",
    stream("s"),
    by_key("s"),
    reduce("first", "s_by_key", "least"),
    node("group_by", "by_letter", "first", fn="row_by_letter"),
    reduce("made", "by_letter", subtractor="unchain"),
    sink("made"),
)
kind(
    "again_windows_to_keys",
    stream("s"),
    by_key("s"),
    count("n", "s_by_key", window=WINDOWS["tumbling"]),
    node("group_by", "per_key", "n", fn="row_by_window_key"),
    aggregate("made", "per_key", "plus_number", "zero", subtractor="minus_number"),
    sink("made"),
    null_values=False,
)
kind(
    "again_windows_to_starts",
    stream("s"),
    by_key("s"),
    reduce("n", "s_by_key", window=WINDOWS["hopping"]),
    node("group_by", "per_start", "n", fn="row_by_window_start"),
    aggregate("made", "per_start", subtractor="take_out"),
    sink("made"),
    null_values=False,
)
kind(
    "again_sessions_to_keys",
    stream("s"),
    by_key("s"),
    reduce("n", "s_by_key", window=WINDOWS["session"], **_kept("session")),
    node("group_by", "per_key", "n", fn="row_by_window_key"),
    aggregate("made", "per_key", subtractor="take_out"),
    sink("made"),
    null_values=False,
)
kind(
    "again_closed_windows_per_key",
    stream("s"),
    by_key("s"),
    count("n", "s_by_key", window=WINDOWS["tumbling"], emit="on_close", **_kept("tumbling", "on_close")),
    node("to_stream", "told", "n", key_fn="window_key"),
    by_key("told"),
    aggregate("made", "told_by_key"),
    sink("made"),
    null_values=False,
)
kind(
    "again_windows_of_counts",
    stream("s"),
    by_key("s"),
    count("n", "s_by_key"),
    node("to_stream", "told", "n"),
    by_key("told"),
    aggregate("made", "told_by_key", window=WINDOWS["tumbling"]),
    sink("made"),
)

# -- the last result per commit, as the record cache -------------------------------------------------------------

for _name in FOLDS:
    kind(
        f"per_commit_{_name}",
        stream("s"),
        node("flat_map_values", "all", "s", fn="pieces"),
        by_key("all"),
        _fold(_name, "all_by_key", emit="per_commit"),
        sink("made"),
        pieces=True,
    )
for _type, _window in WINDOWS.items():
    for _name in ("count", "reduce"):
        kind(
            f"per_commit_{_type}_{_name}",
            stream("s"),
            node("flat_map_values", "all", "s", fn="pieces"),
            by_key("all"),
            _fold(_name, "all_by_key", window=_window, emit="per_commit", **_kept(_type)),
            sink("made"),
            pieces=True,
        )
kind(
    "per_commit_filtered",
    stream("s"),
    node("flat_map_values", "all", "s", fn="pieces"),
    by_key("all"),
    count("n", "all_by_key", emit="per_commit"),
    node("filter", "odd", "n", fn="odd"),
    sink("odd"),
    pieces=True,
)
kind(
    "per_commit_grouped_again",
    stream("s"),
    node("flat_map_values", "all", "s", fn="pieces"),
    by_key("all"),
    count("n", "all_by_key", emit="per_commit"),
    node("group_by", "by_count", "n", fn="row_by_number"),
    count("made", "by_count"),
    sink("made"),
    pieces=True,
)
kind(
    "per_commit_cogroup",
    *(stream(n) for n in "st"),
    node("flat_map_values", "all_s", "s", fn="pieces"),
    node("flat_map_values", "all_t", "t", fn="pieces"),
    by_key("all_s"),
    by_key("all_t"),
    {
        "op": "cogroup",
        "id": "made",
        "init": "empty",
        "groups": [{"in": "all_s_by_key", "adder": "append_left"}, {"in": "all_t_by_key", "adder": "append_right"}],
        "emit": "per_commit",
    },
    sink("made"),
    pieces=True,
)
kind(
    "per_commit_to_null",
    stream("s"),
    node("flat_map_values", "all", "s", fn="pieces"),
    by_key("all"),
    reduce("made", "all_by_key", "chain_or_null", emit="per_commit"),
    sink("made"),
    pieces=True,
)
