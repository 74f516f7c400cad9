"""A description as a pipeline in Beam's own direct runner, whose input comes from a ``TestStream``."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import MethodType
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.direct.direct_runner import BundleBasedDirectRunner
from apache_beam.testing.test_stream import TestStream
from apache_beam.transforms import window
from apache_beam.utils.windowed_value import WindowedValue

RAISED_NO_EXCEPTION = "exceptions must derive from BaseException"
_FOUND: list[WindowedValue] = []
"""What the pipeline that runs has put out. The runner's threads are this process's."""


def _with_remembered_signatures(signature: Callable[..., Any]) -> Callable[..., Any]:
    """``inspect.signature`` that works out those of methods once: the runner asks for all of a ``DoFn`` at every bundle,
    which is most of what a run takes."""
    known: dict[Any, Any] = {}

    @functools.wraps(signature)
    def remembered(of: Any, **options: Any) -> Any:
        if options or not isinstance(of, MethodType):
            return signature(of, **options)
        if of.__func__ not in known:
            known[of.__func__] = signature(of)
        return known[of.__func__]

    return remembered


inspect.signature = _with_remembered_signatures(inspect.signature)


class _Keep(beam.DoFn):  # type: ignore[misc]  # Beam has no types here
    def process(
        self,
        element: Any,
        timestamp: Any = beam.DoFn.TimestampParam,
        of: Any = beam.DoFn.WindowParam,
        info: Any = beam.DoFn.PaneInfoParam,
    ) -> None:
        """Keep a pane."""
        _FOUND.append(WindowedValue(list(element[1]), timestamp, (of,), info))


def panes_of(entries: list[dict[str, Any]], windowed: Callable[[], Any]) -> list[WindowedValue]:
    """All panes of one run, in the order in which they came. ``windowed``: makes the transform that gives elements their
    windows and triggers."""
    _FOUND.clear()
    options = PipelineOptions(["--streaming", "--allow_unsafe_triggers"])
    pipeline = beam.Pipeline(runner=BundleBasedDirectRunner(), options=options)
    _ = (
        pipeline
        | _stream(entries)
        | beam.Map(lambda value: ("all", value))
        | windowed()
        | beam.GroupByKey()
        | beam.ParDo(_Keep())
    )
    result = pipeline.run()
    try:
        result.wait_until_finish()
    except TypeError as exc:
        # Some triggers leave a hold behind when they are done. The runner then has nothing left to do, but its watermark
        # is not at the end; it says so by raising a tuple, which Python refuses.
        if str(exc) != RAISED_NO_EXCEPTION:
            raise
    return list(_FOUND)


def _stream(entries: list[dict[str, Any]]) -> TestStream:
    """Each element is an event, and so a bundle, of its own. A watermark that does not advance is left out."""
    made, watermark = TestStream(), None
    for entry in entries:
        for ts, value in entry.get("elements", ()):
            made.add_elements([window.TimestampedValue(value, ts)])
        stated = entry.get("watermark")
        if stated == "max":
            made.advance_watermark_to_infinity()
        elif stated is not None and (watermark is None or stated > watermark):
            watermark = stated
            made.advance_watermark_to(stated)
    return made
