"""Why no broker answers: what the client says of its connections, of which the calls that need one say nothing.

A broker that is there and refuses is not one that is away: wrong security settings are the user's to correct.
"""

from __future__ import annotations

import re
import time
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

from penstock.state.errors import PenstockError, UserError
from penstock.streams.kafka.errors import SILENT, no_answer
from penstock.streams.kafka.request_retries import has_code

_SURE_AFTER: Final = 2
"""So often in a row must a refusal be said: one alone may come from a broker that is just ending. The client says equal
ones once in 30 s, so one after which nothing else was said for ``_LOOK_S`` counts too."""
_LOOK_S, _LEAST_S = 2.0, 0.05
"""Between two looks at what the client says, and the shortest attempt."""
_NOISE = re.compile(r"^\S+/\S+: | \(after \d+ms in state \w+(, \d+ identical error\(s\) suppressed)?\)")
_OTHER_PROTOCOL: Final = ("security.protocol", "PLAINTEXT broker listener?", "SSL listener?")
"""The client's guesses, where a listener ends the connection at once."""
_ADVICE: Final = {
    "login": "check sasl.mechanism, sasl.username, sasl.password and security.protocol under [penstock.common]",
    "tls": "check security.protocol, ssl.ca.location and the host's name in the certificate under [penstock.common]",
    "protocol": "give security.protocol under [penstock.common] as the broker's listener has it, such as SSL or SASL_SSL",
}


class ConnectionCauses:
    """An ``error_cb`` that remembers what was said last, and how often in a row."""

    def __init__(self) -> None:
        self._kind: str | None = None
        self._text = ""
        self._times = 0
        self._since_s = 0.0

    def __call__(self, error: KafkaError) -> None:
        """Hear an error of the client."""
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            return
        kind = _kind(error)
        self._times = self._times + 1 if kind == self._kind else 1
        if kind != self._kind:
            self._since_s = time.monotonic()
        self._kind, self._text = kind, _NOISE.sub("", error.str())

    @property
    def refused(self) -> bool:
        """Whether a broker is there and refuses, which waiting does not change."""
        lasting = self._times >= _SURE_AFTER or time.monotonic() - self._since_s >= _LOOK_S
        return self._kind in _ADVICE and lasting

    def fault(self, servers: str) -> PenstockError:
        """The error to raise because no broker of ``servers`` has answered: ``UserError`` where one refuses."""
        if self.refused:
            return UserError(
                f"the broker at {servers} refuses the connection: {self._text}; {_ADVICE[str(self._kind)]}"
            )
        return no_answer(servers, self._text)

    def metadata(self, client: Any, servers: str, timeout_s: float) -> Any:
        """The cluster's metadata. Raises the client's exception where no broker answers in time, and ``UserError`` soon
        where one refuses."""
        until_s = time.monotonic() + timeout_s
        while True:
            try:
                return client.list_topics(timeout=max(min(until_s - time.monotonic(), _LOOK_S), _LEAST_S))
            except KafkaException as exc:
                client.poll(0)  # calls this
                if self.refused:
                    raise self.fault(servers) from exc
                if not has_code(exc, SILENT) or time.monotonic() + _LEAST_S >= until_s:
                    raise


def _kind(error: KafkaError) -> str:
    code, text = error.code(), error.str()
    if code in (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED):
        return "login"
    if code == KafkaError._SSL:
        return "tls"
    if any(hint in text for hint in _OTHER_PROTOCOL):
        return "protocol"
    return error.name()
