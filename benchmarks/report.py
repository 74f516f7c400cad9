"""The printed tables. Medians over repetitions; a void result stays in the table with its reason."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from benchmarks.steady import spread
from benchmarks.workloads import Variant
from demo.svg import number

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


def one_line(result: Row) -> str:
    """A drain's figures for the eye that watches."""
    share = f", {result['records_per_s'] / result['ceiling']:.0%} of the ceiling" if result.get("ceiling") else ""
    return (
        f"{result['records_per_s']:,.0f} records/s, {result['cpu_s_per_million']:.2f} CPU s/M over "
        f"{result['steady_s']:.0f} s{share}"
    )


def label(result: Row) -> str:
    """The workload, and what of its variant or its threads is not as usual: ``enrich, 10 M keys``."""
    variant, usual = result.get("variant", {}), dataclasses.asdict(Variant())
    words = [result["workload"]]
    if variant.get("keys", usual["keys"]) != usual["keys"]:
        words.append(f"{variant['keys'] / 1e6:g} M keys")
    if variant.get("partitions", usual["partitions"]) != usual["partitions"]:
        words.append(f"{variant['partitions']} partitions")
    if variant.get("window_ms", usual["window_ms"]) != usual["window_ms"]:
        words.append(f"windows of {variant['window_ms'] / 1e3:g} s")
    if result.get("threads", 1) != 1:
        words.append(f"{result['threads']} threads")
    words += [f"{key}={value}" for key, value in result.get("set", {}).items()]
    return ", ".join(words)


def grouped(results: Iterable[Row]) -> dict[tuple[str, str, str], list[Row]]:
    """Drains by workload, guarantee and system."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for result in results:
        groups.setdefault((label(result), result["guarantee"], result["system"]), []).append(result)
    return groups


def valid(results: Iterable[Row]) -> list[Row]:
    """Those that are not void."""
    return [result for result in results if not result["void"]]


def ratios(results: Iterable[Row], reference: Iterable[Row], field: str) -> list[float]:
    """Of each turn of a run that both have, the figure as a multiple of the reference's."""
    beside = {_turn(result): result[field] for result in valid(reference)}
    return [r[field] / beside[_turn(r)] for r in valid(results) if beside.get(_turn(r))]


def _turn(result: Row) -> tuple[str, int]:
    return result.get("session", ""), result["repetition"]


def _ratio(results: Sequence[Row], reference: Sequence[Row], field: str) -> str:
    found = ratios(results, reference, field)
    if not found:
        return "-"
    of = spread(found)
    return f"{of.median:.2f}" if of.times == 1 else f"{of.median:.2f} ({of.low:.2f}–{of.high:.2f})"


def _figure(results: Sequence[Row], field: str, form: str) -> str:
    of = spread([result[field] for result in results])
    return format(of.median, form) + ("" if of.times == 1 else f" ±{of.part:.0%}")


def drain_table(results: Iterable[Row]) -> str:
    """One row per workload, guarantee and system: medians with half the range of the repetitions, the share of the
    ceiling, and both beside the reference's of the same repetition."""
    groups = grouped(results)
    rows = []
    for (workload, guarantee, system), some in sorted(groups.items()):
        fine = valid(some)
        voids = [result["void"] for result in some if result["void"]]
        why = f"VOID {len(voids)} of {len(some)}: {voids[0]}" if voids else "equal"
        if not fine:
            rows.append([workload, system, guarantee, _sizes(some), *["-"] * 10, why])
            continue
        others = groups.get((workload, guarantee, REFERENCE), [])
        shares = [result["records_per_s"] / result["ceiling"] for result in fine if result.get("ceiling")]
        rows.append(
            [
                workload,
                system,
                guarantee,
                _sizes(fine),
                _figure(fine, "records_per_s", ",.0f"),
                _figure(fine, "cpu_s_per_million", ".2f"),
                f"{_middle(fine, 'broker_cpu_s_per_million'):.2f}",
                f"{_middle(fine, 'peak_bytes') / 1e6:,.0f}",
                f"{_middle(fine, 'rest_bytes') / 1e6:,.0f}",
                f"{_middle(fine, 'writes_per_input'):.3f}",
                f"{median(shares):.0%}" if shares else "-",
                _ratio(fine, others, "records_per_s"),
                _ratio(fine, others, "cpu_s_per_million"),
                f"{max(result['others_cores'] for result in fine):.2f}",
                why,
            ]
        )
    head = ["workload", "system", "guarantee", "records", "records/s", "CPU s/M", "broker CPU s/M", "peak RSS MB"]
    head += ["RSS at rest MB", "writes/input", "of ceiling", f"rate ÷ {REFERENCE}", f"CPU ÷ {REFERENCE}"]
    return markdown([*head, "others' cores", "check"], rows)


def _sizes(some: Sequence[Row]) -> str:
    """How many records the runs drain: each number once, if they differ."""
    sizes = sorted({result["records"] for result in some})
    return f"{sizes[0]:,}" if len(sizes) == 1 else ", ".join(map(number, sizes))


def _middle(some: Sequence[Row], field: str) -> float:
    return float(median(result[field] for result in some))


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
            f"{result['records_per_s'] / result['ceiling']:.0%}"
            if result.get("ceiling") and not result["void"]
            else "-",
            f"VOID: {result['void']}" if result["void"] else "equal",
        ]
        for result in results
    ]
    head = ["system", "guarantee", "changelog records", "seconds to the first new commit", "restored records/s"]
    return markdown([*head, "CPU s/M", "of ceiling", "check"], rows)


def latency_table(results: Iterable[Row]) -> str:
    """Milliseconds that clicks took to come back enriched."""
    rows = []
    for result in results:
        figures = ["-"] * 7
        if not result["void"]:
            figures = [f"{result[name]:.1f}" for name in ("p50_ms", "p90_ms", "p99_ms", "max_ms")]
            figures += [f"{result[name]:.2f}" for name in ("cpu_share", "broker_share")]
            figures.append(f"{result['stolen_cores']:.2f}" if "stolen_cores" in result else "-")
        why = f"VOID: {result['void']}" if result["void"] else "every click came back"
        if (repeated := result.get("repeated")) and not result["void"]:
            why += f", {repeated:,} came again"
        rows.append([result["system"], result["guarantee"], f"{result['rate_per_s']:,}", *figures, why])
    head = ["system", "guarantee", "records/s", "p50 ms", "p90 ms", "p99 ms", "max ms", "CPU cores", "broker cores"]
    return markdown([*head, "taken by the host", "check"], rows)
