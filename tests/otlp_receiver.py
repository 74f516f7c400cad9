"""A receiver of OTLP over HTTP, as a collector has one: it decodes with OpenTelemetry's own protobuf classes."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


@dataclass(frozen=True)
class ReceivedSpan:
    """A span, with the attributes of its resource and its scope's schema. ``span``: as the protocol has it."""

    resource: dict[str, Any]
    schema_url: str
    span: Any

    @property
    def attributes(self) -> dict[str, Any]:
        return _plain(self.span.attributes)


class OtlpReceiver:
    """What came, and what is answered: ``status``, or nothing while ``answers`` is not set."""

    def __init__(self, server: ThreadingHTTPServer) -> None:
        self.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
        self.answers = threading.Event()
        self.answers.set()
        self.status = 200
        self._requests: list[Any] = []

    def take(self, body: bytes) -> None:
        request = ExportTraceServiceRequest()
        request.ParseFromString(body)
        self._requests.append(request)

    def spans(self) -> list[ReceivedSpan]:
        return [
            ReceivedSpan(_plain(resource.resource.attributes), scope.schema_url, span)
            for request in list(self._requests)
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]


@contextmanager
def otlp_receiver() -> Iterator[OtlpReceiver]:
    """A receiver on loopback, until the end of the block."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.answers.wait()
            known = self.path == "/v1/traces" and self.headers["Content-Type"] == "application/x-protobuf"
            status = receiver.status if known else 404
            if status == 200:
                receiver.take(gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body)
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(status)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    receiver = OtlpReceiver(server)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        receiver.answers.set()
        server.shutdown()
        server.server_close()
        thread.join()


def _plain(attributes: Any) -> dict[str, Any]:
    return {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in attributes}
