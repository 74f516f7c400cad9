"""Where spans go: a tracer provider that the program has made, or one of our own that exports by OTLP.

Spans are extra. If no collector takes them, records and commits go on as before, the log says so once, and the end of the
worker waits for them for ``CLOSE_TIMEOUT_S`` at most.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from penstock.state.errors import SettingsError
from penstock.streams.worker.record_spans import OPEN_MAX, RecordSpans

CLOSE_TIMEOUT_S = 5.0
"""How long the end of a worker waits for spans to be exported. The exporter itself would wait ten seconds for each batch."""
REPORTED_AGAIN_AFTER_S = 300.0
QUEUE_MAX = 2 * OPEN_MAX
"""Spans that may wait to be exported. A commit ends those of its records at once: more than the SDK's 2,048."""
_log = logging.getLogger("penstock.traces")
_SYSTEM_ERROR = re.compile(r"\[Errno -?\d+\] ([\w ]+)")


def open_spans(
    tracing: str, application_id: str, provider: Any = None
) -> tuple[RecordSpans | None, Callable[[], None]]:
    """Spans by ``provider``; without it, if ``tracing`` is ``"otel"``, by the provider of the process, such as
    ``opentelemetry-instrument`` sets, or by one that exports by OTLP over HTTP as the environment says
    (``OTEL_EXPORTER_OTLP_ENDPOINT``, ``OTEL_SERVICE_NAME``, ``OTEL_TRACES_SAMPLER`` …). ``None``: tracing is off. The second
    value ends what was opened here. Raises ``SettingsError`` if the extra ``otel`` is not installed, or the environment asks
    for another protocol."""
    if provider is None and tracing == "off":
        return None, lambda: None
    try:
        found, close = _provider(application_id) if provider is None else (provider, lambda: None)
        return RecordSpans(found, application_id), close
    except ImportError as exc:
        raise SettingsError(
            f"tracing='otel', but {exc}; run: pip install 'penstock[otel]', or tracing = 'off'"
        ) from exc


def _provider(application_id: str) -> tuple[Any, Callable[[], None]]:
    from opentelemetry import trace

    found = trace.get_tracer_provider()
    if not isinstance(found, trace.ProxyTracerProvider):
        return found, lambda: None
    _check_protocol()
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    resource = Resource.create()  # as OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES say
    if str(resource.attributes.get(SERVICE_NAME, "unknown_service")).startswith("unknown_service"):
        resource = resource.merge(Resource({SERVICE_NAME: application_id}))
    queue_max = None if os.environ.get("OTEL_BSP_MAX_QUEUE_SIZE") else QUEUE_MAX
    own = TracerProvider(resource=resource, shutdown_on_exit=False)
    reported: Any = ReportedExporter(OTLPSpanExporter())
    own.add_span_processor(BatchSpanProcessor(reported, queue_max))
    return own, lambda: _close(own.shutdown)


def _check_protocol() -> None:
    for name in ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        if asked := os.environ.get(name):
            if asked != "http/protobuf":
                raise SettingsError(
                    f"{name}={asked}, but spans are exported by http/protobuf; set "
                    "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/protobuf and the collector's HTTP port (4318 by default), "
                    "or run: opentelemetry-instrument penstock worker …"
                )
            return


def _close(shutdown: Callable[[], None]) -> None:
    thread = threading.Thread(target=shutdown, name="penstock-spans", daemon=True)
    thread.start()
    thread.join(CLOSE_TIMEOUT_S)
    if thread.is_alive():
        _log.warning("The last spans are dropped: the collector has not taken them within %g s.", CLOSE_TIMEOUT_S)


class ReportedExporter:
    """OpenTelemetry's exporter over HTTP, which logs several lines for each batch that it cannot deliver. Instead there is
    one line when spans begin to be dropped, one each five minutes, and one when they are taken again."""

    def __init__(self, inner: Any, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._inner = inner
        self._monotonic_s = monotonic_s
        self._said: list[str] = []
        """Its lines about the batch under way."""
        self.dropped = 0
        """Spans since one was exported."""
        self._since_s = self._reported_s = 0.0
        logging.getLogger(type(inner).__module__).addFilter(self._take)

    def _take(self, record: logging.LogRecord) -> bool:
        self._said.append(record.getMessage())
        return False

    def export(self, spans: Sequence[Any]) -> Any:
        """Export a batch. Called by one thread, at the end perhaps by a second one."""
        self._said.clear()
        result = self._inner.export(spans)
        now_s = self._monotonic_s()
        if result.name == "SUCCESS":
            if self.dropped:
                dropped, self.dropped = self.dropped, 0
                _log.info("Spans are exported again; %d were dropped in %.0f s.", dropped, now_s - self._since_s)
            return result
        if not self.dropped:
            self._since_s = now_s
        self.dropped += len(spans)
        if self.dropped == len(spans) or now_s - self._reported_s >= REPORTED_AGAIN_AFTER_S:
            self._reported_s = now_s
            _log.warning(
                "Spans cannot be exported to %s and are dropped, %d so far: %s. Records go on. "
                "See that a collector takes OTLP over HTTP there, or set OTEL_EXPORTER_OTLP_ENDPOINT.",
                getattr(self._inner, "_endpoint", "the collector"),
                self.dropped,
                cause_of(next(iter(self._said), "no reason is known")),
            )
        return result

    def shutdown(self) -> None:
        """End the exporter; a batch under way is given up."""
        self._inner.shutdown()
        logging.getLogger(type(self._inner).__module__).removeFilter(self._take)

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """See OpenTelemetry."""
        return bool(self._inner.force_flush(timeout_millis))


def cause_of(said: str) -> str:
    """In a few words, why a batch was not taken, from the exporter's first line about it."""
    if found := _SYSTEM_ERROR.search(said):
        return found[1]
    if "due to timeout" in said:
        return "it did not take them in time"
    return said.removeprefix("Failed to export spans batch ").rstrip(".")
