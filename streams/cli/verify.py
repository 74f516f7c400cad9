"""``penstock verify``: hold what the stream did to what a Spark batch makes of the same range."""

from __future__ import annotations

import argparse
import dataclasses
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.streams.batch.verify_plan import Sample, VerifyResult
    from penstock.streams.cli.job_report import Outcome
    from penstock.streams.cli.spark_options import Given


def register(subparsers: Any) -> None:
    """Add the command."""
    from penstock.streams.cli.job_report import add_report
    from penstock.streams.cli.schedule import add_every
    from penstock.streams.cli.spark_options import add_begin, add_common, add_tolerance

    parser = subparsers.add_parser("verify", help="compare the stream with a Spark batch over the same range")
    add_common(parser)
    parser.add_argument("--output", metavar="DIR", help="keep the batch's outputs and stores here")
    add_begin(parser)
    parser.add_argument(
        "--to",
        default="committed",
        metavar="committed|savepoint:NAME",
        help="what the application has committed (default), or the cut of a savepoint",
    )
    parser.add_argument(
        "--incremental",
        action="store_true",
        help="make a savepoint, and verify up to it from the last one up to which nothing differed (--repository)",
    )
    parser.add_argument(
        "--differences", metavar="DIR", help="where the differing rows go, with both values, as Parquet"
    )
    parser.add_argument(
        "--sample",
        default="1/1",
        metavar="K/N",
        help="only every Nth partition, beginning with the Kth, such as 1/8 (default: 1/1, all)",
    )
    add_tolerance(parser)
    add_every(parser)
    add_report(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Verify, once or again and again; 0 when nothing differs, 1 when something does."""
    from penstock.streams.cli.job_report import reported
    from penstock.streams.cli.schedule import repeated
    from penstock.streams.cli.spark_options import inputs_of, require_spark

    require_spark()
    sample = sample_of(args.sample)
    given = inputs_of(args)

    def once() -> int:
        with reported(args, given, "verify") as page:
            result = _incremental(args, given, sample) if args.incremental else _verified(args, given, sample)
            _report(page, result)
        (_show_json if args.json else _show)(result)
        return 0 if result.same else 1

    return repeated(args.every, once)


def sample_of(text: str) -> Sample:
    """``K/N`` as a sample. Raises ``SettingsError``."""
    from penstock.state.errors import SettingsError
    from penstock.streams.batch.verify_plan import Sample

    which, slash, of = text.partition("/")
    if not slash or not which.isdigit() or not of.isdigit() or not 1 <= int(which) <= int(of):
        raise SettingsError(f"--sample {text!r}: give K/N with K from 1 to N, such as 1/8")
    return Sample(int(of), int(which) - 1)


def _verified(args: argparse.Namespace, given: Given, sample: Sample, **more: Any) -> VerifyResult:
    from penstock.streams.cli.spark_options import begin_of, tolerance_of
    from penstock.streams.spark.verification import verify

    how = {
        "output": args.output,
        "to": args.to,
        "tolerance": tolerance_of(args),
        "sample": sample,
        "differences": args.differences,
        **begin_of(args, given),
        **more,
    }
    return verify(args.topology, **how)


def _incremental(args: argparse.Namespace, given: Given, sample: Sample) -> VerifyResult:
    """From the last savepoint that passed to one that is made now."""
    from penstock.state.errors import SettingsError
    from penstock.streams.batch.audit import Audit
    from penstock.streams.batch.places import absolute
    from penstock.streams.batch.replay_plan import SAVEPOINT
    from penstock.streams.spark.compaction import compact

    repository = absolute(args.repository or given.snapshots)
    if repository is None:
        raise SettingsError(
            "--incremental needs a repository for its savepoints; give --repository, or the setting snapshots"
        )
    made = compact(
        args.topology,
        application_id=given.application_id,
        connection=given.connection,
        repository=repository,
        session=given.session,
    )
    if made.savepoint is None:
        raise SettingsError(f"--incremental verifies up to a savepoint, and none could be made: {made.no_savepoint}")
    audit = Audit(repository, given.application_id)
    result = _verified(
        args, given, sample, from_=audit.begin(), to=f"{SAVEPOINT}{made.savepoint}", repository=repository
    )
    if result.same and sample.of == 1:
        audit.passed(made.savepoint)
    return result


def _report(page: Outcome, result: VerifyResult) -> None:
    page.verdict, page.good = f"{_verdict(result)}.", result.same
    page.rows_out = sum(c.batch_rows for c in result.comparisons)
    page.tables.append(("Stream against batch", *_table(result), range(3, 7)))
    page.cautions = result.cautions
    if result.table is not None:
        page.published = [("differing rows", result.table)]


def _verdict(result: VerifyResult) -> str:
    said = "no differences" if result.same else "stream and batch DIFFER"
    until = f" up to savepoint {result.until}" if result.until is not None else ""
    return f"{said} over {result.records:,} input records{until}"


def _table(result: VerifyResult) -> tuple[list[str], list[list[str]]]:
    """The comparisons: columns and rows."""
    allowed = any(c.allowed for c in result.comparisons)
    rows = [
        [
            c.kind,
            c.name,
            c.mode,
            f"{c.stream_rows:,}",
            f"{c.batch_rows:,}",
            "-" if c.idle else f"{c.differences:,}",
            *([f"{c.allowed:,}"] if allowed else []),
        ]
        for c in result.comparisons
    ]
    columns = ["", "name", "compared by", "stream", "batch", "differences", *(["done twice"] if allowed else [])]
    return columns, rows


def _show(result: VerifyResult) -> None:
    from penstock.streams.cli.spark_options import show

    show("stream against batch", *_table(result))
    for caution in result.cautions:
        print(f"caution: {caution}")
    for c in result.comparisons:
        if c.idle:
            print(f"topic {c.name}: every key has several writing tasks, so the order of its rows is not compared")
        if c.first is not None:
            place = "an input record that could not be found" if c.first.input is None else _place(*c.first.input)
            print(
                f"{c.kind} {c.name} differs after {place}: key {c.first.key!r:.80}, "
                f"stream {c.first.stream!r:.120}, batch {c.first.batch!r:.120}"
            )
    if result.table is not None:
        print(f"the differing rows are in {result.table}")
    print(f"{_verdict(result)}, in {result.seconds:.1f} s", flush=True)


def _show_json(result: VerifyResult) -> None:
    """One line, for schedulers."""
    print(json.dumps({"same": result.same, **dataclasses.asdict(result)}, default=_plain), flush=True)


def _plain(value: object) -> object:
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else repr(value)


def _place(topic: str, partition: int, offset: int) -> str:
    return f"topic {topic}, partition {partition}, offset {offset}"
