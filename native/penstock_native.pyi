"""The compiled part. Everything here has a twin in Python that gives the same answers.

Buffers of numbers are ``bytes`` in the machine's order: int64, or one byte per flag.
"""

from collections.abc import Sequence
from typing import Any

INTERFACE: int
"""Changes with every change of a signature; whoever uses the module compares it."""

_Strings = tuple[bytes | memoryview, bytes, bytes | None]
"""Data, n + 1 int64 ends (the first is 0), and one flag per value that is ``None`` (``None``: none is)."""

_Chunk = tuple[
    str,  # topic
    int,  # partition
    int,  # first offset
    int,  # last offset
    bytes | None,  # int64 offsets; None where none is missing between first and last
    bytes,  # int64 timestamps, the one that stands for 0 honoured
    _Strings,  # keys
    _Strings,  # values
    list[tuple[tuple[str, bytes | None], ...]] | None,  # headers; None where no record has any
    int,  # epoch of the leader that the last record was written to; -1 if not known
    tuple[int, tuple[bytes | None, list[tuple[Any, ...]]]] | None,  # the token of a projector and what it read ahead
    bool,  # whether the offsets ascend
]

_Event = tuple[str | None, int, int, int, str]
"""Topic, partition, error code, offset and text of what is not a record."""

class Reader:
    """The records of a consumer's partitions, read from a queue of the reader's own.

    Holds the consumer. Used by the client's thread only; ``close`` comes before the client's own.
    """

    def __init__(self, consumer: Any, library: str, version: int, client_id: str) -> None:
        """``library``: the file of the client's extension module, ``version``: of librdkafka, as the client says,
        ``client_id``: as configured. ``RuntimeError`` if the client is not built as expected; it is not touched then."""

    def follow(self, topic: str, partition: int) -> None:
        """Read this partition. Before each call that starts it in the client, or starts it anew."""

    def leave(self, topic: str, partition: int) -> None:
        """Read it no more. After the call that stops it in the client."""

    def discard(self, topic: str, partition: int) -> None:
        """Drop what was read ahead of it. Before each call that seeks or pauses it in the client."""

    def project(self, topic: str, partition: int, by: JsonProjector | None) -> None:
        """Have the partition's values read ahead by this projector, which is used for nothing else; ``None``: no more."""

    def drain(self, max_records: int, timeout_ms: int) -> tuple[list[_Chunk], list[_Event]]:
        """What is there, up to ``max_records`` records and events, waiting for the first of them; chunks per partition.
        If there were that many, a thread reads on after the call.
        May return nothing before the time is over. A record with a header whose name is not UTF-8 is an event of the code
        ``_VALUE_DESERIALIZATION``; of its partition nothing behind it is handed over, so the client is to be sought to it
        before the next call."""

    def close(self) -> None:
        """Give everything back and drop what was not read. Idempotent."""

class Writer:
    """Queues records of a producer, as its own ``produce`` does, without delivery reports.

    Holds the producer. Used by the client's thread only; ``close`` comes before the client is let go.
    """

    def __init__(self, producer: Any, library: str, version: int, client_id: str) -> None:
        """As for ``Reader``."""

    def send(
        self,
        topic: str,
        keys: Any,
        values: Any,
        timestamps: Any,
        headers: Any,
        partition: Any,
        start: int,
        stop: int,
    ) -> int:
        """Queue the records ``start <= i < stop``; how many were taken. The first that is not taken ends the call.

        ``keys``, ``values``: a list of ``bytes | None``, or ``(data, int64 offsets, uint8 nulls | None)``, or
        ``(int32 codes, list of bytes | None)``.
        ``timestamps``: a list or an int64 array. ``headers``: a list of tuples of ``(str, bytes | None)``, or ``None``;
        the header that stands for timestamp 0 is added where it is 0 and taken away elsewhere. ``partition``: one for
        all, or a list or int32 array; -1: by the configured partitioner. Columns of other types raise an exception
        (``TypeError``, ``ValueError``, ``OverflowError``, ``BufferError``, …) before anything is queued.
        """

    def close(self) -> None:
        """Give the topics back. Idempotent."""

class EntryMap:
    """See ``penstock.state.stores.entry_cache.EntryMap``."""

    def __init__(self) -> None: ...
    def __len__(self) -> int: ...
    @property
    def used_bytes(self) -> int: ...
    @property
    def written_bytes(self) -> int: ...
    @property
    def forgot(self) -> bool: ...
    def get_many(self, keys: Sequence[bytes]) -> tuple[list[bytes | None], list[int]]: ...
    def find_rows(self, data: Any, offsets: Any, skip: int) -> tuple[bytes, bytes, bytes | None, bytes]:
        """Of a column of keys without nulls: the values without their first ``skip`` bytes (data, int64 ends from a 0 on),
        a byte per row, 1 where there is none (``None``: nowhere), and the int64 places of keys of which nothing is known."""

    def put_many(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None: ...
    def put_rows(self, data: Any, offsets: Any, value_data: Any, value_offsets: Any, value_nulls: Any = None) -> None:
        """``put_many`` of a column of keys without nulls and one of values."""

    def put_stamped(
        self, prefixes: Any, data: Any, offsets: Any, times: Any, value_data: Any, value_offsets: Any
    ) -> None:
        """``put_rows`` without nulls, of keys behind int64 prefixes, if there are any, and values behind int64 times, both
        big-endian."""

    def keep_many(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None: ...
    def forget_below(self, bound: bytes) -> None: ...
    def sort_written(self) -> int: ...
    def written_part(self, prefix: bytes, start: int, stop: int) -> tuple[list[bytes], list[bytes | None]]: ...
    def written_between(
        self, low: bytes, high: bytes | None, most: int, last: bool
    ) -> tuple[list[bytes], list[bytes | None]]: ...
    def settle(self) -> None: ...
    def shrink(self, max_bytes: int) -> None: ...
    def clear(self) -> None: ...

# The kernels take columns of byte strings as data, int64 offsets and uint8 nulls, and other columns as arrays. All raise
# ValueError for buffers that do not fit together, and let go of the GIL.

class Interner:
    """Codes byte strings, and keeps the values between batches."""

    def __init__(self, bytes_max: int, text: bool) -> None:
        """Begins anew before a batch that finds more than ``bytes_max`` bytes kept. ``text``: values are ``str``."""

    def encode(self, data: Any, offsets: Any, nulls: Any) -> tuple[bytes, list[Any]]:
        """int32 codes, and the batch's distinct values in the order of first appearance."""

class Latest:
    """See ``penstock.state.stores.latest_view.LatestTexts``."""

    def __init__(self, later: bool) -> None: ...
    def __len__(self) -> int: ...
    @property
    def used_bytes(self) -> int: ...
    @property
    def any_stored(self) -> bool: ...
    def add(self, data: Any, offsets: Any, times: Any, text_data: Any, text_offsets: Any) -> None: ...
    def unbased(self) -> list[bytes]: ...
    def base(self, stored: list[bytes | None]) -> None: ...
    def base_from(self, known: EntryMap, whole: bool) -> None: ...
    def texts(self) -> tuple[bytes, bytes, bytes, bytes, bytes]: ...
    def tuples(self) -> tuple[bytes, bytes, bytes, bytes, bytes]: ...
    def clear(self) -> None: ...

class ListEntries:
    """Which entries each key of a list store has, and those that no commit has stored yet. Names as in
    ``penstock.state.stores.list_store``: a group is the entries of a key in a segment."""

    def __init__(self, segment_ms: int) -> None: ...
    def __len__(self) -> int:
        """The number of uncommitted entries."""

    @property
    def uncommitted_bytes(self) -> int: ...
    @property
    def used_bytes(self) -> int: ...
    @property
    def latest_ms(self) -> int:
        """No entry has a later time."""

    def begin(self, first: int, latest_ms: int) -> None:
        """Forget everything, and begin over a store that has no entry in a segment below ``first``, and none after
        ``latest_ms``."""

    def within(self, data: Any, offsets: Any, from_ms: int, to_ms: int) -> tuple[bytes, bytes, list[tuple[int, bytes]]]:
        """Of each key, which are distinct, the entries with ``from_ms <= time <= to_ms``: int64 counts, and int64 times by
        key, time, number. If any are named as third, by segment and key, ``load`` these and ask again."""

    def values(self, places: Any) -> tuple[bytes, bytes, bytes, bytes, bytes]:
        """Of the entries that ``within`` found last, those at these int64 places: the values of uncommitted ones (data,
        int64 ends; committed ones are empty), the int64 indices of the committed ones in ``places``, and their store keys
        (data, int64 ends)."""

    def named(self, data: Any, offsets: Any) -> tuple[bytes, bytes, bytes, bytes, bytes]:
        """``values`` of entries by their names: key, time and number. Those that are not known here count as committed,
        although the store may have none."""

    def names(self, places: Any) -> tuple[bytes, bytes]:
        """The names of the entries that ``within`` found last, at these int64 places: data, int64 ends."""

    def numbers(self) -> bytes:
        """The uint32 numbers that the entries of the last ``append`` got, in their order."""

    def load(self, segment: int, key: bytes, entries: list[bytes]) -> None:
        """Take what the store has of a group, ascending: each entry's time and number as in its store key."""

    def append(
        self,
        data: Any,
        offsets: Any,
        numbers: Any,
        times: Any,
        value_data: Any,
        value_offsets: Any,
        expired: Any,
        checked: bool,
    ) -> bytes:
        """Append entries: int64 ``numbers`` of their keys, int64 ``times``, values. uint8 ``expired``, or ``None``: 1 for
        those that are over, which get number 0. Unless ``checked``: the int64 indices of those whose number depends on
        whether the store has number 0 of their key and time; with any, nothing was done. If it has, ``load`` the group;
        then append with ``checked``."""

    def appends(self, floor: int) -> tuple[bytes, bytes, bytes, bytes, bytes, bytes]:
        """What the next commit writes of segments from ``floor`` on: the int64 segments, what follows them in the store keys
        and the values, each as data and int64 ends, and int64 times."""

    def committed(self, floor: int) -> None:
        """What was appended is stored, and segments below ``floor`` are gone."""

    def trim(self, max_bytes: int) -> bool:
        """Free memory down to half of ``max_bytes``; ``False``: not while entries are uncommitted."""

class PaneCounts:
    """Counts of records by pane and key, and what the store does not have of them yet. A store key is the start of the
    pane, 8 bytes, and the key."""

    def __init__(self) -> None: ...
    def __len__(self) -> int:
        """The number of store keys."""

    @property
    def pending(self) -> int:
        """How many of them ``changes`` would give."""

    def add(self, keys: list[bytes], counts: Any, times: Any, stored: bool) -> bool:
        """Add int64 counts to store keys, each with the int64 highest timestamp of its records. ``stored``: the store has
        them. ``False``: nothing was added, because a count is negative, or all counts together exceed 64 bits."""

    def first(self, start: int) -> int | None:
        """The start of the first pane that begins at ``start`` or later."""

    def window(self, low: int, high: int) -> tuple[bytes, bytes, bytes, bytes]:
        """The counts of the panes with ``low <= start < high``, added up: the keys, ascending, as data and int64 ends, and
        int64 counts and highest timestamps."""

    def drop_below(self, start: int) -> None:
        """Forget the panes that begin before ``start``, and their changes."""

    def changes(self) -> tuple[list[bytes], list[tuple[int, int]]]:
        """What was added since the last call: store keys, in the order in which they first changed, and for each its count
        and highest timestamp."""

class _Sessions:
    """Sessions by key with their aggregates, and what no store has of them yet. All of a key's sessions are here, or none. A
    session is its start, the end that it is stored under, and its entry."""

    def __len__(self) -> int:
        """The number of keys."""

    @property
    def pending(self) -> int:
        """About how many changes ``changes`` has; 0: none."""

    @property
    def used_bytes(self) -> int:
        """About how much memory distinct values take."""

    def missing(self, names: list[bytes]) -> list[int]:
        """The places of keys that are not here."""

    def hold(self, name: bytes, stored: list[tuple[int, int, Any]]) -> bool:
        """Take over a key with its stored sessions, by their ends. If it is here, nothing is done. Those that T has closed
        before the next batch are not among what that closes. ``False``: nothing was done, because Python must read one."""

    def take(
        self, names: list[bytes], numbers: Any, times: Any, at: Any, levels: Any, moved_by_records: bool, given: Any
    ) -> tuple[bytes, bytes, bytes, bytes, bytes, list[bytes], bytes, bytes] | None:
        """Take records, whose keys are all here: int64 numbers of their names, times, and positions (see ``Timeline``).
        Returns the int64 indices of those that are late, and what closes as int64 positions, ends, starts, last times,
        columns of the numbers that are shown, keys and their int64 offsets; by position, end, start, key. ``None``: nothing
        was done, because a number may come near the bounds of 64 bits."""

    def changes(
        self, floor: int
    ) -> tuple[list[bytes], list[int], list[bytes], list[Any], list[bytes], list[Any], list[bytes], list[bytes]]:
        """What the store does not have, which has it from now on, by store keys: entries that are gone, with the times of
        their last records; new entries; others; timers that are gone, and new ones. A timer's key is end, start, key. Of
        the keys that changed, sessions that have closed and end before ``floor`` are dropped."""

    def release(self, name: bytes) -> list[tuple[int, bytes]] | None:
        """Give up a key without changes: the ends and starts (8 bytes) of its sessions, or ``None`` if it is not here."""

    def shrink(self, floor: int, most: int) -> int | None:
        """Free memory while there are no changes: drop sessions that have closed and end before ``floor``, and keys without
        any; of the others keep at most this many, whose last sessions end last. Returns the highest end of the sessions of
        keys that are dropped although they have some; ``None``: there are none."""

class SessionCounts(_Sessions):
    """Sessions that count their records. An entry is a count and the time of the last record. ``take`` is given what each
    record counts, int64, or ``None``, for 1 each. The arguments: see
    ``penstock.topologies.operators.columnar.sessions.SessionRules``."""

    def __init__(
        self, gap: int, touching: bool, behind: int, closes_after: int, keep: int, segment_ms: int
    ) -> None: ...

class SessionParts(_Sessions):
    """Sessions with several aggregates, ``parts``, each by its letter: counts n, sums s of whole numbers and r of floats,
    the least l and the greatest g, distinct values d. An entry is bytes as a store has them. ``take`` is given for each
    part int64 numbers, or the bits of floats, or codes of values, of which those below 0 stand for nulls; uint8 flags of
    nulls; and the data and int64 offsets of the values. Counts need flags alone. A distinct count shows how many values
    there are, a count its number, others two numbers."""

    def __init__(
        self, gap: int, touching: bool, behind: int, closes_after: int, keep: int, segment_ms: int, parts: bytes
    ) -> None: ...

class Patterns:
    """Partial matches of a pattern by key, the events that wait for the watermark, and what no store has of them yet.
    ``states``: of each state its stage, kind, gap and patience in ms, and edges: action, number of the target, condition
    in postfix order (0 and the number of a bit, 1 always, 2 both, 3 either, 4 not). ``start``: its number. ``skip``:
    strategy and stage. ``stages``: how many there are."""

    def __init__(
        self,
        states: list[tuple[int, str, int | None, int | None, list[tuple[str, int, bytes]]]],
        start: int,
        within: int | None,
        skip: tuple[str, int],
        shape: int,
        stages: int,
    ) -> None: ...
    def __len__(self) -> int:
        """The number of keys."""

    @property
    def pending(self) -> int:
        """About how many changes ``changes`` has; 0: none."""

    @property
    def used_bytes(self) -> int:
        """About how much memory the events have taken since ``begin``."""

    def begin(self, watermark: int, next_number: int) -> None:
        """Forget all, and begin at a watermark, with the number of the next event."""

    def missing(self, names: list[bytes]) -> list[int]:
        """The places of keys that are not here."""

    def hold(self, name: bytes, entry: bytes | None) -> bool:
        """Take over a key with its stored entry, or none. ``False``: nothing was done, because Python must read it."""

    def wait(self, name: bytes, time: int, number: int, bits: int, data: bytes) -> None:
        """Take over an event that waits in the store. Its key is here."""

    def take(
        self, names: list[bytes], numbers: Any, times: Any, bits: Any, at: Any, marks: Any, data: Any, offsets: Any
    ) -> tuple[bytes, list[tuple[int, bytes, int, bool, list[tuple[int, bytes]]]], int, int]:
        """Take events, whose keys are all here: int64 numbers of their names, times, uint64 bits, the number of marks before
        each, and its bytes; and apply the int64 marks. Returns the int64 indices of those that are late; what is handed out
        (position of the mark, key, time, whether it timed out, stages and events); and how many partial matches were added
        and removed."""

    def changes(self) -> tuple[Any, ...]:
        """What the stores do not have, which they have from now on: keys whose state changed, their entries (``None`` is
        gone) and times; alarms that are gone, and new ones; events that are gone, with their times; new ones, their bytes
        and times; the number of the next event and the time of the last one, if it is another."""

    def shrink(self) -> None:
        """Free memory while there are no changes: drop keys of which no store has anything."""

class Tally:
    """See ``penstock.state.stores.count_store.Tally``. ``base`` and ``base_from`` raise ``ValueError`` for a stored
    value that is no count, or too high for 64 bits with what was counted: its key stays unbased, all others have what
    the store holds."""

    def __init__(self) -> None: ...
    def __len__(self) -> int: ...
    @property
    def used_bytes(self) -> int: ...
    def add(self, data: Any, offsets: Any, counts: Any, times: Any) -> bool: ...
    def add_coded(self, codes: Any, data: Any, offsets: Any, times: Any) -> bool: ...
    def unbased(self) -> list[bytes]: ...
    def base(self, stored: list[bytes | None]) -> None: ...
    def base_from(self, known: EntryMap, whole: bool) -> None: ...
    def columns(self) -> tuple[bytes, bytes, bytes, bytes]: ...
    def clear(self) -> None: ...

class PartTally:
    """See ``penstock.state.stores.part_store.PartTally``. ``base`` and ``base_from`` raise ``ValueError`` for a stored value
    that only Python can read."""

    def __init__(self, parts: bytes) -> None: ...
    def __len__(self) -> int: ...
    @property
    def used_bytes(self) -> int: ...
    def reserve(self, data: Any, offsets: Any, starts: Any) -> bool: ...
    def unbased(self) -> list[bytes]: ...
    def base_nothing(self) -> None: ...
    def base(self, stored: list[bytes | None]) -> None: ...
    def base_from(self, known: EntryMap, whole: bool) -> None: ...
    def fold(self, columns: list[tuple[Any, Any]], times: Any) -> bool: ...
    def merge(self, data: Any, offsets: Any, times: Any) -> bool: ...
    def any_below(self, bound: bytes) -> bool: ...
    def keys(self) -> tuple[bytes, bytes]: ...
    def logged(self) -> tuple[bytes, bytes]: ...
    def windows(self) -> tuple[bytes, bytes, bytes]: ...
    def written(self) -> tuple[bytes, bytes]: ...
    def times(self) -> bytes: ...
    def columns(self) -> list[bytes]: ...
    def clear(self) -> None: ...

class Bags:
    """See ``penstock.topologies.operators.columnar.distinct.Bags``."""

    def __init__(self) -> None: ...
    def __bool__(self) -> bool: ...
    def has_room(self, bytes: int, numbers: int) -> bool: ...
    def add_numbers(self, count: int, groups: Any, numbers: Any) -> None: ...
    def add_coded(self, count: int, groups: Any, codes: Any, data: Any, offsets: Any) -> None: ...
    def add_pairs(self, count: int, group: int, pairs: list[tuple[bytes, int]]) -> None: ...
    def written(self, partials: list[Any], groups: Any, forms: bytes) -> tuple[bytes, bytes, None] | None: ...
    def pairs(self, group: int, count: int) -> list[tuple[bytes, int]]: ...

class Members:
    """See ``penstock.state.stores.member_view.NewMembers``."""

    def __init__(self) -> None: ...
    def __len__(self) -> int: ...
    @property
    def used_bytes(self) -> int: ...
    def ask(
        self, data: Any, offsets: Any, forms: bytes, heads: Any, head_offsets: Any, entries: Any
    ) -> tuple[bytes, bytes] | None: ...
    def fresh(self, absent: Any) -> bytes: ...
    def keep(self) -> None: ...
    def any_below(self, bound: bytes) -> bool: ...
    def keys(self) -> tuple[bytes, bytes]: ...
    def logged(self) -> tuple[bytes, bytes]: ...
    def clear(self) -> None: ...

def read_partials(data: Any, offsets: Any, forms: bytes, counts: Any) -> list[tuple[Any, ...]] | None:
    """The tuples of parts of such forms (``penstock.state.serdes.tuple_lists``), with the next of the int64 ``counts`` in
    the place of each collection of distinct values. ``counts=None``: nothing is returned but an empty list, if all can be
    read. ``None``: Python must read one of them."""

class JsonProjector:
    """Reads fields of JSON objects."""

    def __init__(self, fields: list[dict[str, Any]], unknown_allowed: bool, texts_bytes_max: int) -> None:
        """All fields of the type, each with ``name``, ``kind`` (``str``, ``int``, ``float``, ``bool``, ``object`` or,
        if not needed, ``any``), ``nullable``, ``required``, ``needed``, ``default`` and, of objects, ``inner``: their
        fields, and whether they may have others."""

    def token(self) -> int:
        """What tells this projector from others in what a reader has read ahead."""

    def project(self, data: Any, offsets: Any, nulls: Any) -> tuple[bytes | None, list[tuple[Any, ...]]]:
        """A byte per row, 1 where the decoder must be asked (``None``: nowhere), and for each needed field int32 codes and
        values, or numbers and nulls. For one of objects: where each begins and ends in the data, as int64 that never fall,
        nulls, and the same of their needed fields. What stands at rows that the decoder must be asked about means
        nothing."""

class AvroProjector:
    """Reads fields of flat Avro records."""

    def __init__(self, fields: list[tuple[str, Any]], framed: bool, texts_bytes_max: int) -> None:
        """Of each needed field its kind (``str``, ``bytes``, ``int``, ``float``, ``bool``) and the value of records that
        were written without it. ``framed``: a zero and the schema's number stand before each record."""

    def add(self, number: int, steps: list[tuple[str, int, bool, int, list[bytes | None]]] | None) -> None:
        """The schema of this number, 0 without frames: of each field, in order, its Avro type (of bytes that must be a
        text: ``string``), which branch of a union is null (-1: it is none), whether a null can be read, the place among the
        needed fields (-1: it is not needed), and of an enum the symbols, ``None`` where one cannot be read. ``None``: the
        decoder must be asked about all its records. ``ValueError`` and ``IndexError`` for what does not fit."""

    def project(self, data: Any, offsets: Any, nulls: Any) -> tuple[bytes | None, list[tuple[Any, Any]], list[int]]:
        """As that of ``JsonProjector``, and numbers of schemas that have not been added, about whose records the decoder
        must be asked."""

class JsonForm:
    """How an encoder writes objects of one type."""

    def __init__(self, fields: list[tuple[Any, ...]]) -> None:
        """What stands before each field's value, its kind (``str``, ``int``, ``bool``, ``object``), whether it may be null,
        and of an object its fields, else ``None``."""

    def others(self, data: Any, offsets: Any, nulls: Any) -> bytes | None:
        """A byte per row, 1 where a row is not certainly what the encoder writes of it; ``None``: nowhere. Nulls are 0."""

_Column = tuple[bytes, bytes, bytes | None]
"""Data, int64 offsets, and one byte per null flag or ``None``."""

def pack_rows(values: list[bytes | bytearray | memoryview | str | None]) -> _Column:
    """The values as a column, texts as UTF-8. ``UnicodeEncodeError`` for a text that cannot be."""

def list_rows(data: Any, offsets: Any, nulls: Any) -> list[bytes | None]:
    """The column's values."""

def take_rows(data: Any, offsets: Any, nulls: Any, places: Any) -> _Column:
    """The column of the values at these int64 places. ``IndexError`` for one outside."""

def stamp_rows(data: Any, offsets: Any, nulls: Any, times: Any) -> _Column:
    """The column with each value behind its int64 time as 8 bytes, big-endian."""

def window_key_rows(data: Any, offsets: Any, nulls: Any) -> _Column | None:
    """The keys of a window store, ``start | key``, from those of its changelog, ``key | start | 0``. ``None``: some are not
    such keys."""

def partition_rows(data: Any, offsets: Any, partitions: int) -> bytes:
    """int32 partitions by murmur2."""

def write_records(befores: list[bytes], columns: list[tuple[Any, ...]], count: int) -> tuple[bytes, bytes] | None:
    """JSON objects of so many rows, as data and int64 ends from a 0 on: what stands before each value, the value, and a
    brace at the end. A column is int64 numbers and nulls; or int32 codes, texts, and whether these are to be quoted, else
    they are JSON; or JSON as data, offsets and nulls. ``None`` where what is to be quoted needs more than quotes.
    ``MemoryError`` where all rows together have no room."""

def write_avro(
    prefix: bytes,
    fields: list[tuple[str, int, list[bytes | None]]],
    columns: list[tuple[Any, ...]],
    nulls: Any,
    count: int,
) -> tuple[bytes, bytes] | None:
    """Avro records of so many rows, as data and int64 ends from a 0 on: the prefix, and the value of each field; nothing for
    a null row. A field is its Avro type, which branch of a union is null (-1: none is), and the symbols of an enum. A column
    is int64, float64 or uint8 (a flag) and nulls; or int32 codes and texts or bytes; or bytes as data, offsets and nulls.
    ``None`` where a field does not hold a value, or a nan is a ``float``. ``MemoryError`` where all rows together have no
    room."""

def write_tuples(values: list[Any], forms: bytes | None, stamped: bool) -> list[bytes | None] | None:
    """The bytes of tuples; nulls stay nulls. ``forms``: a letter for each of their parts, of which a MessagePack array of
    bytes is written: ``q`` for a number as 8 bytes, big-endian, ``n`` for one in MessagePack, ``f`` for a tuple of scalars,
    as an array in MessagePack. Without forms the tuples are of scalars themselves. ``stamped``: each comes as ``(tuple,
    time)``, and is written behind its time, 8 bytes, big-endian. ``None`` where something is another value.
    ``ValueError`` for other letters."""

def pack_tuples(values: list[Any], forms: bytes | None) -> _Column | None:
    """As ``write_tuples``, as a column."""

def read_tuples(values: list[bytes | None], forms: bytes | None, stamped: bool) -> list[Any] | None:
    """Read what ``write_tuples`` writes; a number may be longer than it need be. ``None`` where something is neither null
    nor such bytes."""

def group_rows(codes: Any, bound: int) -> tuple[bytes, bytes, bytes]:
    """Of int32 or int64 codes below ``bound``: the number of each row's group, each group's code, and its first row, all
    int64."""

def highest_rows(numbers: Any, count: int, values: Any, running: bool) -> bytes:
    """int64: the highest value of each of ``count`` groups, or with ``running`` of each row's group up to that row."""

def count_rows_so_far(numbers: Any, count: int) -> bytes:
    """int64: how many rows each row's group has up to it."""

def sum_rows(numbers: Any, count: int, values: Any) -> bytes | None:
    """int64: the sum of each group; ``None`` where one does not fit."""

def text_lengths(data: Any, offsets: Any, nulls: Any) -> bytes:
    """int64: the number of characters of each text, 0 for a null."""

def texts_found(data: Any, offsets: Any, nulls: Any, what: bytes, place: str) -> bytes:
    """A byte for each text: 1 if it has ``what`` anywhere (``a``), at its start (``s``) or at its end (``e``); 0 for a null.
    ``ValueError`` for other letters."""

def texts_replaced(data: Any, offsets: Any, nulls: Any, old: bytes, new: bytes) -> _Column:
    """The texts with ``new`` in the place of each ``old``. ``ValueError`` where that is empty."""

def texts_split(data: Any, offsets: Any, nulls: Any, separator: bytes, place: int) -> _Column:
    """The part of each text at this place, from 0 on, between the separators; null where there is none. ``ValueError`` where
    the separator is empty."""

def split_words(data: Any, offsets: Any, nulls: Any, lower: bool) -> tuple[bytes, bytes, bytes, bytes, bytes | None]:
    """The words of texts, which white space parts, with ``lower`` of the texts in lower case: int64 counts per row, int32
    codes of all words, data and int64 offsets of the different ones in the order of first appearance, and a byte per row, 1
    where there is more than ASCII, of which nothing has been split (``None``: nowhere)."""
