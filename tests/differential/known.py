"""The known departures of Penstock from Kafka Streams, and what is not decided yet."""

from __future__ import annotations

from tests.differential import departures as d
from tests.differential import replays as r
from tests.differential.departures import Departure

DEPARTURES: tuple[Departure, ...] = (
    Departure(
        "sliding windows in order of start",
        "Order of sliding windows",
        ("*sliding*",),
        "choice",
        "A record's sliding windows are emitted by their start. Kafka Streams emits the right windows first, then the left.",
        seen_as=d.any_order_at_once,
    ),
    Departure(
        "sliding windows told twice",
        "Sliding windows that are two records' at once",
        ("*sliding*",),
        "Kafka Streams",
        "Where a record's left window is also the right window of an earlier record, Kafka Streams tells it twice, and "
        "suppress lets it go twice.",
        seen_as=d.last_at_once,
        whose="other",
    ),
    Departure(
        "sliding windows in suppress",
        "Sliding windows in suppress",
        ("sliding_suppressed_by_time",),
        "choice",
        "In which order a record's windows are updated decides which of them suppress lets go at that record.",
        replay=r.without_updates_of_windows,
    ),
    Departure(
        "old values behind suppress",
        "Old values behind suppress",
        ("suppressed_then_grouped",),
        "Kafka Streams",
        "What suppress lets go replaces what it let go before. Kafka Streams' names the value before the last change as the "
        "old one, so that a following group subtracts what it never added.",
        seen_as=d.without_subtractions,
    ),
    Departure(
        "deletions lost behind suppress",
        "Deletions behind suppress",
        ("suppressed_then_joined",),
        "Kafka Streams",
        "A deleted row is deleted from the join. Kafka Streams' suppress loses it when the row is deleted again while it "
        "waits.",
        replay=r.both_without_second_deletions,
    ),
    Departure(
        "records without key or value ahead",
        "Records without a key or value that run ahead",
        ("streams_*",),
        "Kafka Streams",
        "A record without a key or value meets nobody and moves no time. In Kafka Streams it moves the time by which a "
        "record waits for a partner, and by which the rows of its own side are forgotten.",
        replay=r.nulls_moving_no_time,
    ),
    Departure(
        "records later than a join's grace",
        "How late a record may meet another",
        ("streams_*",),
        "choice",
        "What a record that is later than the grace still meets depends on when rows are forgotten: Kafka Streams keeps "
        "each side's rows by that side's time, and one millisecond less than it takes records.",
        replay=r.late_records_left_out,
    ),
    Departure(
        "unmatched records late",
        "When unmatched records leave a join",
        ("streams_left_*", "streams_right_*", "streams_outer_*"),
        "Kafka Streams",
        "An unmatched record is due when stream time passes its window and grace. Kafka Streams lets some wait for later "
        "records: behind another one of their key, or for the wider of the two bounds. They may meet a late partner then.",
        replay=r.unmatched_when_due,
    ),
    Departure(
        "released at once",
        "Equal timestamps in a grace buffer",
        ("versioned_*_grace*",),
        "choice",
        "Records with equal timestamps leave the grace buffer in order of arrival. Kafka Streams orders them by key.",
        seen_as=d.any_order_at_once,
    ),
    Departure(
        "null keys in a grace buffer",
        "A null key in a left join with grace",
        ("versioned_left_grace_null_keys",),
        "Kafka Streams",
        "A left join emits a record without a key at once. Kafka Streams fails with a NullPointerException when it has a "
        "grace period.",
        replay=r.null_keys_joined_at_once,
    ),
    Departure(
        "null values in windows",
        "Null values in windows",
        ("windowed_null_values",),
        "choice",
        "Windowed aggregations skip null values, as those without windows do and as Kafka's documentation says. Kafka "
        "Streams aggregates them.",
        replay=r.null_values_left_out,
    ),
    Departure(
        "outdated versions told",
        "Versioned tables as streams",
        ("versions_*",),
        "choice",
        "A versioned table's stream of changes has only changes of its newest rows. Kafka Streams also tells rows that are "
        "older than what it has told before.",
        seen_as=d.without_outdated,
        whose="other",
    ),
    Departure(
        "deletions lost in versioned tables",
        "A tombstone of its row's time",
        ("versions_*", "versioned_*", "tables_*_versioned"),
        "Kafka Streams",
        "A deletion with the timestamp of the row that it deletes is a version, too. Kafka Streams forgets it, and takes an "
        "older row that comes later as the newest.",
        replay=r.both_without_deletions_of_one_time,
    ),
    Departure(
        "rows that are not there deleted",
        "Rows that were never there",
        (
            "foreign_inner*",
            "table_grouped_to_null",
            "tables_*_with_its_own_*",
            "tables_*_of_a_join",
            "tables_*_with_one_table",
            "suppressed_then_*",
            "table_transformed_joined*",
            "composed_tables",
        ),
        "Kafka Streams",
        "A row that is not there is not deleted again. Kafka Streams tells such tombstones.",
        seen_as=d.without_idle_changes,
        whose="other",
    ),
    Departure(
        "rows told again",
        "Rows that did not change",
        ("tables_outer_filtered", "tables_left_filtered", "tables_*_outer_with_one_table", "composed_tables"),
        "Kafka Streams",
        "A row that did not change is not told again. Kafka Streams repeats it where the other side deletes a row that is "
        "not there.",
        seen_as=d.without_repeats,
    ),
    Departure(
        "null aggregates deleted again",
        "Aggregates that become null",
        ("per_commit_to_null",),
        "choice",
        "An aggregate that was null and is null again may be deleted again: where no reader asks for old values, what was "
        "emitted at the last commit is not known. Kafka Streams compares with the old value in its cache.",
        seen_as=d.without_idle_changes,
        whose="Penstock",
    ),
    Departure(
        "times of deletions per commit",
        "Aggregates that become null within a commit",
        ("per_commit_to_null",),
        "choice",
        "An aggregate that becomes null is deleted with the latest time of its records. Kafka Streams' cache gives it that "
        "of the last one.",
        seen_as=d.without_times,
    ),
    Departure(
        "deletions lost in a join with itself",
        "A table joined with itself",
        ("tables_inner_with_its_own_map", "tables_*_inner_with_one_table"),
        "Kafka Streams",
        "A deleted row deletes the result. Kafka Streams loses it in an inner join whose two sides it deletes at once.",
        seen_as=d.without_tombstones,
    ),
    Departure(
        "timestamps of suppressed rows",
        "Timestamps behind suppress",
        ("suppressed_then_joined",),
        "Kafka Streams",
        "A join's result has the later timestamp of its two rows. Kafka Streams forgets that of a suppressed table's row.",
        seen_as=d.without_times,
    ),
    Departure(
        "sessions out of reach",
        "Sessions that were closed",
        ("session_*_on_close",),
        "choice",
        "A late record of a long session reaches earlier sessions for as long as those are kept. Kafka Streams must keep "
        "them longer than its default, or it loses windows before they close.",
        replay=r.both_without_late_records,
    ),
    Departure(
        "sliding windows forgotten",
        "How long sliding windows are kept",
        ("sliding_*", "per_commit_sliding_*"),
        "Kafka Streams",
        "A sliding window is kept for as long as a record in time needs it. Kafka Streams' stores in memory forget it one "
        "millisecond sooner.",
        replay=r.both_keeping_windows,
    ),
    Departure(
        "sliding windows behind late records",
        "Sliding windows behind late records",
        ("*sliding*",),
        "Kafka Streams",
        "Behind every record that counts, a window begins. Kafka Streams misses that of a late record whose own window is "
        "closed, if a record comes at the very end of an earlier one.",
        replay=r.both_without_late_records_in_a_last_window,
    ),
    Departure(
        "sessions forgotten",
        "How long sessions are kept",
        ("session_default_*", "per_commit_session_*"),
        "Kafka Streams",
        "A session is kept for as long as a record in time can reach it. Kafka Streams forgets it sooner by default, and "
        "its record cache finds sessions that its store has forgotten.",
        replay=r.both_keeping_windows,
    ),
    Departure(
        "windows lost before they close",
        "Windows on close when time jumps",
        ("*_default_on_close",),
        "Kafka Streams",
        "A window is emitted when it closes. At its default retention, Kafka Streams forgets windows that wait for their "
        "close when time jumps over them.",
        replay=r.both_keeping_windows,
    ),
    Departure(
        "timestamps of foreign-key joins",
        "Timestamps of foreign-key joins",
        ("foreign_*", "composed_tables"),
        "choice",
        "A result has the later timestamp of its two rows. Kafka Streams takes the right row's when that one changes.",
        seen_as=d.without_times,
    ),
    Departure(
        "first aggregates subtracted",
        "Initial aggregates",
        ("again_count_of_counts_from_zero",),
        "Kafka Streams",
        "A group's first result replaces none. Kafka Streams subtracts the initial aggregate from a following group.",
        seen_as=d.without_group_of_zero,
        whose="other",
    ),
    Departure(
        "sessions that stay as they are",
        "Sessions that keep their bounds",
        ("again_sessions_to_keys",),
        "Kafka Streams",
        "A session that takes a record is subtracted before it is added again. Kafka Streams forgets to when its first and "
        "last time do not change.",
        seen_as=d.without_subtractions,
    ),
    Departure(
        "sessions that stay, filtered",
        "Sessions that keep their bounds",
        ("session_filtered_and_mapped",),
        "Kafka Streams",
        "A session that is filtered out when it takes a record is deleted. Kafka Streams forgets to when its first and last "
        "time do not change.",
        seen_as=d.without_tombstones,
    ),
    Departure(
        "transformers asked for old values",
        "Old values of transformed tables",
        ("table_transformed_*",),
        "Kafka Streams",
        "A processor of a table's changes is given each change once, and its row is kept where old values are needed. Kafka "
        "Streams asks it for the old value, too, unless the table has a named store.",
        replay=r.transformed_tables_kept,
    ),
    Departure(
        "null keys sent on",
        "Null keys in repartition",
        ("stateless_repartition",),
        "choice",
        "Records without a key are dropped by the operators that need one. Kafka Streams drops them in repartition, too.",
        seen_as=d.without_null_keys,
        whose="Penstock",
    ),
    Departure(
        "timers at the first record",
        "First timer in stream time",
        ("processor_first_stream_time",),
        "choice",
        "A timer fires when time passes a multiple of its interval. Kafka Streams also fires it at the first record.",
        replay=r.no_timer_at_the_first_record,
    ),
    Departure(
        "timers at the first reading of the clock",
        "First timer by the clock",
        ("processor_first_wall_time",),
        "choice",
        "Time begins with the first reading of the clock that the journal has. Kafka Streams reads it when a timer is "
        "scheduled, so that the first firing may come one interval sooner.",
        replay=r.clock_read_at_the_start,
    ),
)
"""Where the two differ for good."""

PENDING: dict[str, str] = {}
"""Kinds that are expected to differ until Penstock's answer is changed, and to what. Empty when nothing is open."""
