"""The printed tables. Medians over repetitions; a void result stays in the table with its reason."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

REFERENCE = "kafka-streams"
Row = dict[str, Any]


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table with padded columns."""
    table = [list(head), *map(list, rows)]
    widths = [max(len(row[i]) for row in table) for i in range(len(head))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in table
    ]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])


def _grouped(pairs: Iterable[Row]) -> dict[tuple[str, str, str], list[Row]]:
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for pair in pairs:
        groups.setdefault((pair["workload"], pair["guarantee"], pair["system"]), []).append(pair)
    return groups


def _middle(valid: Sequence[Row], field: str) -> float:
    return float(median(pair[field] for pair in valid))


def drain_table(pairs: Iterable[Row]) -> str:
    """One row per workload, guarantee and system: rate, costs, and both beside the reference's."""
    groups = _grouped(pairs)
    rows = []
    for (workload, guarantee, system), results in sorted(groups.items()):
        valid = [result for result in results if not result["void"]]
        voids = [result["void"] for result in results if result["void"]]
        why = f"VOID {len(voids)} of {len(results)}: {voids[0]}" if voids else "equal"
        sizes = "→".join(f"{size:,}" for size in results[0]["sizes"])
        if not valid:
            rows.append([workload, system, guarantee, sizes, *["-"] * 8, why])
            continue
        others = groups.get((workload, guarantee, REFERENCE), [])
        reference = [result for result in others if not result["void"]]
        rate, cpu = _middle(valid, "records_per_s"), _middle(valid, "cpu_s_per_million")
        ratios = ["-", "-"]
        if reference:
            ratios = [
                f"{rate / _middle(reference, 'records_per_s'):.2f}",
                f"{cpu / _middle(reference, 'cpu_s_per_million'):.2f}",
            ]
        each = " / ".join(f"{result['records_per_s']:,.0f}" for result in valid)
        rows.append(
            [
                workload,
                system,
                guarantee,
                sizes,
                each,
                f"{cpu:.1f}",
                f"{_middle(valid, 'broker_cpu_s_per_million'):.1f}",
                f"{max(result['peak_bytes'] for result in valid) / 1e6:,.0f}",
                f"{_middle(valid, 'outputs_per_input'):.3f}",
                *ratios,
                f"{max(result['others_cores'] for result in valid):.2f}",
                why,
            ]
        )
    head = [
        "workload",
        "system",
        "guarantee",
        "records",
        "records/s (each)",
        "CPU s/M",
        "broker CPU s/M",
        "peak RSS MB",
    ]
    return markdown(
        [*head, "outputs/input", f"rate ÷ {REFERENCE}", f"CPU ÷ {REFERENCE}", "others' cores", "check"], rows
    )


def restore_table(results: Iterable[Row]) -> str:
    """How fast a lost state comes back."""
    rows = [
        [
            result["system"],
            result["guarantee"],
            "→".join(f"{records:,}" for records in result["changelog_records"]),
            "-" if result["void"] else " → ".join(f"{seconds:.1f}" for seconds in result["seconds"]),
            "-" if result["void"] else f"{result['records_per_s']:,.0f}",
            "-" if result["void"] else f"{result['cpu_s_per_million']:.1f}",
            f"VOID: {result['void']}" if result["void"] else "equal",
        ]
        for result in results
    ]
    head = ["system", "guarantee", "changelog records", "seconds to the first new commit", "restored records/s"]
    return markdown([*head, "CPU s/M", "check"], rows)


def latency_table(results: Iterable[Row]) -> str:
    """Milliseconds from handing a click to the producer to receiving it enriched."""
    rows = []
    for result in results:
        figures = ["-"] * 6
        if not result["void"]:
            figures = [f"{result[name]:.1f}" for name in ("p50_ms", "p90_ms", "p99_ms", "max_ms")]
            figures += [f"{result[name]:.2f}" for name in ("cpu_share", "broker_share")]
        why = f"VOID: {result['void']}" if result["void"] else "every click came back"
        rows.append([result["system"], result["guarantee"], f"{result['rate_per_s']:,}", *figures, why])
    head = ["system", "guarantee", "records/s", "p50 ms", "p90 ms", "p99 ms", "max ms", "CPU cores", "broker cores"]
    return markdown([*head, "check"], rows)
