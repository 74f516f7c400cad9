"""The table keeps what is void, and compares with the reference only what is valid."""

from __future__ import annotations

from typing import Any

from benchmarks.report import drain_table, label, one_line, ratios, restore_table


def drained(system: str, rate: float = 1_000.0, *, void: str = "", repetition: int = 0, **more: Any) -> dict[str, Any]:
    """The result of a drain."""
    figures = {
        "records_per_s": rate,
        "cpu_s_per_million": 1e6 / rate,
        "broker_cpu_s_per_million": 0.5,
        "peak_bytes": 10**8,
        "rest_bytes": 10**8,
        "writes_per_input": 1.0,
        "others_cores": 0.25,
        "steady_s": 5.0,
        "ceiling": 4_000.0,
    }
    found = {"workload": "ysb", "guarantee": "EOS", "system": system, "records": 5_000, "void": void}
    return {**found, "repetition": repetition, **({} if void else figures), **more}


def cells(table: str) -> list[list[str]]:
    """The table's rows."""
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def test_a_row_stands_beside_the_reference_and_its_ceiling() -> None:
    reference, penstock = cells(drain_table([drained("penstock", 2_000.0), drained("kafka-streams")]))
    assert penstock[:6] == ["ysb", "penstock", "EOS", "5,000", "2,000", "500.00"]
    assert penstock[10:] == ["50%", "2.00", "0.50", "0.25", "equal"]
    assert reference[4] == "1,000"


def test_repetitions_give_a_median_with_its_spread_and_ratios_of_the_same_turn() -> None:
    ours = [drained("penstock", rate, repetition=i) for i, rate in enumerate((2_000.0, 4_000.0, 3_000.0))]
    theirs = [drained("kafka-streams", rate, repetition=i) for i, rate in enumerate((1_000.0, 1_000.0, 3_000.0))]
    assert ratios(ours, theirs, "records_per_s") == [2.0, 4.0, 1.0]
    row = cells(drain_table([*ours, *theirs]))[1]
    assert row[4] == "3,000 ±33%"
    assert row[11] == "2.00 (1.00–4.00)"


def test_runs_of_different_sizes_are_told_with_each_size() -> None:
    sizes = (12_000_000, 8_000_000, 12_000_000)
    runs = [drained("penstock", repetition=i, records=records) for i, records in enumerate(sizes)]
    assert cells(drain_table(runs))[0][3] == "8 M, 12 M"
    assert cells(drain_table(runs[:1]))[0][3] == "12,000,000"


def test_a_wrong_answer_is_void_with_its_reason() -> None:
    rows = cells(drain_table([drained("quix", void="3 keys differ"), drained("kafka-streams")]))
    assert rows[1][4] == "-"
    assert rows[1][-1].startswith("VOID 1 of 1: 3 keys differ")


def test_one_void_repetition_is_told_beside_the_valid_one() -> None:
    rows = cells(drain_table([drained("quix"), drained("quix", void="noise", repetition=1)]))
    assert rows[0][4] == "1,000"
    assert rows[0][-1] == "VOID 1 of 2: noise"


def test_without_a_roofline_there_is_no_share() -> None:
    assert cells(drain_table([drained("quix", ceiling=None)]))[0][10] == "-"
    assert "ceiling" not in one_line(drained("quix", ceiling=None))
    assert "25% of the ceiling" in one_line(drained("quix"))


def test_a_variant_is_a_row_of_its_own() -> None:
    usual = {"keys": 1_000_000, "partitions": 4, "window_ms": 10_000}
    many = drained("penstock", variant={**usual, "keys": 10_000_000}, threads=2, set={"EMISSION": "every_update"})
    assert label(drained("penstock", variant=usual)) == "ysb"
    assert label(many) == "ysb, 10 M keys, 2 threads, EMISSION=every_update"
    assert len(cells(drain_table([many, drained("penstock", variant=usual)]))) == 2


def test_a_restore_has_its_share_of_the_fetch() -> None:
    restored = {
        "system": "penstock",
        "guarantee": "ALO",
        "changelog_records": [1, 9],
        "seconds": [2.0, 4.0],
        "void": "",
    }
    restored |= {"records_per_s": 500.0, "cpu_s_per_million": 2.0}
    rows = cells(restore_table([{**restored, "ceiling": 1_000.0}, restored, {**restored, "void": "lost"}]))
    assert [row[6] for row in rows] == ["50%", "-", "-"]
    assert rows[2][7] == "VOID: lost"
