"""Where spans go: a tracer provider that the program has made, or one of our own that exports by OTLP."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from penstock.state.errors import SettingsError
from penstock.streams.worker.record_spans import RecordSpans


def open_spans(
    tracing: str, application_id: str, provider: Any = None
) -> tuple[RecordSpans | None, Callable[[], None]]:
    """Spans by ``provider``; without it, if ``tracing`` is ``"otel"``, by the provider of the process, such as
    ``opentelemetry-instrument`` sets, or by one that exports by OTLP over HTTP as the environment says
    (``OTEL_EXPORTER_OTLP_ENDPOINT``, ``OTEL_SERVICE_NAME``, ``OTEL_TRACES_SAMPLER`` …). ``None``: tracing is off. The second
    value ends what was opened here. Raises ``SettingsError`` if the extra ``otel`` is not installed."""
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
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    service = {} if os.environ.get("OTEL_SERVICE_NAME") else {SERVICE_NAME: application_id}
    own = TracerProvider(resource=Resource.create(service))
    own.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return own, own.shutdown
